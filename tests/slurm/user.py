"""Who types `milabench` on a cluster: a base of their own, a suite of small commands, what they see."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.commands import ROOT, Said, milabench_in
from tests.processes import started, until
from tests.ssh.conftest import carrying

PROGRAMS = ROOT / "tests" / "programs"
# `tree` starts whatever outlives a careless supervisor, and waits; once the folder has a file `calm`, it passes instead.
SUITE = """
profile: quick
_line: {{install_variant: unpinned, max_duration: 600, shell: true}}
first: {{inherits: _line, command: ['echo it is $SLURM_JOB_ID']}}
tree: {{inherits: _line, command: ['echo it is $SLURM_JOB_ID; [ -e {folder}/calm ] || exec {tree} wait']}}
last: {{inherits: _line, command: ['echo it is $SLURM_JOB_ID']}}
"""


class User:
    """A folder that all nodes see, and the environment of whoever works in it."""

    def __init__(self, folder: Path) -> None:
        self.base = folder / "base"
        self.suite = folder / "suite.yaml"
        self.suite.write_text(SUITE.format(folder=folder, tree=f'"{sys.executable}" "{PROGRAMS}/tree.py"'))
        (folder / "home").mkdir()
        self.environ = {
            **os.environ,
            "HOME": str(folder / "home"),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "MILABENCH_BASE": str(self.base),
            "MILABENCH_CONFIG": str(self.suite),
            "MILABENCH_LOCK_DIR": str(folder / "locks"),
            "MILABENCH_USE_CURRENT_ENV": "1",
        }

    def says(self, *argv: str, expect: int | None = 0, **more: str) -> Said:
        """What `milabench ARGUMENTS` answers, to its end."""
        said = milabench_in(self.environ)(*argv, **more)
        assert expect is None or said.code == expect, f"{argv}: {said.code}\n{said.out}\n{said.err}"
        return said

    @contextlib.contextmanager
    def runs(self, *argv: str, **more: str) -> Iterator[subprocess.Popen[str]]:
        """`milabench run ARGUMENTS`, meanwhile; its output goes to `log`."""
        with (
            self.log.open("w") as log,
            started(
                [sys.executable, "-m", "milabench", "run", *argv],
                env={**self.environ, **more},
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                text=True,
            ) as process,
        ):
            yield process

    @property
    def log(self) -> Path:
        """What a command said that `runs` started."""
        return self.base.parent / "run.log"

    @property
    def run(self) -> Path:
        """The directory of the latest run."""
        return max((self.base / "runs").glob("run.*"))

    def entries(self) -> list[dict[str, Any]]:
        """The whole lines of all journals of the latest run."""
        texts = [path.read_text() for path in self.run.glob("journal*.jsonl")]
        return sorted(
            (json.loads(line) for text in texts for line in text.splitlines(keepends=True) if line.endswith("\n")),
            key=lambda entry: entry["t"],
        )

    def end(self, bench: str) -> dict[str, Any]:
        """The last entry about the end of a benchmark's only step."""
        return [entry for entry in self.entries() if entry.get("step", "").startswith(bench) and "outcome" in entry][-1]

    def wait_for_tree(self, process: subprocess.Popen[str]) -> str:
        """The job in which `tree` runs, once all that it starts is there; for a run that must not have ended before."""

        def begun() -> list[str]:
            texts = [path.read_text() for path in self.base.glob("runs/run.*/tree*.stdout")]
            found = [text for text in texts if text.endswith("}\n")]
            assert found or process.poll() is None, self.log.read_text()
            return found

        return until(begun, "tree")[0].split()[2]

    def passed(self) -> set[str]:
        """The benchmarks of the latest run whose step has passed."""
        return {entry["step"].partition(".")[0] for entry in self.entries() if entry.get("outcome") == "passed"}

    def calm(self) -> None:
        """From now on `tree` passes."""
        (self.base.parent / "calm").touch()

    def leftovers(self) -> list[int]:
        """The live processes that the run has started, on any node."""
        return carrying(str(self.base))
