"""Jobs of several steps as a user runs them: servers with their clients, and ranks, which do their part or do not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from milabench.report.labels import format_number

ROOT = Path(__file__).resolve().parents[3]
WEB = ("--use-current-env", "--config", str(ROOT / "tests" / "suite" / "web.yaml"))
RANKS = ("--use-current-env", "--config", str(ROOT / "tests" / "suite" / "ranks.yaml"))
Milabench = Callable[..., Any]


def outcomes(run: Path) -> dict[str, Mapping[str, Any]]:
    """How each step ended."""
    entries = map(json.loads, (run / "journal.jsonl").read_text().splitlines())
    return {entry["step"]: entry for entry in entries if entry.get("state") == "ended"}


def only_run(environ: Mapping[str, str]) -> Path:
    (run,) = Path(environ["MILABENCH_BASE"], "runs").iterdir()
    return run


@pytest.mark.parametrize("name", ["by-port", "by-word"])
def test_a_client_is_measured_once_its_server_is_ready_which_then_ends_without_having_failed(
    milabench: Milabench, environ: Mapping[str, str], name: str
) -> None:
    said = milabench("run", *WEB, "--select", name)
    assert said.code == 0, said.err
    run = only_run(environ)
    assert {step: one["outcome"] for step, one in outcomes(run).items()} == {
        f"{name}.server": "passed",
        f"{name}.client": "passed",
    }
    assert (run / f"{name}.server.stdout").read_text() == "now listening\n"
    (bench,) = json.loads(milabench("report", "--json").out)["benchmarks"]
    assert (bench["outcome"], bench["counts"]["planned"], bench["units"]) == ("passed", 2, "requests/s")
    assert bench["perf"] > 0
    # Server and client are one launch, which has one number.
    line = f"{name}.server and 1 more: {format_number(bench['perf'])} requests/s\n"
    for shown in (said.err, milabench("replay", "--speed", "0").err):
        assert shown.count(line) == shown.count(" requests/s\n") == 1


def test_a_server_that_is_never_ready_fails_with_where_to_read_why_and_its_client_is_not_started(
    milabench: Milabench, environ: Mapping[str, str]
) -> None:
    assert milabench("run", *WEB, "--select", "never").code == 1
    run = only_run(environ)
    ended = outcomes(run)
    server, client = ended["never.server"], ended["never.client"]
    assert (server["outcome"], server["why"]) == ("failed", "timeout")
    assert server["detail"].startswith("not ready within 1 s: nothing answers on port ")
    assert server["detail"].endswith(f"its output is in {run}/never.server.*")
    assert (run / "never.server.stderr").read_text() == "cannot find the model\n"
    assert client["outcome"] == "skipped"
    assert "never.server failed" in client["detail"]


def test_a_server_that_goes_away_fails_and_ends_its_client(milabench: Milabench, environ: Mapping[str, str]) -> None:
    assert milabench("run", *WEB, "--select", "dies").code == 1
    ended = outcomes(only_run(environ))
    assert (ended["dies.server"]["outcome"], ended["dies.server"]["why"]) == ("failed", "exit")
    assert ended["dies.server"]["detail"].startswith("it ended before its client")
    assert ended["dies.client"]["outcome"] in ("cancelled", "failed")


def said_by(run: Path, *steps: str) -> list[list[str]]:
    """The words of each line that the steps printed."""
    return [line.split() for step in steps for line in (run / f"{step}.stdout").read_text().splitlines()]


def test_ranks_are_told_who_they_are_and_meet_at_one_port(milabench: Milabench, environ: Mapping[str, str]) -> None:
    said = milabench("run", *RANKS, "--select", "ranks")
    assert said.code == 0, said.err
    first, second = said_by(only_run(environ), "ranks.D0", "ranks.D1")
    assert first[:-1] == ["0", "of", "2,", "here", "0;"]
    assert second[:-1] == ["1", "of", "2,", "here", "1;"]
    assert first[-1] == second[-1]
    assert first[-1].rpartition(":")[2].isdecimal()


def test_a_rank_that_fails_ends_those_that_wait_for_it(milabench: Milabench, environ: Mapping[str, str]) -> None:
    assert milabench("run", *RANKS, "--select", "broken").code == 1
    ended = outcomes(only_run(environ))
    assert {step: one["outcome"] for step, one in ended.items()} == {"broken.D0": "failed", "broken.D1": "cancelled"}


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="not installed: apt-get install openmpi-bin")
def test_the_ranks_of_mpirun_report_and_know_who_they_are(milabench: Milabench, environ: Mapping[str, str]) -> None:
    said = milabench("run", *RANKS, "--select", "mpi")
    assert said.code == 0, said.err
    ranks = sorted(said_by(only_run(environ), "mpi"))
    assert [words[:4] for words in ranks] == [["0", "2", "0", "127.0.0.1"], ["1", "2", "1", "127.0.0.1"]]
    assert len({words[4] for words in ranks}) == 1
