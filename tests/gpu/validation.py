"""Part 2: each check of devices with a program that passes it and one that does not. `python -m tests.gpu.validation PROGRAM`."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from tests.gpu.command import milabench, report, verdicts
from tests.gpu.outcome import claim, is_simulated, number, skip
from tests.gpu.runner import ROOT
from tests.gpu.scripts import BUSY, VARIABLE, described

SUITE: Final = ("--use-current-env", "--config", str(ROOT / "tests" / "gpu" / "suite.yaml"))
OWN: Final = {"pid": "held", "memory_MiB": 4096}
SEEN: Final = {**BUSY, "processes": [OWN]}
"""A device at work whose driver names processes."""


def scripted(*readings: Any, **more: Any) -> dict[str, str]:
    """Return the variables that put one simulated device in place; none where there is an accelerator."""
    if not is_simulated():
        return {}
    path = Path(os.environ.get("TMPDIR", "/tmp"), "devices.json")
    path.write_text(json.dumps(described(list(readings), **more)))
    return {VARIABLE: str(path)}


def found(benchmark: str, *readings: Any, more: Sequence[str] = ()) -> dict[str, tuple[str, str]]:
    """Run a benchmark of the suite, on one device; return the verdict and message of each check."""
    slots = ("--override", "system.gpu.count=1") if is_simulated() else ()
    words = (*SUITE, *slots, *more, "--select", benchmark, "--display", "none")
    said = milabench("run", *words, **scripted(*readings))
    benches = report()["benchmarks"]
    if not benches:
        claim("the benchmark ran", holds=False, seen=said.error)
        return {}
    kept = dict(verdicts(benches[0]))
    for failure in benches[0]["failures"]:
        kept.setdefault(failure["why"], ("fail", failure["detail"]))
    return kept


def expect(checks: dict[str, tuple[str, str]], name: str, *wanted: str) -> None:
    """Claim the verdict of a check."""
    verdict, message = checks.get(name, ("absent", ""))
    claim(f"{name} is {' or '.join(wanted)}", holds=verdict in wanted, seen=f"{verdict} {message}".strip())


def busy() -> None:
    """A program that works on its device passes every check of devices."""
    checks = found("busy", SEEN)
    for name in ("usage", "placement", "throttle", "foreign", "sensor", "energy"):
        expect(checks, name, "pass")
    # A board may be set below its default by whoever runs the machine.
    expect(checks, "power", "pass", "warn")


def idle() -> None:
    """A program that holds memory and works on nothing fails `usage` by its load."""
    checks = found("idle", {**SEEN, "load": 0.0, "power_W": 120})
    expect(checks, "usage", "fail")
    claim("the load is named", holds="load" in checks.get("usage", ("", ""))[1], seen=checks.get("usage", ("", ""))[1])


def memory() -> None:
    """A program that uses less memory than is asked fails `usage` by its memory."""
    checks = found("full", {**SEEN, "memory_MiB": [512, 81920], "reserve_MiB": 600})
    expect(checks, "usage", "fail")
    claim("the memory is named", holds="memory" in checks.get("usage", ("", ""))[1])


def elsewhere() -> None:
    """A program that works on the host fails `usage`, or is named by `placement` where the driver tells processes."""
    checks = found("elsewhere", {**SEEN, "load": 0.0, "memory_MiB": [0, 81920], "processes": [{"pid": 1}]})
    expect(checks, "usage", "fail")
    if is_simulated():
        expect(checks, "placement", "fail")


def foreign() -> None:
    """Another program on the device fails `foreign`."""
    checks = found("crowded", {**SEEN, "processes": [OWN, {"pid": 1, "memory_MiB": 900}]})
    if not is_simulated() and not _driver_tells_processes():
        skip("the driver tells no processes here")
    expect(checks, "foreign", "fail")


def container() -> None:
    """A program in a container of docker passes `foreign` and `placement`: the host names its processes by other parents."""
    image = os.environ.get("GPU_IMAGE")
    if not image:
        skip("GPU_IMAGE names no image of docker with torch and benchmate")
    if shutil.which("docker") is None:
        skip("docker is not installed")
    container = json.dumps({"engine": "docker", "image": image})
    checks = found("busy", SEEN, more=("--override", f"busy.container={container}"))
    if not _driver_tells_processes():
        skip("the driver tells no processes here")
    expect(checks, "foreign", "pass")
    expect(checks, "placement", "pass")


def _driver_tells_processes() -> bool:
    """Return whether the records of the latest run have processes of a device."""
    runs = Path(os.environ["GPU_BASE"], "runs")
    return any('"processes": [{' in file.read_text(errors="replace") for file in runs.glob("*/*.data"))


def throttle() -> None:
    """A device that was slowed down fails `throttle`; a single sample of that does not."""
    checks = found("busy", SEEN, {"t": 2, "throttle": ["hw_slowdown"]})
    expect(checks, "throttle", "fail")


def sensor() -> None:
    """A device that is lost, and one with an error of the driver, warn."""
    expect(found("busy", SEEN, {"t": 2.5, "lost": "GPU is lost"}), "sensor", "warn")
    expect(found("busy", SEEN, {"t": 2.5, "xid": [79]}), "sensor", "warn")


def readings() -> None:
    """Readings that fail once, or that a board does not support, end no watching."""
    flaky = [SEEN, {"t": 1.5, "unanswered": ["load", "power", "energy", "memory"]}]
    checks = found("busy", *flaky)
    for name in ("usage", "throttle", "sensor", "energy"):
        expect(checks, name, "pass")


def slow_driver() -> None:
    """Calls that take 20 ms each are still enough for the checks."""
    checks = found("busy", {**SEEN, "call_ms": 20})
    expect(checks, "usage", "pass")
    expect(checks, "sensor", "pass")


def energy() -> None:
    """A counter in another unit than power warns."""
    expect(found("busy", {**SEEN, "energy_factor": 1.5}), "energy", "warn")


def size() -> None:
    """`milabench size` finds the largest batch that fits; what it saved is used by `auto_batch`."""
    file = Path(os.environ.get("TMPDIR", "/tmp"), "observed.yaml")
    slots = ("--override", "system.gpu.count=1") if is_simulated() else ()
    more = scripted(SEEN)
    said = milabench(
        "size", "sized", *SUITE, *slots, "--min", "40", "--save", str(file), "--json", "--display", "none", **more
    )
    claim("a size is found", holds=said.code == 0, seen="" if said.code == 0 else said.error)
    if said.code:
        return
    largest = json.loads(said.out)["largest"]
    if is_simulated():
        number("largest batch of 1 GiB an item", largest, "items", at_least=50, at_most=50)
    else:
        import torch

        memory_gib = torch.cuda.get_device_properties(0).total_memory / 2**30
        number("largest batch of 1 GiB an item", largest, "items", at_least=0.9 * memory_gib, at_most=memory_gib)
    # The memory of a simulated device is the same for each size: the size with the best rate is what can be asked for.
    how = "optimized" if is_simulated() else "auto"
    sizer = ("--override", f"system.options.sizer.{how}=1", "--override", f"system.options.sizer.config={file}")
    plan = milabench("plan", "run", *SUITE, *slots, *sizer, "--select", "sized", "--json", **more)
    if plan.code:
        claim("auto_batch can be planned", holds=False, seen=plan.error)
        return
    argv = json.loads(plan.out)["steps"][0]["argv"]
    chosen = int(argv[argv.index("--batch-size") + 1])
    claim("auto_batch plans another size than 8, which fits", holds=8 < chosen <= largest, seen=str(chosen))
    # More than any device has: nothing fits.
    most = ("--min", "4096", "--max", "4096") if not is_simulated() else ("--override", "sized.argv.--limit=0")
    said = milabench("size", "sized", *SUITE, *slots, *most, "--display", "none", **more)
    claim("a batch that does not fit is told", holds=said.code == 1 and "fits" in said.error, seen=said.error)


PROGRAMS: dict[str, Callable[[], None]] = {
    "busy": busy,
    "idle": idle,
    "memory": memory,
    "elsewhere": elsewhere,
    "foreign": foreign,
    "container": container,
    "throttle": throttle,
    "sensor": sensor,
    "readings": readings,
    "slow-driver": slow_driver,
    "energy": energy,
    "size": size,
}


def main(argv: Sequence[str]) -> None:
    """Run the program that is named."""
    PROGRAMS[argv[0]]()


if __name__ == "__main__":
    main(sys.argv[1:])
