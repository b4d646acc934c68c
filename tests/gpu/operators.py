"""Part 5: operators, traces, registered cases and a server. `python -m tests.gpu.operators PROGRAM`."""

from __future__ import annotations

import csv
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.gpu.command import milabench, report
from tests.gpu.main_job import must
from tests.gpu.outcome import claim, is_simulated, not_shown, number, skip
from tests.gpu.runner import ROOT

FOLDER = Path(os.environ.get("TMPDIR", "/tmp"))


def python(*words: str, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
    """Run Python in the folder of the program; show what it says."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *words],
        cwd=FOLDER,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )
    print(f"== python {' '.join(words)}\n{done.stdout[-6000:]}{done.stderr[-6000:]}", flush=True)
    return done


def needs_torch() -> None:
    """Skip without torch."""
    if importlib.util.find_spec("torch") is None:
        skip("torch is not installed here")


def ops() -> None:
    """Times of operators against those of the kernels in torch's profiler."""
    done = python(str(ROOT / "tests" / "perf" / "ops_gpu.py"))
    for kind, text in re.findall(r"^  (ok  |FAIL) (.*)$", done.stdout, re.MULTILINE):
        claim(text.partition(":")[0], holds=kind == "ok  ", seen=text.partition(":")[2].strip()[:300])
    for name, value in re.findall(r"^\s+(matmul bf16 \d+): ([\d.]+) Tflop/s", done.stdout, re.MULTILINE):
        number(name, float(value), "Tflop/s")
    for name, value in re.findall(r"^\s+(copy of 1 GiB, \w+): ([\d.]+) GB/s", done.stdout, re.MULTILINE):
        number(name, float(value), "GB/s")
    claim("the program ends with 0", holds=done.returncode == 0, seen=done.stderr[-300:] if done.returncode else "")


CASES = """
import torch
import benchmate.cases as benchmark

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SIZE = 4096 if DEVICE == "cuda" else 512


@benchmark.register(name="Product")
class Product:
    def setup(self):
        self.a = torch.randn(SIZE, SIZE, device=DEVICE)

    def run(self):
        for _ in range(20):
            torch.mm(self.a, self.a)
"""
CASES_OF_MEMORY = """

@benchmark.register(name="Memory/{gib}", gib=[1, 2])
class Memory:
    def setup(self):
        self.held = torch.empty(2**30, dtype=torch.uint8, device=DEVICE)

    def run(self):
        torch.empty(self.gib * 2**30, dtype=torch.uint8, device=DEVICE).fill_(1)
"""
MAIN = """

if __name__ == "__main__":
    benchmark.main()
"""
EVENTS = """
import torch
cuda = torch.cuda.is_available()
size = 4096 if cuda else 512
a = torch.randn(size, size, device="cuda" if cuda else "cpu")
import time
found = []
for _ in range(5):
    if cuda:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize(); begin.record()
        for _ in range(20): torch.mm(a, a)
        end.record(); end.synchronize(); found.append(begin.elapsed_time(end) / 1e3)
    else:
        start = time.perf_counter()
        for _ in range(20): torch.mm(a, a)
        found.append(time.perf_counter() - start)
print(sorted(found)[2])
"""


def cases() -> None:
    """A registered case against torch's own events; the memory that cases hold and use, in whole GiB."""
    needs_torch()
    parts = [CASES, *([] if is_simulated() else [CASES_OF_MEMORY]), MAIN]
    (FOLDER / "cases.py").write_text("".join(parts))
    done = python("cases.py", "-T", "csv", "-o", "out.csv", "--benchmark_repetitions=3")
    claim("the cases end with 0", holds=done.returncode == 0, seen=done.stderr[-300:] if done.returncode else "")
    own = python("-c", EVENTS)
    rows = {row["name"]: row for row in csv.DictReader((FOLDER / "out.csv").read_text().splitlines())}
    product = next((row for name, row in rows.items() if name.startswith("Product")), None)
    if product is None or own.returncode:
        claim("there is a time of the case", holds=False, seen=", ".join(rows))
        return
    seconds = float(product["wall_time"])
    number(
        "time of a case / torch's own timer", seconds / float(own.stdout), "x", at_least=0.95, at_most=1.1, timed=True
    )
    for gib in () if is_simulated() else (1, 2):
        row = next(row for name, row in rows.items() if name.startswith(f"Memory/{gib}"))
        peak = float(row["memory_allocated_peak_run"]) / 2**30
        number(f"peak of a case that holds 1 GiB and uses {gib}", peak, "GiB", at_least=1 + gib, at_most=1.01 + gib)
    if is_simulated():
        not_shown("memory of a device")


TRAINING = """
import torch
device = "cuda" if torch.cuda.is_available() else "cpu"
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(12):
    optimizer.zero_grad()
    x = torch.randn(64, 256, device=device)
    torch.nn.functional.cross_entropy(model(x), torch.randint(0, 10, (64,), device=device)).backward()
    optimizer.step()
"""


def traces() -> None:
    """A step is recorded and replayed on the device, operator by operator."""
    needs_torch()
    (FOLDER / "train.py").write_text(TRAINING)
    recorded = python("-m", "benchmate.ops", "trace", "record", "-o", "step.json", "--", sys.executable, "train.py")
    claim(
        "a step is recorded", holds=recorded.returncode == 0, seen=recorded.stderr[-300:] if recorded.returncode else ""
    )
    device = "cpu" if is_simulated() else "cuda"
    replayed = python("-m", "benchmate.ops", "trace", "replay", "step.json", "-d", device)
    coverage = re.search(r"coverage\s+(.*)", replayed.stdout)
    claim(
        "it is replayed", holds=replayed.returncode == 0 and coverage is not None, seen=coverage[1] if coverage else ""
    )


def serving() -> None:
    """A server at rising loads: vLLM's where it is installed, else the one of known times."""
    has_vllm = importlib.util.find_spec("vllm") is not None
    benchmark = "serve-llama" if has_vllm else "simulated"
    if not has_vllm:
        not_shown("a server of a language model: vllm is not installed here")
    client = (
        ()
        if has_vllm
        else ("--override", "simulated.serve.client=plain", "--override", "simulated.serve.concurrency=[1,4]")
    )
    words = ("--use-current-env", "--config", "config/serving.yaml", "--select", benchmark, *client)
    must(milabench("install", *words), "install")
    must(milabench("prepare", *words), "prepare")
    said = milabench("run", *words, "--profile", "quick", "--repeat", "1", "--display", "none")
    must(said, "run")
    (bench,) = report()["benchmarks"] or [None]
    claim("the server has a curve", holds=bool(bench and bench.get("serving")), seen=said.error if said.code else "")
    if bench and bench["perf"] is not None:
        number("best rate", bench["perf"], bench["units"])


PROGRAMS: dict[str, Callable[[], None]] = {"ops": ops, "cases": cases, "traces": traces, "serving": serving}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]]()
