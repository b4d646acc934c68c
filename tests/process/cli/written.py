"""Suites of shell lines, written where a test needs them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HEAD = """\
profile: quick
_line: {install_group: lines, max_duration: 60, shell: true, plan: {method: njobs, n: 1}, tags: [line], weight: 1.0}
"""


def suite(folder: Path, **lines: str) -> tuple[str, ...]:
    """The options that name a suite in which each benchmark is a line of shell."""
    file = folder / "suite.yaml"
    benches = "".join(
        f"{json.dumps(name)}: {{inherits: _line, command: [{json.dumps(line)}]}}\n" for name, line in lines.items()
    )
    file.write_text(HEAD + benches)
    return ("--use-current-env", "--config", str(file))


def once(folder: Path, name: str, then: str = "exit 3") -> str:
    """A line that fails the first time."""
    return f"test -e {folder}/{name} || {{ touch {folder}/{name}; echo not yet >&2; {then}; }}; echo here"


def runs(base: str | Path) -> list[Path]:
    """The run directories below a base, oldest first."""
    return sorted(Path(base, "runs").glob("run.*"))


def journal(run: Path) -> list[dict[str, Any]]:
    """What a journal holds."""
    return [json.loads(line) for line in (run / "journal.jsonl").read_text().splitlines()]


def ends(run: Path) -> list[tuple[str, int, str]]:
    """How each attempt ended: step, attempt, outcome."""
    return [(each["step"], each["attempt"], each["outcome"]) for each in journal(run) if each.get("state") == "ended"]
