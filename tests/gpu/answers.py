"""Part 5: right and wrong answers of a device. `python -m tests.gpu.answers PROGRAM`."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable

from tests.gpu.operators import needs_torch
from tests.gpu.outcome import claim, is_simulated, not_shown, number
from tests.gpu.runner import ROOT

MACHINE = ROOT / "benchmarks" / "machine"
TRIALS, GOOD = 200, 1000


def known() -> None:
    """In each number format products of known answer are right, and each wrong bit is found."""
    needs_torch()
    sys.path.insert(0, str(MACHINE))
    import burn
    import torch
    from known_answers import FORMATS, KnownProduct, is_rounding, unavailable
    from timing import the_device

    from tests.truth.faulty_device import flip

    device, chosen = the_device().device, random.Random(1)
    burn.exact_sums()
    trials, good, size = (20, 20, 64) if is_simulated() else (TRIALS, GOOD, 2000)
    for name, form in FORMATS.items():
        if reason := unavailable(name, device):
            not_shown(f"{name}: {reason}")
            continue
        torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
        product = KnownProduct(form, size, device, seed=1)
        product.run()
        if product.is_wrong() and is_rounding(form, product.result, product.expected):
            not_shown(f"{name}: not comparable: its sums are rounded on the way")
            continue
        false = found = 0
        for _ in range(good):
            product.run()
            false += product.is_wrong()
        for _ in range(trials):
            flip(product.run(), chosen)
            found += product.is_wrong()
        number(f"{name}: good products called wrong", false, f"of {good}", at_most=0)
        number(f"{name}: flips of one bit that were found", found, f"of {trials}", at_least=trials)


def stuck() -> None:
    """`burn` on a device with a stuck bit ends, and names the device."""
    needs_torch()
    sys.path.insert(0, str(MACHINE))
    from timing import device_name, the_device

    name = device_name(the_device().device)
    program = (str(MACHINE / "burn.py"), "--seconds", "2")
    words = [sys.executable, str(ROOT / "tests" / "truth" / "faulty_device.py"), "stuck-exponent", *program]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    print(done.stdout[-2000:] + done.stderr[-2000:], flush=True)
    holds = done.returncode != 0 and f"burn: {name}: " in done.stderr and "(exponent)" in done.stderr
    claim("the device and the bit are named", holds=holds, seen=done.stderr.strip()[-300:])


def burn_cost() -> None:
    """What comparing costs the load of `burn`, block by block beside the same products alone."""
    needs_torch()
    sys.path.insert(0, str(MACHINE))
    import burn
    import torch
    from timing import the_device

    device = the_device().device
    size, blocks, products = (1000, 3, 20) if device.type == "cpu" else (16000, 20, 20)
    load = burn.Products("fp32" if device.type == "cpu" else "bf16", size, 10, device)

    def seconds(make: Callable[[], object]) -> float:
        began = time.perf_counter()
        for _ in range(products):
            make()
        if device.type != "cpu":
            torch.accelerator.synchronize()
        return time.perf_counter() - began

    for make in (load.make_one, load.make_alone):
        seconds(make)
    ratios = sorted(seconds(load.make_one) / seconds(load.make_alone) for _ in range(blocks))
    seen = f"of random products one in {load.compare_every} is compared"
    number("burn with comparisons over burn alone", ratios[blocks // 2], "", at_most=1.02, timed=True, seen=seen)


PROGRAMS: dict[str, Callable[[], None]] = {"known": known, "stuck": stuck, "burn-cost": burn_cost}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]]()
