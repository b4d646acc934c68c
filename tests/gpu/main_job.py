"""Parts 3 and 4: benchmarks of the shipped suites. `python -m tests.gpu.main_job SUITE BENCHMARK`.

Each is installed, prepared and run in the current environment with the profile `quick`; the memory and minutes that were seen
are beside the estimates of docs/suite.md.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Final

from tests.gpu.command import Said, milabench, report
from tests.gpu.outcome import claim, is_simulated, not_shown, number, skip
from tests.gpu.runner import ROOT
from tests.gpu.scripts import BUSY, VARIABLE, described

NOTHING_SELECTED: Final = 3
SUITE_PAGE: Final = ROOT / "docs" / "suite.md"
NO_CUDA: Final = re.compile("CUDA is not available|not compiled with CUDA|no NVIDIA driver|No CUDA GPUs", re.IGNORECASE)
"""What programs say that ask for a real device themselves."""
SHORTER: Final = {"burn": ("burn.argv.--seconds=20",)}
"""What is overridden so that a benchmark fits."""


def estimates(benchmark: str) -> tuple[float | None, float | None]:
    """Return (GiB, minutes with the profile `default`) as docs/suite.md estimates them at size `device`."""
    for line in SUITE_PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] == f"`{benchmark}`" and len(cells) > 10:
            memory = re.fullmatch(r"([\d.]+) GiB", cells[-4])
            minutes = re.fullmatch(r"[\d.]+", cells[-1])
            return float(memory[1]) if memory else None, float(minutes[0]) if minutes else None
    return None, None


def communicators(text: str) -> int:
    """Return how many communicators NCCL made in one process, at most, as its NCCL_DEBUG=INFO says."""
    made = Counter(re.findall(r"^\S+:(\d+):\d+ \[\d+\] NCCL INFO .*Init COMPLETE", text, re.MULTILINE))
    return max(made.values(), default=0)


def must(said: Said, verb: str) -> None:
    """Skip where the benchmark cannot run here, and fail where the command did."""
    if "not in the cache, and" in said.err or "fatal: unable to access" in said.err:
        skip(f"needs a network: {said.error.removeprefix('error: ')[:200]}")
    if said.code == NOTHING_SELECTED or (said.code and "(not installed)" in said.err):
        missing = re.findall(r"\S+(?= \(not installed\))", said.err)
        skip(f"not installed: {', '.join(missing)}" if missing else said.error.removeprefix("error: ")[:200])
    if said.code and (lacking := re.search(r"ModuleNotFoundError: No module named '([^']+)'", said.err)):
        skip(f"not installed, and needed by what is: {lacking[1]}")
    if said.code:
        claim(f"{verb} ends with 0", holds=False, seen=said.error)
        sys.exit(0)


def main(suite: str, benchmark: str) -> None:
    """Run one benchmark."""
    size = ["--size", "tiny" if is_simulated() else "device"] if suite == "standard" else []
    words = ["--use-current-env", "--config", f"config/{suite}.yaml", "--select", benchmark, *size]
    words += [word for override in SHORTER.get(benchmark, ()) for word in ("--override", override)]
    environ = {"NCCL_DEBUG": "INFO"} if benchmark == "links" else {}
    if is_simulated():
        script = Path(os.environ.get("TMPDIR", "/tmp"), "devices.json")
        script.write_text(json.dumps(described(BUSY)))
        environ[VARIABLE] = str(script)
        words += ["--override", "system.gpu.count=1"]
    start = time.monotonic()
    must(milabench("install", *words, **environ), "install")
    must(milabench("prepare", *words, **environ), "prepare")
    prepared_s = time.monotonic() - start
    said = milabench("run", *words, "--profile", "quick", "--display", "none", **environ)
    if said.code == NOTHING_SELECTED:
        must(said, "run")
    benches = report()["benchmarks"]
    if not benches:
        claim("there is a run", holds=False, seen=said.error)
        return
    (bench,) = benches
    reasons = [f"{failure['why']} {failure['detail']}" for failure in bench["failures"]]
    reasons += [f"{one['check']}: {one['message']}" for one in bench["validations"] if one["verdict"] == "fail"]
    if is_simulated() and NO_CUDA.search(" ".join(reasons)):
        skip("the program itself asks for a real device")
    claim("the benchmark passes", holds=bench["outcome"] == "passed", seen="; ".join(reasons)[:400])
    if bench["perf"] is not None:
        number("rate", bench["perf"], bench["units"], seen=", ".join(bench["reasons"]))
    trials = [one["value"] for one in bench["metrics"] if one["metric"] == "tflops" and one.get("case") == "bf16"]
    if trials and bench["perf"] is not None:
        # The trial times many products between two marks of the device, the rate each of them.
        number("rate / trial of bf16", bench["perf"] / trials[0], "x", at_least=0.98, at_most=1.02, timed=True)
    if benchmark == "links" and not is_simulated():
        runs = sorted(Path(os.environ["GPU_BASE"], "runs").glob("*/links*.std*"), key=lambda path: path.stat().st_mtime)
        newest = [path for path in runs if path.parent == runs[-1].parent]
        count = communicators("\n".join(path.read_text(errors="replace") for path in newest))
        number("communicators of NCCL in a process", count, "", at_least=1, at_most=1)
    memory_gib, minutes = estimates(benchmark)
    if is_simulated():
        not_shown("the memory of a device")
    elif bench["memory_peak_MiB"] is not None and suite == "standard":
        seen = bench["memory_peak_MiB"] / 1024
        number("peak memory of the device", seen, "GiB", at_most=memory_gib, seen=f"estimated {memory_gib} GiB")
    took = (time.monotonic() - start) / 60
    about = f"profile quick, prepared in {prepared_s:.0f} s; estimated {minutes} with the profile default"
    number("minutes, prepared and run", took, "min", seen=about)


if __name__ == "__main__":
    main(*sys.argv[1:])
