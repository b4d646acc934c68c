"""Another batch scheduler than Slurm: a package of its own folder, and one line of seams.py (docs/how-to/add-a-scheduler.md)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.commands import ROOT
from tests.process.test_extending import Copy, copy  # noqa: F401
from tests.processes import until

SUITE = """
waits:
  install_group: w
  plan: {{method: njobs, n: 1}}
  command: [sh, -c, 'echo begun >> {folder}/begun; while [ ! -e {folder}/go ]; do sleep 0.1; done; echo "speed: 5"']
  metrics: {{speed: {{pattern: "speed: (.*)"}}}}
"""


@pytest.fixture
def queued(copy: Copy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Copy:  # noqa: F811
    """The copy with a second scheduler, whose queue is a folder."""
    shutil.copytree(ROOT / "tests" / "schedulers" / "queue", copy.package / "queue")
    copy.insert("seams.py", '    "slurm": "slurm.scheduler:SLURM",', '    "queue": "queue.jobs:QUEUE",')
    assert copy.touched == {"seams.py"}  # besides the package of the scheduler
    (tmp_path / "jobs").mkdir()
    monkeypatch.setenv("QUEUE_FOLDER", str(tmp_path / "jobs"))
    return copy


def submit(queued: Copy, *argv: str) -> Path:
    suite = queued.suite(SUITE.format(folder=queued.root))
    queued.milabench(
        "run", "--submit", "--engine", "queue", "--use-current-env", "--config", suite, "--profile", "quick", *argv
    )
    [path] = (queued.root / "base" / "runs").iterdir()
    return path


def verdict(queued: Copy, run: Path) -> str:
    [bench] = json.loads(queued.milabench("report", str(run), "--json", check=False))["benchmarks"]
    return str(bench["outcome"])


def test_a_suite_runs_by_its_jobs(queued: Copy) -> None:
    (queued.root / "go").touch()
    run = submit(queued)
    assert json.loads((run / "manifest.json").read_text())["submission"]["scheduler"] == "queue"
    assert verdict(queued, run) == "passed"
    [job] = Path(queued.root, "jobs").iterdir()
    assert (job / "code").read_text() == "0\n"


def test_a_run_is_cancelled_and_resumed(queued: Copy) -> None:
    run = submit(queued, "--detach")
    until((queued.root / "begun").exists, "the job begins")
    queued.milabench("cancel", run.name)
    assert verdict(queued, run) != "passed"
    (queued.root / "go").touch()
    queued.milabench("resume", run.name)
    assert verdict(queued, run) == "passed"
    assert len(list(Path(queued.root, "jobs").iterdir())) == 2


def test_nodes_without_a_job_are_refused_in_one_line(queued: Copy) -> None:
    suite = queued.suite(SUITE.format(folder=queued.root))
    ended = queued.python(
        "-m", "milabench", "run", "--engine", "queue", "--use-current-env", "--config", suite, check=False
    )
    assert ended.returncode == 2
    assert "error: --engine queue: it gives nodes to jobs alone. Add --submit" in ended.stderr
