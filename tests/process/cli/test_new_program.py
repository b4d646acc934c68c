"""`milabench new --from`: a benchmark around a script, a folder, a module or a Git repository of one's own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from milabench.bench.api import Git
from milabench.bench.load import load_benchfile
from tests.commands import Said

TRAIN = """
import json
from net import step

for epoch in range(1_000_000):
    step(epoch)
"""
NET = "import time\n\ndef step(epoch):\n    time.sleep(0.01)\n"
New = Callable[..., Said]


@pytest.fixture
def here(tmp_path: Path, environ: dict[str, str]) -> Path:
    """A folder with a script, a module beside it, and what is no part of it."""
    folder = tmp_path / "here"
    folder.mkdir()
    environ["PATH"] = f"{Path(sys.executable).parent}:{environ['PATH']}"  # a `python` for the commands of the tests
    for active in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        environ.pop(active, None)
    (folder / "train.py").write_text(TRAIN)
    (folder / "net.py").write_text(NET)
    (folder / "other.py").write_text("import torch\n")
    return folder


@pytest.fixture
def new(milabench: Callable[..., Said], here: Path) -> New:
    """`milabench new mine --from WHAT`, in that folder."""
    return lambda what, *more: milabench("new", "mine", "--from", what, *more, cwd=here)


def suite_of(here: Path) -> dict[str, object]:
    suite = yaml.safe_load((here / "benchmarks" / "mine" / "suite.yaml").read_text())
    assert suite["profile"] == "default"
    mine: dict[str, object] = suite["mine"]
    return mine


def argv_of(milabench: Callable[..., Said], here: Path) -> list[str]:
    """The command of its first launch, below its folder."""
    suite = here / "benchmarks" / "mine" / "suite.yaml"
    said = milabench("plan", "run", "--json", "--use-current-env", "--config", str(suite))
    assert said.code == 0, said.err
    argv = json.loads(said.out)["steps"][0]["argv"]
    return [word.replace(f"{suite.parent}/", "") for word in argv[1:]]


def test_a_script_is_copied_with_the_modules_that_it_imports(
    new: New, here: Path, milabench: Callable[..., Said]
) -> None:
    said = new("train.py --lr 0.1")
    assert said.code == 0, said.err
    assert said.out.splitlines() == [
        "created benchmarks/mine, with a copy of train.py and 1 of its modules",
        "  steps: the iterations of the program's own loop (`for epoch in range(1000000)`, line 5)",
        "  not observed: samples: a step counts as a sample. `batch_size=64` in the probe sets how many samples a step has",
        "  not observed: loss: observe the function that returns it with probes.result",
        "try it:",
        "  milabench quickstart --use-current-env --config benchmarks/mine/suite.yaml",
    ]
    program = here / "benchmarks" / "mine" / "program"
    assert sorted(path.name for path in program.iterdir()) == ["net.py", "train.py"]
    assert argv_of(milabench, here) == [
        *("-m", "benchmate.run", "--voirfile", "voirfile.py", "program/train.py", "--lr", "0.1")
    ]


def test_requirements_have_the_versions_of_the_environment(new: New, here: Path) -> None:
    (here / "train.py").write_text("import yaml, no_such_package\nfor step in range(9):\n    pass\n")
    said = new("train.py")
    assert said.code == 0, said.err
    first, *lines = (here / "benchmarks" / "mine" / "requirements.in").read_text().splitlines()
    assert first.startswith("# The packages that the program imports, in the versions of ")
    from importlib.metadata import version

    assert lines == [f"PyYAML=={version('pyyaml')}", "# no_such_package: imported in line 1, not installed there"]


def test_a_module_of_a_package_here_is_copied_with_what_it_imports(
    new: New, here: Path, milabench: Callable[..., Said]
) -> None:
    package = here / "tool"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "parts.py").write_text(NET)
    (package / "train.py").write_text("from .parts import step\nfor epoch in range(9):\n    step(epoch)\n")
    said = new("python -m tool.train -v")
    assert said.code == 0, said.err
    copied = here / "benchmarks" / "mine" / "program" / "tool"
    assert sorted(path.name for path in copied.iterdir()) == ["__init__.py", "parts.py", "train.py"]
    assert argv_of(milabench, here)[-4:] == ["voirfile.py", "-m", "tool.train", "-v"]


def test_the_copy_of_a_module_is_measured_where_its_data_is_though_the_original_is_there_too(
    new: New, here: Path, milabench: Callable[..., Said], environ: dict[str, str]
) -> None:
    package = here / "tool"
    package.mkdir()
    (package / "__init__.py").touch()
    (here / "rows.txt").touch()
    (package / "train.py").write_text("open('rows.txt')\nprint('copied')\n")
    assert new("python -m tool.train").code == 0
    (package / "train.py").write_text("print('edited')\n")
    suite = str(here / "benchmarks" / "mine" / "suite.yaml")
    said = milabench("run", "--config", suite, "--use-current-env", "--repeat", "1")
    assert said.code == 0, said.err
    (output,) = Path(environ["MILABENCH_BASE"], "runs").glob("*/mine*.stdout")
    assert output.read_text() == "copied\n"


def test_a_module_of_an_installed_package_is_measured_as_installed(
    new: New, here: Path, milabench: Callable[..., Said]
) -> None:
    from importlib.metadata import version

    (here / "rows.txt").write_text("1\n")
    said = new("python -m yaml.parser rows.txt")
    assert said.code == 0, said.err
    assert said.out.startswith("created benchmarks/mine, of the installed module yaml.parser\n")
    folder = here / "benchmarks" / "mine"
    assert not (folder / "program").exists()
    assert (folder / "requirements.in").read_text().splitlines()[1:] == [f"PyYAML=={version('pyyaml')}"]
    assert suite_of(here)["cwd"] == str(here)


def test_a_folder_of_data_is_where_the_program_is_started(new: New, here: Path) -> None:
    (here / "data").mkdir()
    assert new("train.py").code == 0
    assert suite_of(here)["cwd"] == str(here)


def test_a_program_with_models_of_the_hub_has_those_of_its_user(new: New, here: Path, environ: dict[str, str]) -> None:
    environ["HF_HOME"] = "/models of mine"
    (here / "train.py").write_text("import timm\nfor step in range(9):\n    pass\n")
    assert new("train.py").code == 0
    assert suite_of(here)["env"] == {"HF_HOME": "/models of mine"}


def test_what_decides_how_long_a_program_trains_is_named(new: New, here: Path) -> None:
    (here / "train.py").write_text("total_steps = 9\nfor step in range(total_steps):\n    pass\n")
    length = "  length: `total_steps = 9`, line 1. With less than half a minute of steps the number is suspect (short)"
    assert length in new("train.py").out.splitlines()


def test_files_that_a_script_finds_beside_itself_are_named_as_not_copied(new: New, here: Path) -> None:
    (here / "train.py").write_text("rows = open(__file__ + '.csv')\nfor step in range(9):\n    pass\n")
    beside = "  not copied: what it finds by `__file__`, line 1. With a folder that has it: --from FOLDER --script PATH"
    assert beside in new("train.py").out.splitlines()
    shutil.rmtree(here / "benchmarks")
    said = new(".", "--script", "train.py")
    assert said.code == 0, said.err
    assert "not copied" not in said.out


def test_what_a_launcher_starts_is_one_job_on_all_devices(new: New, here: Path) -> None:
    said = new("torchrun --nproc-per-node 2 train.py --lr 1")
    assert said.code == 0, said.err
    suite = suite_of(here)
    assert (suite["plan"], suite["argv"]) == ({"method": "multigpu"}, ["--lr", "1"])


def test_a_folder_is_copied_and_its_program_chosen(new: New, here: Path) -> None:
    folder = here / "project"
    (folder / "__pycache__").mkdir(parents=True)
    (folder / "a.py").write_text("if __name__ == '__main__':\n    pass\n")
    (folder / "b.py").write_text("if __name__ == '__main__':\n    pass\n")
    (folder / "data.txt").write_text("1\n")
    refused = new("project")
    assert (refused.code, refused.err) == (
        2, "error: project: has 2 programs. Choose a program with --script or --module: a.py, b.py\n",
    )  # fmt: skip
    said = new("project", "--script", "b.py")
    assert said.code == 0, said.err
    mine = here / "benchmarks" / "mine"
    assert sorted(path.name for path in (mine / "program").iterdir()) == ["a.py", "b.py", "data.txt"]
    assert load_benchfile(mine).script == "program/b.py"


def test_the_current_folder_is_copied_without_the_new_benchmark(new: New, here: Path) -> None:
    said = new(".", "--script", "train.py")
    assert said.code == 0, said.err
    copied = [path.name for path in (here / "benchmarks" / "mine" / "program").rglob("*") if path.is_file()]
    assert sorted(copied) == ["net.py", "other.py", "train.py"]


def test_a_git_repository_is_named_by_its_commit_and_not_copied(new: New, here: Path, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "train.py").write_text(TRAIN + "if __name__ == '__main__':\n    pass\n")
    git = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "a"]):
        subprocess.run([*git, *words], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    (here / "data").mkdir()  # nothing of the current folder is the repository's
    said = new(f"file://{repository}")
    assert said.code == 0, said.err
    mine = here / "benchmarks" / "mine"
    declared = load_benchfile(mine)
    assert (declared.source, declared.script) == (Git(f"file://{repository}", rev=head), "train.py")
    assert "cwd" not in suite_of(here)
    assert not (mine / "program").exists()


def test_a_script_without_a_loop_is_timed_and_the_ways_are_shown(
    new: New, here: Path, milabench: Callable[..., Said]
) -> None:
    (here / "train.py").write_text("def fit(rows):\n    for row in rows:\n        print(row)\n\nfit([1])\n")
    said = new("train.py")
    assert said.code == 0, said.err
    assert 'probes.calls(ov, "__main__.fit", units="steps/s")' in said.out
    assert 'probes.loop(ov, 2, units="steps/s", batch_size=1)' in said.out
    assert suite_of(here)["timed"] is True
    assert argv_of(milabench, here) == ["program/train.py"]
    assert "train_step" not in said.out  # only what the script has


def test_boosting_which_usually_ends_too_soon_is_timed_and_its_probe_is_shown(new: New, here: Path) -> None:
    (here / "train.py").write_text("import xgboost as xgb\nxgb.train({}, None, 60)\n")
    said = new("train.py")
    assert said.code == 0, said.err
    assert "the boosting rounds of XGBoost usually end before half a minute" in said.out
    assert 'probes.calls(ov, "xgboost.core.Booster.update", units="rounds/s")' in said.out
    assert suite_of(here)["timed"] is True
    folder = here / "benchmarks" / "mine"
    assert "voirfile" not in (folder / "README.md").read_text() and not (folder / "voirfile.py").exists()


def test_a_script_that_opens_files_here_is_started_here(new: New, here: Path) -> None:
    (here / "rows.csv").write_text("1\n")
    (here / "train.py").write_text("rows = open('rows.csv')\nfor step in range(9):\n    pass\n")
    assert new("train.py").code == 0
    assert suite_of(here)["cwd"] == str(here)


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("none.py", "none.py: no such file in "),
        ("sleep 1", "--from 'sleep 1': is no script (.py), folder, repository or "),
        ("python -m no.such", "-m no.such: no such module in "),
    ],
)
def test_what_is_no_program_is_one_line(new: New, here: Path, what: str, text: str) -> None:
    said = new(what)
    assert said.code == 2
    assert said.err.startswith(f"error: {text}")
    assert not (here / "benchmarks").exists()


@pytest.mark.slow
def test_the_benchmark_measures_the_steps_of_its_program(new: New, here: Path, milabench: Callable[..., Said]) -> None:
    assert new("train.py").code == 0
    suite = ("--use-current-env", "--config", "benchmarks/mine/suite.yaml")
    for words in (("install", *suite), ("run", "--profile", "quick", *suite)):
        said = milabench(*words, cwd=here)
        assert said.code == 0, said.err
    (bench,) = json.loads(milabench("report", "--json").out)["benchmarks"]
    assert (bench["outcome"], bench["units"]) == ("passed", "steps/s")
