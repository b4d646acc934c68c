"""`milabench new --from`: a benchmark around a program of a release, filled in from the package index."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from milabench.bench.api import PyPI
from milabench.bench.load import load_benchfile
from tests.commands import Said
from tests.process.install.places import wheel

TRAIN = """
import itertools, sys, time
try:
    from numpy import array
except ImportError:
    array = list

def train_step(batch):
    time.sleep(0.002)

def main():
    for batch in itertools.count():
        train_step(batch)

if __name__ == "__main__":
    main()
"""
PLOT = "if __name__ == '__main__':\n    print('a picture')\n"
WHEEL = "tool-1-py3-none-any.whl"


@pytest.fixture
def sha256(tmp_path: Path, environ: dict[str, str]) -> str:
    """The digest of the one release file of the one index: two programs, and requirements of which one is an extra's."""
    more = {"tool_lib/__init__.py": "", "tool_lib/train.py": TRAIN, "tool_lib/plot.py": PLOT, "tests/t.py": PLOT}
    links = tmp_path / "links"
    links.mkdir()
    needs = ("packaging>=20", 'pytest>=7; extra == "test"')
    digest = wheel(links, "tool", "1", needs=needs, more=more)
    environ |= {"PIP_FIND_LINKS": str(links), "PIP_NO_INDEX": "1"}
    return digest


def test_file_and_digest_come_from_the_index_and_requirements_from_the_release(
    milabench: Callable[..., Said], sha256: str, tmp_path: Path
) -> None:
    said = milabench("new", "mine", "--into", str(tmp_path), "--from", "pypi:tool==1", "--module", "tool_lib.train")
    assert said.code == 0, said.err
    folder = tmp_path / "mine"
    declared = load_benchfile(folder)
    assert declared.source == PyPI("tool", "1", file=WHEEL, sha256=sha256)
    assert (declared.module, declared.script, declared.prepare) == ("tool_lib.train", None, None)
    lines = (folder / "requirements.in").read_text().splitlines()
    assert lines[1] == "packaging>=20"
    assert re.fullmatch(r"numpy==[\d.]+|# numpy: imported in line 4, not installed there", *lines[2:])
    assert said.out.splitlines() == [
        f"created {folder}, of {WHEEL}",
        "  steps: the iterations of the program's own loop (`for batch in itertools.count()`, line 12)",
        "  not observed: samples: a step counts as a sample. `batch_size=64` in the probe sets how many samples a step has",
        "  not observed: loss: observe the function that returns it with probes.result",
        "try it:",
        f"  milabench quickstart --config {folder}/suite.yaml",
    ]


def test_of_a_release_that_has_to_be_built_the_installed_module_is_measured(
    milabench: Callable[..., Said], tmp_path: Path, environ: dict[str, str]
) -> None:
    links = tmp_path / "links"
    links.mkdir()
    more = {"tool_lib/__init__.py": "", "tool_lib/train.py": TRAIN, "tool_lib/fast.pyx": "cdef int x = 1\n"}
    wheel(links, "tool", "1", needs=("packaging>=20",), more=more)
    environ |= {"PIP_FIND_LINKS": str(links), "PIP_NO_INDEX": "1"}
    said = milabench("new", "mine", "--into", str(tmp_path), "--from", "pypi:tool==1", "--module", "tool_lib.train")
    assert said.code == 0, said.err
    declared = load_benchfile(tmp_path / "mine")
    assert (declared.source, declared.module) == (None, "tool_lib.train")
    assert (tmp_path / "mine" / "requirements.in").read_text().splitlines()[1] == "tool==1"


@pytest.mark.e2e
@pytest.mark.long
def test_a_program_of_a_release_is_measured_as_it_was_created(
    milabench: Callable[..., Said], sha256: str, tmp_path: Path
) -> None:
    release = f"pypi:tool==1:{WHEEL}"
    assert (
        milabench("new", "mine", "--into", str(tmp_path), "--from", release, "--script", "tool_lib/train.py").code == 0
    )
    requirements = tmp_path / "mine" / "requirements.in"
    assert "tool==1" in requirements.read_text().splitlines()
    requirements.write_text("")  # that it is installed is not asked of the interpreter of these tests
    suite = ("--use-current-env", "--config", str(tmp_path / "mine" / "suite.yaml"))
    for verb in ("install", "run"):
        said = milabench(verb, *suite)
        assert said.code == 0, said.err
    (bench,) = json.loads(milabench("report", "--json").out)["benchmarks"]
    assert (bench["outcome"], bench["units"]) == ("passed", "steps/s")


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("--from", "pypi:tool==1"), 2, "has 2 programs. Choose a program with --script or --module: tool_lib/plot.py"),
        (("--from", "pypi:tool==1", "--script", "x.py"), 2, "--script x.py: no such file in " + WHEEL),
        (("--from", "pypi:tool==1", "--script", "../x.py"), 2, "no such file"),
        (("--from", "pypi:tool==1", "--module", "tool_lib.x"), 2, "no such module in " + WHEEL),
        (("--from", "pypi:tool==1", "--module", "a.b", "--script", "c"), 2, "Give only one"),
        (("--from", "tool==1"), 2, "give pypi:PROJECT==VERSION"),
        (("--from", "pypi:tool"), 2, "give pypi:PROJECT==VERSION"),
        (("--from", "pypi:tool==2"), 4, f"The newest that they list: {WHEEL}"),
        (("--from", "pypi:tool==1:tool-1.zip"), 4, "no file tool-1.zip"),
        (("--from", "pypi:absent==1"), 4, "absent 1: no sdist and no pure wheel"),
        (("--script", "c.py"), 2, "Add --from"),
    ],
)
def test_what_cannot_be_created_leaves_no_folder(
    milabench: Callable[..., Said], sha256: str, tmp_path: Path, words: tuple[str, ...], code: int, told: str
) -> None:
    said = milabench("new", "mine", "--into", str(tmp_path), *words)
    assert (said.code, said.err.count("\n")) == (code, 1), said.err
    assert told in said.err
    assert not (tmp_path / "mine").exists()
