"""`make demo-cluster`: what it shows, and that nothing of it is left however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import milabench_in
from tests.processes import started
from tests.ssh.hosts import why_no_namespaces

pytestmark = [pytest.mark.e2e, pytest.mark.long]

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "tests" / "ssh" / "demo_cluster.py"


def networks() -> set[str]:
    """The network namespaces and bridges of this machine."""
    spaces = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout.splitlines()
    links = subprocess.run(["ip", "-br", "link"], capture_output=True, text=True, check=True).stdout.splitlines()
    return {line.split()[0] for line in [*spaces, *links]}


@pytest.fixture
def nothing_stays() -> Iterator[None]:
    """What there was before is what there is afterwards."""
    if (why := why_no_namespaces()) is not None:
        pytest.skip(why)
    before = networks()
    yield
    assert networks() <= before


def words(tmp_path: Path, select: str) -> list[str]:
    suite = ROOT / "tests" / "suite" / "odd.yaml"
    given = ["--base", str(tmp_path / "base"), "--config", str(suite), "--select", select, "--machines", "2"]
    return [sys.executable, str(DEMO), *given]


def environ(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "MILABENCH_USE_CURRENT_ENV": "1", "MILABENCH_LOCK_DIR": str(tmp_path / "locks")}


@pytest.mark.usefixtures("nothing_stays")
def test_the_suite_is_run_over_the_machines_and_reported_by_node(tmp_path: Path) -> None:
    shown = subprocess.run(words(tmp_path, "good"), env=environ(tmp_path), capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stderr
    verbs = [line.removeprefix("== milabench ") for line in shown.stdout.splitlines() if line.startswith("== mila")]
    assert verbs == ["nodes check", "install", "prepare", "run", "report"]
    full = milabench_in({**environ(tmp_path), "MILABENCH_BASE": str(tmp_path / "base")})("report", "--full")
    by_node = full.out.partition("\nby node\n")[2].splitlines()
    assert [word.strip() for word in by_node[0].split("|")][:3] == ["bench", "node", "n"]


@pytest.mark.usefixtures("nothing_stays")
def test_what_fails_is_the_exit_code_and_is_reported(tmp_path: Path) -> None:
    shown = subprocess.run(words(tmp_path, "crash"), env=environ(tmp_path), capture_output=True, text=True, check=False)
    assert shown.returncode == 1
    assert "the model fell over" in shown.stdout
    assert "== the machines are taken down" in shown.stdout


@pytest.mark.usefixtures("nothing_stays")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_in_order_and_takes_the_machines_down(tmp_path: Path, number: signal.Signals) -> None:
    with started(
        words(tmp_path, "long"),
        env=environ(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as demo:
        assert demo.stdout is not None
        said = ""
        while "first observation" not in said:
            said += (line := demo.stdout.readline())
            assert line, said
        demo.send_signal(number)
        said += demo.stdout.read()
    assert demo.returncode == 130, said
    assert "cancelled" in said
    assert "== the machines are taken down" in said


def test_without_what_it_takes_it_says_what_is_missing(tmp_path: Path) -> None:
    shown = subprocess.run(
        words(tmp_path, "good"),
        env={**environ(tmp_path), "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.returncode == 2
    (line,) = shown.stderr.splitlines()
    assert line.startswith("error: no cluster can be shown here: ")
