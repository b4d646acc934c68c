"""What comparing costs `burn`: CPU of its products with their comparisons, over the same products alone.

    python tests/perf/burn_checks.py

Needs torch, in this Python or in the one that PYTHON_WITH_TORCH names. The load is that of benchmarks/machine/burn.py itself, on
a processor and one thread. On an accelerator `make gpu PART=5` measures the same: tests/gpu/answers.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

from rows import ROOT, Row, in_turn, python_with_torch, ratios, show

SIZE = 1000
ROUNDS = 15
IN_TURN = 20  # products, of which two have a known answer
GOAL = 1.02
WITH, ALONE = "with comparisons", "alone"
MEASURE = "measure"
"""The argument of the process that measures."""


def measured() -> dict[str, list[float]]:
    """CPU seconds of each turn of both ways, and of how many random products burn compares one."""
    sys.path.insert(0, str(ROOT / "benchmarks" / "machine"))
    import burn
    import torch

    torch.set_num_threads(1)
    products = burn.Products("fp32", SIZE, 10, torch.device("cpu"))

    def turn(make_one: Callable[[], object]) -> float:
        began = time.thread_time()
        for _ in range(IN_TURN):
            make_one()
        return time.thread_time() - began

    found = in_turn({WITH: partial(turn, products.make_one), ALONE: partial(turn, products.make_alone)}, ROUNDS)
    return {**found, "every": [products.compare_every]}


def main() -> None:
    if sys.argv[1:] == [MEASURE]:
        print(json.dumps(measured()))
        return
    python = python_with_torch()
    if python is None:
        show([])
        return
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "benchmate" / "src")}
    done = subprocess.run([python, __file__, MEASURE], env=env, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    alone_ms = 1000 * sum(found[ALONE]) / ROUNDS / IN_TURN
    what = f"burn's products of {SIZE} x {SIZE} in fp32 with their comparisons, CPU"
    seen = f"a product takes {alone_ms:.1f} ms; of random ones one in {found['every'][0]} is compared; on a processor"
    show([Row(what, "the same products alone", ratios(found, WITH, ALONE), GOAL, seen)])


if __name__ == "__main__":
    main()
