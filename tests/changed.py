"""The unit tests of what was changed: `make fast` runs them.

    python -m tests.changed                 # prints folders and files of tests
    python -m tests.changed report plan     # those of these rooms

Changed is what no commit holds, and what the branch has beyond its upstream. Without any change all unit tests are printed.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
UNIT = "tests/unit"
ALWAYS = (f"{UNIT}/test_layers.py",)  # a new import in any room may break them


def changed_files() -> list[str]:
    """The changed files, relative to the checkout."""
    base = _git("merge-base", "HEAD", "@{upstream}") or ["HEAD"]
    return [*_git("diff", "--name-only", base[0]), *_git("ls-files", "--others", "--exclude-standard")]


def units_of(names: Iterable[str]) -> list[str]:
    """The folders and files of unit tests for the changed files; empty where none has any."""
    found: dict[str, None] = {}
    for path in map(PurePosixPath, names):
        match path.parts:
            case ("orchestrator", "milabench", module) if module.endswith(".py"):
                place = f"{UNIT}/test_{module}"
            case ("orchestrator", "milabench", room, *_) | ("tests", "unit", room, _, *_):
                place = f"{UNIT}/{room}"
            case ("tests", "unit", file):
                place = f"{UNIT}/{file}"
            case _:
                continue
        if place.rpartition("/")[2] != "conftest.py" and (ROOT / place).exists():
            found[place] = None
    return list(found)


def main(rooms: list[str]) -> int:
    """Print the tests, a line each; return the exit code."""
    given = [f"{UNIT}/{room}" for room in rooms]
    if unknown := [room for room, place in zip(rooms, given, strict=True) if not (ROOT / place).exists()]:
        print(f"error: no unit tests of {', '.join(unknown)}", file=sys.stderr)
        return 2
    tests = given or units_of(changed_files())
    print("\n".join([*ALWAYS, *tests] if tests else [UNIT]))
    return 0


def _git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
