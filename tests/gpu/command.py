"""`milabench` as the programs of `make gpu` give it: in the current environment, in a base of the part."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.gpu.outcome import BASE
from tests.gpu.runner import ROOT


@dataclass(frozen=True)
class Said:
    """What a command ended with, and said."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """Its last error, or its last line."""
        lines = [line for line in self.err.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("error: ")]
        return (errors or lines or [f"exit code {self.code}"])[-1]


def milabench(verb: str, *words: str, timeout_s: float | None = None, **environ: str) -> Said:
    """Give one command; what it says is shown, too."""
    base = os.environ.get(BASE) or os.environ.get("TMPDIR", "/tmp")
    is_ours = (
        "MILABENCH_LOCK_DIR",
    )  # who else uses the devices is found there: a command that finds them held says so
    kept = {name: text for name, text in os.environ.items() if name in is_ours or not name.startswith("MILABENCH_")}
    wheels = os.environ.get("GPU_WHEELS")
    cache = {"XDG_CACHE_HOME": f"{wheels}/cache"} if wheels else {}
    env = {**kept, "MILABENCH_BASE": base, **cache, **environ}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "milabench", verb, *words],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )
    print(f"== milabench {verb} {' '.join(words)}\n{done.stderr[-4000:]}", flush=True)
    return Said(done.returncode, done.stdout, done.stderr)


def report(*words: str) -> Mapping[str, Any]:
    """Return the latest run, or the one that is named, as `report --json` gives it."""
    said = milabench("report", "--json", *words)
    return dict(json.loads(said.out)) if said.code == 0 else {"benchmarks": []}


def verdicts(bench: Mapping[str, Any]) -> Mapping[str, tuple[str, str]]:
    """Return (verdict, message) of each check of a benchmark: the worst of its steps."""
    order = {"pass": 0, "warn": 1, "fail": 2}
    found: dict[str, tuple[str, str]] = {}
    for one in bench["validations"]:
        known = found.get(one["check"], ("pass", ""))
        if one["check"] not in found or order.get(one["verdict"], 0) > order.get(known[0], 0):
            found[one["check"]] = (one["verdict"], one.get("message") or "")
    return found


def joined(words: Sequence[str]) -> str:
    """Return words as a list in a sentence."""
    return ", ".join(words) or "none"
