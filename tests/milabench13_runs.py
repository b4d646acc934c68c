"""Folders as they were written for milabench 1.3, small ones and those of a checkout, installed and run by the commands."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.commands import ROOT, Said, milabench_in
from tests.foreign_requests import FOLDERS

CHECKOUT = Path(os.environ.get("MILABENCH13", "/nonexistent"))
needs_checkout = pytest.mark.skipif(not CHECKOUT.is_dir(), reason="MILABENCH13 names no checkout of milabench 1.3")
SYSTEM = "system: {arch: cpu, gpu: {count: 2}}\n"
LOCK = ROOT / "benchmarks" / "_environments" / "vision" / "requirements.cpu.txt"
GIT = ("git", "-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "init.defaultBranch=main")


class Suite:
    """A suite file, and the command that works on it in a base of its own."""

    def __init__(self, file: Path, base: Path, names: Sequence[str], **environ: str) -> None:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("MILABENCH_")}
        own = {"MILABENCH_BASE": str(base), "MILABENCH_LOCK_DIR": str(file.parent / "locks")}
        self._milabench = milabench_in({**kept, **own, **environ})
        self._file = file
        self.folder = file.parent
        self._names = names
        self.base = base

    def __call__(self, verb: str, *argv: str, names: Sequence[str] = ()) -> Said:
        """Do something with all benchmarks, or with those named."""
        chosen = ("--config", str(self._file), "--select", ",".join(names or self._names))
        return self._milabench(*verb.split(), *chosen, *argv)

    def ready(self, names: Sequence[str] = ()) -> Suite:
        """Return it with all benchmarks, or those named, installed and prepared."""
        for verb in ("install", "prepare"):
            said = self(verb, names=names)
            assert said.code == 0, said.err
        return self

    def run(self, run: str, *argv: str, names: Sequence[str] = ()) -> Mapping[str, Mapping[str, Any]]:
        """Run the benchmarks; return what the report says of each."""
        said = self("run", "--profile", "quick", "--run-name", run, *argv, names=names)
        assert said.code in (0, 1), said.err
        return {
            bench["bench"]: bench for bench in json.loads(self._milabench("report", run, "--json").out)["benchmarks"]
        }

    def records(self, run: str, name: str) -> Path:
        """Return the file of the records of the one process of a benchmark."""
        (file,) = (path for path in self.base.glob(f"runs/{run}.*/*.data") if path.name.split(".")[0] == name)
        return file


def small_suite(folder: Path) -> Suite:
    """Return the suite of our own folders, with the repository that one of them clones; below `folder`."""
    made = folder / "suite"
    shutil.copytree(FOLDERS, made)
    upstream = folder / "upstream"
    (made / "upstream").rename(upstream)
    for words in (("init", "--quiet"), ("add", "."), ("commit", "--quiet", "--message", "first")):
        subprocess.run([*GIT, *words], cwd=upstream, check=True)
    commit = subprocess.run([*GIT, "rev-parse", "HEAD"], cwd=upstream, check=True, capture_output=True, text=True)
    (made / "cloning" / "upstream.txt").write_text(f"file://{upstream} {commit.stdout}")
    pins = [line for line in LOCK.read_text().splitlines() if not line.startswith("#")]
    lock = "".join(f"{line}\n" for line in pins)
    for name in SMALL:
        # One environment for all, in the versions of our benchmarks that use the same libraries.
        (made / name / LOCK.name).write_text(lock)
    file = made / "suite.yaml"
    file.write_text(SYSTEM + file.read_text())
    return Suite(file, folder / "base", SMALL, MILABENCH_TESTING_PREPARE="4,20")


def checkout_suite(folder: Path, own: Mapping[str, Mapping[str, Any]], base: str | None) -> Suite:
    """Return the checkout's own suite, of which some benchmarks have other arguments."""
    own = {
        name: {**keys, **({"definition": str(CHECKOUT / keys["definition"])} if "definition" in keys else {})}
        for name, keys in own.items()
    }
    file = folder / "suite.yaml"
    file.write_text(yaml.safe_dump({"include": [str(CHECKOUT / "config" / "standard.yaml")], **own}))
    return Suite(file, Path(base) if base else folder / "base", tuple(own), MILABENCH_TESTING_PREPARE="4,20")


SMALL = ("loop", "iterator", "probes", "ranks", "accelerated", "served", "cloning")
