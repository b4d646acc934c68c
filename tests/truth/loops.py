"""Shapes of loop against the clock and the count of the programs themselves: `python tests/truth/loops.py [NAMES...]`.

Each shape of loop_shapes/main.py is a benchmark that the real commands run, with the voirfile that a user would write. Printed
are the own rate, the reported one, their ratio and the word of the report. Shapes of frameworks that are not installed are left
out. `--profile default` measures as a user does; `quick` (the default) is short, and `suspect (short)` counts as valid.

The exit code is 1 where a number that is off by more than 1 % says valid, where a refusal came after more than 20 steps, and
where a program got neither a number nor a refusal.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.truth.launches import Launch, stamps_of  # noqa: E402

HERE = Path(__file__).resolve().parent
OFF = 0.01
NEEDS = {
    "lightning": "lightning",
    "lightning_limited": "lightning",
    "lightning_by_loader": "lightning",
    "trainer": "transformers",
    "trainer_by_loader": "transformers",
    "accelerate": "accelerate",
    "keras": "keras",
    "jax": "jax",
}
# Their steps end with a call, and the program goes on after it.
LATE = {"accumulation", "gan", "optimizer_made_again", "halves", "lightning", "lightning_limited", "trainer", "keras"}
MOST_STEPS = 20  # before a refusal
REFUSED_AFTER = {"validation_in_a_step": 100}  # nothing is wrong before that step
OF_THE_HOST = {"short"}
MAX_S = 90  # a program that is not ended waits so long


@dataclass(frozen=True)
class Row:
    """A shape: items a second by the program's clock and as reported, and what the report says of it."""

    name: str
    own: float | None
    reported: float | None
    word: str
    refused_after: int = 0
    """Steps of the program before it was refused."""

    @property
    def ratio(self) -> float | None:
        return None if not self.own or self.reported is None else self.reported / self.own

    @property
    def is_wrong(self) -> bool:
        """Whether a wrong number says `valid`, or there is neither a number nor a sentence that refuses it."""
        if self.ratio is None:
            is_late = self.refused_after > MOST_STEPS + REFUSED_AFTER.get(self.name, 0)
            return is_late or not self.word.startswith("refused")
        return self.word == "valid" and abs(self.ratio - 1) > OFF

    def __str__(self) -> str:
        numbers = [f"{value:10.1f}" if value is not None else f"{'-':>10}" for value in (self.own, self.reported)]
        ratio = f"{self.ratio:6.3f}" if self.ratio is not None else f"{'-':>6}"
        return f"{'!' if self.is_wrong else ' '} {self.name:26}{numbers[0]}{numbers[1]}  {ratio}  {self.word}"


def names() -> list[str]:
    """Return the names of the shapes whose frameworks are installed."""
    text = (HERE / "loop_shapes" / "main.py").read_text()
    found = re.findall(r"^def (\w+)\((?:\w+=None|\*\*limits)?\):\n", text, re.MULTILINE)
    found += re.findall(r"^(\w+) = \w+$", text, re.MULTILINE)
    helpers = {"evaluate", "validate", "jax_batches", "batches_of_lists"}
    return [name for name in found if name not in helpers and importlib.util.find_spec(NEEDS.get(name, "json"))]


def suite(folder: Path, chosen: list[str]) -> Path:
    """Write a suite with one benchmark for each shape."""
    shutil.copytree(HERE / "loop_shapes", folder / "loop_shapes")
    shutil.copytree(HERE / "programs", folder / "programs")
    shared = {"definition": "loop_shapes", "max_duration": MAX_S, "plan": {"method": "njobs", "n": 1}}
    benchmarks = {name: {"inherits": "_shape", "weight": 1.0} for name in chosen}
    path = folder / "suite.yaml"
    path.write_text(json.dumps({"_shape": shared, **benchmarks}))
    return path


def row(name: str, bench: Mapping[str, Any], base: Path, folder: Path) -> Row:
    """Return what came of a shape, from its stamps, its records and what the report says of it."""
    reasons = [reason for reason in bench["reasons"] if reason not in OF_THE_HOST]
    word = f"{bench['validity']}({', '.join(reasons)})" if reasons else "valid"
    if bench["outcome"] != "passed":
        failure = (bench["failures"] or [{"why": bench["outcome"], "detail": ""}])[0]
        word = f"refused: {failure['detail']}" if failure["why"] == "probe" else f"{failure['why']} {failure['detail']}"
    rates = [metric for metric in bench["metrics"] if metric["metric"] == "rate"]
    stamps = base / "data" / name / "stamps.0.txt"
    if word.startswith("refused") and stamps.is_file():
        steps = len(stamps_of(stamps, name in LATE).steps)
        return Row(name, None, None, word.replace("refused", f"refused after {steps} steps", 1), steps)
    if not rates or not stamps.is_file():
        return Row(name, None, bench["perf"], word)
    (path,) = [path for path in folder.glob("*.data") if path.name.split(".")[0] == name]
    window, _ = Launch(path, rates[0]).records(0)
    stamped = stamps_of(stamps, name in LATE)
    if not any(window["since"] < step.until <= window["until"] for step in stamped.steps):
        return Row(name, None, bench["perf"], word)
    achieved = stamped.during(**window)
    return Row(name, achieved.items / (achieved.seconds - achieved.paused), bench["perf"], word)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--profile", default="quick")
    parser.add_argument("--keep", help="a folder for what the run leaves")
    arguments = parser.parse_args()
    chosen = arguments.names or names()
    folder = Path(arguments.keep or tempfile.mkdtemp(prefix="milabench-loops-")).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    base = folder / "base"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MILABENCH_")}
    own = {"MILABENCH_BASE": str(base), "MILABENCH_LOCK_DIR": str(folder / "locks"), "OMP_NUM_THREADS": "1"}
    options = ["--config", str(suite(folder, chosen)), "--use-current-env", "--profile", arguments.profile]
    options += ["--repeat", "1"]
    milabench = [sys.executable, "-m", "milabench"]
    subprocess.run([*milabench, "run", *options], env={**kept, **own}, check=False)
    report = subprocess.run(
        [*milabench, "report", "--json"], env={**kept, **own}, check=True, stdout=subprocess.PIPE, text=True
    )
    (run,) = (base / "runs").iterdir()
    benches = {bench["bench"]: bench for bench in json.loads(report.stdout)["benchmarks"]}
    rows = [row(name, benches[name], base, run) for name in chosen]
    print(f"  {'loop':26}{'own':>10}{'reported':>10}  {'ratio':>6}  word")
    print("\n".join(map(str, rows)))
    if not arguments.keep:
        shutil.rmtree(folder)
    return 1 if any(each.is_wrong for each in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
