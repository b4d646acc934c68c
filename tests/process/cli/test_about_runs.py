"""The verbs that tell of runs, end them and clean up after them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from milabench.execute.agent import orphans
from milabench.facts.probe import agent_command
from tests.commands import ROOT, Said
from tests.processes import CEILING_S, started, until

from .test_resume import carrying, start
from .written import once, runs, suite


@contextlib.contextmanager
def going(environ: dict[str, str], folder: Path, line: str = "sleep 3600") -> Iterator[subprocess.Popen[bytes]]:
    """A run that is in the middle of its step `long`."""
    here = suite(folder, long=f"echo begun; touch {folder}/up; {line}")
    process = start(environ, "run", *here, "--display", "none")
    try:
        until(lambda: (folder / "up").exists() or process.poll() is not None, "the step")
        assert process.poll() is None
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        process.wait(CEILING_S)


def test_runs_are_listed_with_their_verdicts(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    assert "no runs" in milabench("runs").err
    assert milabench("run", *suite(tmp_path, a="echo fine"), "--run-name", "good").code == 0
    assert milabench("run", *suite(tmp_path, b=once(tmp_path, "seen")), "--run-name", "bad").code == 1
    with going(environ, tmp_path) as process:
        process.kill()
    listed = json.loads(milabench("runs", "--json").out)["runs"]
    assert [(each["verdict"], each["counts"], each["benchmarks"]) for each in listed] == [
        ("passed", {"passed": 1}, ["a"]),
        ("failed", {"failed": 1}, ["b"]),
        ("cut off", {"missing": 1}, ["long"]),
    ]
    text = milabench("runs").out
    assert [line.split()[2] for line in text.splitlines()[2:]] == ["passed", "failed", "incomplete"]


def test_status_says_who_runs_what_and_afterwards_how_it_ended(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    with going(environ, tmp_path) as process:
        told = json.loads(milabench("status", "--json").out)
        assert (told["verdict"], told["planned"]) == ("running", 1)
        assert told["orchestrator"]["pid"] == process.pid
        assert [each["step"] for each in told["running"]] == ["long.0"]
        assert f"(pid {process.pid})" in milabench("status").out
    text = milabench("status").out
    assert "interrupted" in text
    assert "milabench resume" in text


def test_cancel_ends_the_run_that_is_going_on_and_waits_for_it(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    assert milabench("cancel").code == 3
    with going(environ, tmp_path) as process:
        assert milabench("cancel").code == 0
        assert process.wait(CEILING_S) == 130
    (run,) = runs(environ["MILABENCH_BASE"])
    said = milabench("cancel", run.name)
    assert (said.code, "is not active (interrupted)" in said.err) == (0, True)


def test_cancel_now_does_not_wait_for_those_that_do_not_heed(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    with going(environ, tmp_path, line="trap '' TERM; while :; do sleep 0.1; done") as process:
        assert milabench("cancel", "--now").code == 0
        assert process.wait(CEILING_S) == 130


def test_cancel_of_a_run_on_another_host_says_so(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    with going(environ, tmp_path):
        (run,) = runs(environ["MILABENCH_BASE"])
        lock = run / "orchestrator.lock"
        lock.write_text(json.dumps({**json.loads(lock.read_text()), "host": "elsewhere"}))
        said = milabench("cancel", str(run))
        assert said.code == 5
        assert "on another host" in said.err
        assert "elsewhere" in said.err


def test_a_pid_that_is_somebody_elses_by_now_is_not_signalled(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    with going(environ, tmp_path) as process:
        process.kill()
    (run,) = runs(environ["MILABENCH_BASE"])
    lock = run / "orchestrator.lock"
    with started(["sleep", "3600"]) as other:
        lock.write_text(json.dumps({**json.loads(lock.read_text()), "pid": other.pid}))
        said = milabench("cancel", str(run))
        assert (said.code, "is not active (incomplete)" in said.err) == (0, True)
        assert other.poll() is None
        other.kill()


def test_a_pid_that_is_somebody_elses_by_now_stands_in_nobodys_way(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    with going(environ, tmp_path, line=f"while ! test -e {tmp_path}/go; do sleep 0.05; done") as process:
        process.kill()
    (run,) = runs(environ["MILABENCH_BASE"])
    with started(["sleep", "3600"]) as other:
        for name in ("orchestrator.lock", "journal.jsonl"):
            text = (run / name).read_text()
            assert f'"pid": {process.pid},' in text.replace('"pid":', '"pid": ').replace("  ", " ")
            (run / name).write_text(re.sub(rf'("pid": ?){process.pid}\b', rf"\g<1>{other.pid}", text))
        assert "incomplete" in milabench("status").out
        assert "incomplete" in milabench("runs").out
        assert milabench("gc", "processes", "--yes").code == 0
        (tmp_path / "go").touch()
        said = milabench("resume")
        assert said.code == 0, said.err
        assert other.poll() is None
        other.kill()


def test_a_leftover_of_an_agent_with_the_same_pid_is_replaced(tmp_path: Path) -> None:
    link = tmp_path / "link"
    with started(agent_command("files"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as agent:
        Path(f"{link}.{agent.pid}").symlink_to("elsewhere")
        answer, _ = agent.communicate(json.dumps({"do": "link", "path": str(link), "target": "here"}) + "\n")
    assert json.loads(answer)["ok"], answer
    assert [(path.name, str(path.readlink())) for path in tmp_path.iterdir()] == [("link", "here")]


def test_a_control_group_of_an_agent_with_the_same_pid_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orphans, "BASES", (str(tmp_path),))
    monkeypatch.setattr(orphans, "cgroups_of", lambda _: [("", "")])
    (tmp_path / "cgroup.procs").touch()
    with started(["sleep", "3600"]) as other:
        for pid in (os.getpid(), other.pid):
            (tmp_path / f"milabench-{pid}").mkdir()
        assert orphans.Cgroup.make() is None  # the kernel makes the files of a control group; this is none
        assert sorted(path.name for path in tmp_path.iterdir()) == ["cgroup.procs", f"milabench-{other.pid}"]
        other.kill()


def test_logs_show_what_a_step_said_also_of_an_earlier_attempt(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    here = suite(tmp_path, shaky=once(tmp_path, "seen"), other="echo fine")
    assert milabench("run", *here, "--max-retries", "1").code == 0
    assert milabench("logs", "shaky").out == "here\n"
    assert milabench("logs", "shaky.0", "--attempt", "1").out == "not yet\n"
    said = milabench("logs", "nobody")
    assert said.code == 3
    assert "unknown step 'nobody'. Known:" in said.err


def test_logs_are_followed_until_the_step_ends(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    line = f"while ! test -e {tmp_path}/go; do sleep 0.05; done; echo last"
    with going(environ, tmp_path, line=line):
        following = subprocess.Popen(
            [sys.executable, "-m", "milabench", "logs", "-f", "long"],
            env=environ,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert following.stdout is not None
        assert following.stdout.readline() == "begun\n"
        (tmp_path / "go").touch()
        assert following.communicate(timeout=CEILING_S)[0] == "last\n"
        assert following.returncode == 0


def test_following_a_run_whose_orchestrator_died_ends(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    with going(environ, tmp_path) as process:
        (run,) = runs(environ["MILABENCH_BASE"])
        until((run / "long.0.stdout").exists, "its first words on disk")
        process.kill()
        process.wait(CEILING_S)
        assert milabench("logs", "-f", "long").out == "begun\n"


def test_a_replay_shows_what_the_run_showed(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    here = suite(tmp_path, a="echo hello", b="exit 3")
    shown = milabench("run", *here, "--display", "plain").err
    again = milabench("replay", "--speed", "0", "--display", "plain").err

    def told(text: str) -> list[str]:
        """The beginnings and endings of steps, without how long they took."""
        lines = [line.partition("] ")[2] for line in text.splitlines()]
        return [line.rpartition(",")[0] if line.endswith(" s") else line for line in lines if line[:1].isdigit()]

    assert told(again) == told(shown)
    assert again.startswith("[    0.0s] run: ")
    assert "a.0| hello" in milabench("replay", "--speed", "0", "-v").err


def test_cleanup_ends_what_a_dead_run_left_and_only_that(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    assert milabench("gc", "processes").code == 0
    bystander = subprocess.Popen(["sleep", "3600"], env={**environ, "MILABENCH_RUN_MARKER": "somebody-elses"})
    try:
        with going(environ, tmp_path) as process:
            said = milabench("gc", "processes")
            assert "no run below this base left a process" in said.err  # one that lives is no leftover
            (agent,) = [
                pid for pid in carrying(environ) if b"execute/agent/" in Path(f"/proc/{pid}/cmdline").read_bytes()
            ]
            os.kill(agent, signal.SIGSTOP)
            process.kill()
            process.wait(CEILING_S)
            said = milabench("gc", "processes")
            assert said.code == 1
            assert "--yes kills them" in said.err
            assert f"{agent}  " in said.out
            said = milabench("gc", "processes", "--yes")
            assert (said.code, "processes killed" in said.err) == (0, True)
        assert carrying(environ) == [bystander.pid]
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait(CEILING_S)


@pytest.mark.parametrize("verb", ["status", "logs a", "replay", "cancel", "resume"])
def test_a_folder_that_is_no_run_is_one_line(milabench: Callable[..., Said], tmp_path: Path, verb: str) -> None:
    name, *words = verb.split()
    option = ["--run"] if words else []
    said = milabench(name, *words, *option, str(tmp_path))
    assert (said.code, "is no run directory" in said.err) == (6, True)
