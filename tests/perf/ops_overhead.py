"""What the operator benchmark costs: `python tests/perf/ops_overhead.py`, in a Python with torch and benchmate; three ratios:

- the time inside the measured region for a one-element torch.add, by timeit's best (promise: at most 1.1);
- host time of one input configuration besides measuring, making inputs and checking results, by 2 ms (promise: at most 1);
- the time that --expand takes for 10,000 inputs, by 2 s (promise: at most 1), and the most memory it uses.

Figures are the best of several rounds, interleaved, in processor time where a block is long: the machine may be busy.
"""

from __future__ import annotations

import functools
import gc
import io
import json
import resource
import subprocess
import sys
import tempfile
import time
import timeit
from pathlib import Path
from typing import Any

try:
    import torch
except ImportError:
    print("skipped: torch is not installed here")
    sys.exit(0)

from benchmate.ops import exec_modes, executor, sampling
from benchmate.ops.arguments import DefaultDataGenerator
from benchmate.ops.benchmark import Benchmark, BenchmarkConfig
from benchmate.ops.builtin import operator
from benchmate.ops.device import TorchDevice
from benchmate.ops.options import Options

ROUNDS = 7
BLOCKS, BLOCK = 50, 500  # blocks of half a millisecond: some of them nobody interrupts
CONFIGURATIONS = 200
EXPANDED = 10_000
GENERATOR = "PyTorch:DefaultDataGenerator"

# The peak is the child's own word: what the system says about children includes what this process had when it forked.
EXPAND = """
import sys
from benchmate.memory import host_peak_bytes
from benchmate.ops.__main__ import main
main(sys.argv[1:])
print(host_peak_bytes(), file=sys.stderr)
"""


def one_element() -> None:
    """Times by timeit, mode hot and mode discrete, interleaved."""
    a, b = torch.rand(1), torch.rand(1)
    device = TorchDevice("cpu")
    passes = operator("torch.add").passes([a, b], {})
    timer = timeit.Timer("add(a, b)", globals={"add": torch.add, "a": a, "b": b})
    best = {"timeit": float("inf"), "hot": float("inf"), "discrete": float("inf")}
    for _ in range(ROUNDS):
        with sampling.gc_paused():
            best["timeit"] = min(best["timeit"], *(taken / BLOCK for taken in timer.repeat(BLOCKS, BLOCK)))
            timed = sampling.block_timer(passes.forward, device)
            blocks = (timed(BLOCK) / BLOCK for _ in range(BLOCKS))
            best["hot"] = min(best["hot"], *blocks)
            times = exec_modes.discrete(passes, BLOCKS * BLOCK, False, device, False).forward.times_ms
        # Not the luckiest call of all: what one takes in five when nothing disturbs it.
        best["discrete"] = min(best["discrete"], sorted(times)[len(times) // 5] / 1e3)
    say = "one-element torch.add: timeit's best {timeit:.3e} s, hot {hot:.3e} s, discrete {discrete:.3e} s"
    print(say.format(**best))
    for mode in ("hot", "discrete"):
        print(
            f"RATIO {mode} / timeit: {best[mode] / best['timeit']:.3f} (promise: at most 1.1; the original's discrete: 1.87)"
        )


def host_time() -> None:
    """Seconds of a run besides the calls that measure, make inputs and check, by configuration."""
    spent = 0.0

    def counted(function: Any) -> Any:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal spent
            begin = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                spent += time.process_time() - begin

        return call

    shapes = [{"type": "tensor", "dtype": "float", "shape": [[1, CONFIGURATIONS, 1], 4], "__range__": ["shape"]}]
    config = {
        "torch.nn.functional.relu": {
            "input_iterator": "RangeConfigIterator",
            "input_data_generator": GENERATOR,
            "config": [{"input": [{"args": shapes}]}],
        }
    }
    DefaultDataGenerator.get_data = counted(DefaultDataGenerator.get_data)  # type: ignore[method-assign]
    executor.check_output = counted(executor.check_output)
    exec_modes.MODES["discrete"] = counted(exec_modes.discrete)
    for form in ("original", "rich"):
        best = float("inf")
        for _ in range(ROUNDS):
            gc.collect()
            options = Options(warmup=1, iteration=1, format=form, out_stream=io.StringIO(), has_peaks=False)
            benchmark = Benchmark(BenchmarkConfig(options).load(config))
            spent, begin = 0.0, time.process_time()
            benchmark.run()
            best = min(best, (time.process_time() - begin - spent) / CONFIGURATIONS)
        print(
            f"RATIO host time of a configuration / 2 ms, {form}: {best / 2e-3:.3f} ({best * 1e3:.3f} ms; the original: 90 ms)"
        )


def expansion() -> None:
    """Seconds and memory of --expand, process and all."""
    side = {"type": "tensor", "dtype": "float", "shape": [[1, 100, 1], 16], "__range__": ["shape"]}
    config = {
        "torch.add": {
            "input_iterator": "RangeConfigIterator",
            "input_data_generator": GENERATOR,
            "config": [{"input": [{"args": [side, side]}]}],
        }
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "config.json")
        path.write_text(json.dumps(config))
        best = float("inf")
        for _ in range(ROUNDS):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            argv = [sys.executable, "-c", EXPAND, "-c", str(path), "--expand"]
            done = subprocess.run(argv, capture_output=True, text=True, check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    said = done.stdout.rstrip().rpartition("\n")[2]
    if said != f"{EXPANDED} inputs":
        sys.exit(f"error: --expand says {said!r}")
    print(f"RATIO --expand of {said} / 2 s: {best / 2:.3f} ({best:.2f} s, {int(done.stderr) / 2**20:.0f} MiB)")


if __name__ == "__main__":
    torch.set_num_threads(1)
    one_element()
    host_time()
    expansion()
