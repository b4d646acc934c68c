"""A run by jobs of a real cluster: made, followed, left, killed, resumed, cancelled; no step is lost, none is done twice."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from milabench.events.attempts import attempts
from milabench.events.rundir import Run
from milabench.events.runs_folder import latest_run
from tests.commands import ROOT, Said, milabench_in
from tests.processes import end_of, started, until
from tests.slurm.cluster import Cluster

# Each step says that it ran, and where.
SUITE = """\
_defaults: {{max_duration: 120, shell: true}}
quick: {{inherits: _defaults, plan: {{method: njobs, n: 1}}, command: ["echo quick >> {done}; hostname"]}}
other: {{inherits: _defaults, plan: {{method: njobs, n: 1}}, command: ["echo other >> {done}; echo $SLURM_JOB_ID"]}}
gated: {{inherits: _defaults, plan: {{method: njobs, n: 1}},
        command: ["echo gated >> {done}; until test -e {gate}; do sleep 0.05; done; echo through"]}}
"""


class Login:
    """A user at a login node: a suite, a base that the nodes share, and commands."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self.folder, self.environ = folder, environ
        self.done, self.gate, self.base = folder / "done", folder / "gate", folder / "base"
        self.suite = folder / "suite.yaml"
        self.suite.write_text(SUITE.format(done=self.done, gate=self.gate))
        self.verb = milabench_in(environ)
        self.running = contextlib.ExitStack()

    def __call__(self, *argv: str, **more: str) -> Said:
        return self.verb(*argv, "--base", str(self.base), **more)

    def submit(self, *argv: str, select: str = "quick,other", repeat: int = 1, **more: str) -> Said:
        return self(*self.words(*argv, select=select, repeat=repeat), **more)

    def words(self, *argv: str, select: str = "quick,other", repeat: int = 1) -> tuple[str, ...]:
        suite = ("--config", str(self.suite), "--select", select, "--repeat", str(repeat))
        return ("run", *suite, "--engine", "slurm", "--submit", *argv)

    def begun(self, *argv: str, **more: str) -> subprocess.Popen[bytes]:
        """A command that goes on; what it says goes to the file `log`."""
        with (self.folder / "log").open("ab") as log:
            words = (sys.executable, "-m", "milabench", *argv, "--base", str(self.base))
            environ = {**self.environ, **more}
            begun = started(words, env=environ, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            return self.running.enter_context(begun)

    @property
    def run(self) -> Run:
        return latest_run(self.base)

    @property
    def counts(self) -> dict[str, int]:
        """How often each benchmark was really started."""
        lines = self.done.read_text().split() if self.done.exists() else []
        return {bench: lines.count(bench) for bench in lines}

    def outcomes(self) -> dict[str, list[tuple[str | None, str]]]:
        tried = attempts(self.run.journal)
        return {step: [(each.outcome, each.why) for each in tried.get(step, ())] for step in self.run.files}

    def job(self) -> str:
        """The last job of the only share."""
        (share,) = self.run.shares.values()
        assert share.job is not None
        return share.job.id


@pytest.fixture
def login(slurm: Cluster, shared: Path, monkeypatch: pytest.MonkeyPatch) -> Login:
    monkeypatch.setenv("MILABENCH_LOCK_DIR", str(shared / "locks"))
    monkeypatch.setenv("HOME", str(shared))
    return Login(shared, dict(os.environ))


@pytest.fixture
def gated(login: Login) -> Iterator[Login]:
    """A login whose gate is open in the end, so that nothing waits behind it."""
    with login.running:
        try:
            yield login
        finally:
            login.gate.touch()


def no_jobs(slurm: Cluster) -> Callable[[], bool]:
    return lambda: not slurm.run("squeue", "-h")


def test_a_run_is_made_by_a_job_for_each_benchmark_and_reported_as_any_other(login: Login, slurm: Cluster) -> None:
    said = login.submit(repeat=2)
    assert said.code == 0, said.err
    run = login.run
    assert login.counts == {"quick": 2, "other": 2}
    assert all(tried == [("passed", "")] for tried in login.outcomes().values())
    assert sorted(len(share.steps) for share in run.shares.values()) == [2, 2]
    jobs = {share.job.id: share.job.nodes for share in run.shares.values() if share.job is not None}
    assert len(jobs) == 2 and all(nodes and nodes[0] in slurm.nodes for nodes in jobs.values())
    assert run.is_ended and (run.path / "summary.json").exists()
    nodes = {name for names in jobs.values() for name in names}
    assert {step["node"] for step in run.manifest["plan"]["steps"]} == nodes
    assert f"{run.name}: passed" in login("status").out
    # What a job got is its own business: its script tells no secret and can be read.
    script = (run.path / "jobs" / "s1.sh").read_text()
    assert "--no-requeue" in script and f"--run {run.path}" in script


def test_arrays_and_a_limit_of_jobs(login: Login, slurm: Cluster) -> None:
    said = login.submit("--array", "--max-jobs", "2", repeat=3)
    assert said.code == 0, said.err
    assert login.counts == {"quick": 3, "other": 3}
    jobs = [share.job.id for share in login.run.shares.values() if share.job is not None]
    assert len(jobs) == 6 and len({job.partition("_")[0] for job in jobs}) == 2
    (script,) = {line for line in (login.run.path / "jobs" / "s1.sh").read_text().splitlines() if line.startswith("0)")}
    assert "s1" in script


def test_distributed_a_benchmark_runs_once_on_every_node_that_takes_jobs(login: Login, slurm: Cluster) -> None:
    down = slurm.nodes[-1]
    slurm.run("scontrol", "update", f"NodeName={down}", "State=DRAIN", "Reason=test")
    said = login.submit("--distribute", "--slurm-arg", f"exclude={slurm.nodes[0]}", select="quick")
    assert said.code == 0, said.err
    assert f"{down}: is left out: Slurm says that it is drained" in said.err
    nodes = [step["node"] for step in login.run.manifest["plan"]["steps"]]
    assert sorted(nodes) == sorted(slurm.nodes[1:-1])
    assert login.counts == {"quick": len(nodes)}


def test_a_run_that_nobody_follows_goes_on_and_is_harvested_when_somebody_asks(gated: Login, slurm: Cluster) -> None:
    said = gated.submit("--detach", select="gated")
    assert said.code == 0, said.err
    job = gated.job()
    until(lambda: gated.counts == {"gated": 1}, "the step runs")
    status = gated("status").out
    assert job in status and "running" in status
    with started(
        [sys.executable, "-m", "milabench", "logs", "-f", "gated", "--base", str(gated.base)],
        env=gated.environ,
        cwd=ROOT,
        stdout=subprocess.PIPE,
    ) as logs:
        gated.gate.touch()
        assert end_of(logs) == 0
        assert logs.stdout is not None and logs.stdout.read() == b"through\n"
    until(no_jobs(slurm), "the job has ended")
    # Nobody wrote down how it ended, and the run is whole from its files alone.
    assert gated.run.verdict == "passed"
    assert json.loads(gated("report", "--json").out)["benchmarks"]
    assert gated("resume").code == 0
    assert gated.counts == {"gated": 1}


@pytest.mark.parametrize("verb", ["status", "report", "runs", "export"])
def test_how_a_job_ended_that_nobody_followed_is_written_down_by_who_reads_the_run(
    gated: Login, slurm: Cluster, verb: str
) -> None:
    assert gated.submit("--detach", select="gated").code == 0
    until(lambda: gated.counts == {"gated": 1}, "the step runs")
    job = gated.job()
    node = slurm.run("squeue", "-h", "-j", job, "-o", "%N").strip()
    slurm.run("scancel", job)
    until(no_jobs(slurm), "the job has ended")
    # Elsewhere, where there is no Slurm, the run is read as it is.
    before = gated.run.journal
    elsewhere = gated("status", PATH=str(gated.folder))
    assert elsewhere.code == 0 and not elsewhere.err and gated.run.journal == before
    said = gated(verb, *(("--format", "prometheus") if verb == "export" else ()))
    assert said.code == 0, said.err
    (tried,) = [tried for (tried,) in attempts(gated.run.journal).values()]
    assert (tried.outcome, tried.why) == ("failed", "job-cancelled"), tried
    assert f"job {job} on {node}: CANCELLED" in tried.detail
    if verb in ("status", "report"):
        assert "job-cancelled" in said.out and job in said.out
    assert gated.run.is_ended and gated.run.verdict == "failed"
    # Written down once.
    before = gated.run.journal
    assert gated("status").code == 0
    assert gated.run.journal == before


def test_ctrl_c_leaves_the_jobs_running_and_resume_follows_them(gated: Login, slurm: Cluster) -> None:
    process = gated.begun(*gated.words(select="gated"))
    until(lambda: gated.counts == {"gated": 1}, "the step runs")
    process.send_signal(signal.SIGINT)
    assert end_of(process) == 130
    log = (gated.folder / "log").read_text()
    assert "`milabench status` shows them" in log
    assert slurm.run("squeue", "-h", "-o", "%T").split() == ["RUNNING"]
    gated.gate.touch()
    assert gated("resume").code == 0
    assert gated.counts == {"gated": 1}


def test_a_killed_orchestrator_loses_nothing(gated: Login) -> None:
    process = gated.begun(*gated.words(select="gated,quick"))
    until(lambda: gated.counts == {"gated": 1, "quick": 1}, "both run")
    process.kill()
    end_of(process)
    others = [gated.begun("resume") for _ in range(3)]
    until(lambda: "[" in (gated.folder / "log").read_text(), "one of them follows")
    gated.gate.touch()
    assert {end_of(other) for other in others} <= {0, 5}
    assert gated("resume").code == 0
    assert gated.counts == {"gated": 1, "quick": 1}
    assert set(map(str, gated.outcomes().values())) == {"[('passed', '')]"}


def test_a_job_that_is_cancelled_says_so_and_resume_submits_it_again(gated: Login, slurm: Cluster) -> None:
    process = gated.begun(*gated.words(select="gated,quick"))
    until(lambda: gated.counts == {"gated": 1, "quick": 1}, "both run")
    (share,) = [share for share in gated.run.shares.values() if any("gated" in step for step in share.steps)]
    assert share.job is not None
    node = slurm.run("squeue", "-h", "-j", share.job.id, "-o", "%N").strip()
    slurm.run("scancel", share.job.id)
    assert end_of(process) == 1
    (step,) = share.steps
    (tried,) = attempts(gated.run.journal)[step]
    assert (tried.outcome, tried.why) == ("failed", "job-cancelled"), tried
    assert f"job {share.job.id} on {node}: CANCELLED" in tried.detail
    report = gated("report").out
    assert "job-cancelled" in report and share.job.id in report
    gated.gate.touch()
    said = gated("resume")
    assert said.code == 0, said.err
    assert gated.counts == {"gated": 2, "quick": 1}
    assert gated.run.shares[share.name].jobs[-1].id != share.job.id


def test_a_squeue_that_says_that_jobs_have_ended_does_not_end_those_that_go_on(gated: Login, slurm: Cluster) -> None:
    lying = gated.folder / "bin" / "squeue"
    lying.parent.mkdir()
    asked = gated.folder / "asked"
    # It lies from the step's start on: before, the job's share has shown no heartbeat, and its end is believed.
    lie = f"[ -e {gated.done} ] && word=COMPLETED || word=RUNNING\necho asked >> {asked}\n"
    lying.write_text(f'#!/bin/sh\n{lie}{shutil.which("squeue")} "$@" | sed "s/RUNNING/$word/"\n')
    lying.chmod(0o755)
    process = gated.begun(*gated.words(select="gated"), PATH=f"{lying.parent}:{os.environ['PATH']}")
    until(lambda: gated.counts == {"gated": 1}, "the step runs")
    before = asked.read_text().count("asked")
    until(lambda: asked.read_text().count("asked") >= before + 2, "it was asked for twice more")
    assert process.poll() is None
    gated.gate.touch()
    assert end_of(process) == 0, (gated.folder / "log").read_text()
    assert set(map(str, gated.outcomes().values())) == {"[('passed', '')]"}


def test_cancel_ends_the_jobs_from_anywhere(gated: Login, slurm: Cluster) -> None:
    assert gated.submit("--detach", select="gated").code == 0
    until(lambda: gated.counts == {"gated": 1}, "the step runs")
    said = gated("cancel")
    assert said.code == 0, said.err
    assert slurm.run("squeue", "-h") == ""
    assert gated.run.is_ended
    # Where somebody follows, they record the end.
    process = gated.begun("resume")
    until(lambda: gated.counts == {"gated": 2}, "the step runs again")
    assert gated("cancel").code == 0
    assert end_of(process) == 1
    assert slurm.run("squeue", "-h") == ""


def test_an_option_that_is_none_is_one_line_and_no_run(login: Login) -> None:
    said = login.submit("--slurm-arg", "extra=nonsense")
    assert said.code == 2
    assert (
        said.err.splitlines()[-1]
        == "error: system.slurm.extra: expected an option such as --switches=1, got 'nonsense'"
    )
    assert not list((login.base / "runs").iterdir())


@pytest.mark.parametrize("wrong", ["partition=no-such", "account=%none%"])
def test_a_refused_submission_is_a_line_with_the_reason_and_no_run(login: Login, slurm: Cluster, wrong: str) -> None:
    if wrong.startswith("account"):
        wrong = "nodes=99"
    said = login.submit("--slurm-arg", wrong)
    assert said.code == 2
    assert "Slurm refused it" in said.err
    assert not list((login.base / "runs").iterdir())
    assert slurm.run("squeue", "-h") == ""


def wrapped(login: Login, *lines: str) -> str:
    """A PATH on which sbatch is a script, with `real` as the real one and `number` as the number of its call."""
    real = subprocess.run(["which", "sbatch"], capture_output=True, text=True, check=True).stdout.strip()
    folder = login.folder / "bin"
    folder.mkdir()
    count = login.folder / "count"
    head = ("#!/bin/sh", f"printf x >> {count}", f"number=$(($(wc -c < {count})))", f"real={real}")
    (folder / "sbatch").write_text("\n".join([*head, *lines, ""]))
    (folder / "sbatch").chmod(0o755)
    return f"{folder}:{login.environ['PATH']}"


def test_a_job_that_is_refused_takes_those_before_it_with_it(gated: Login, slurm: Cluster) -> None:
    refuse = 'test $number = 2 && echo "sbatch: error: Batch job submission failed: Job violates policy" >&2 && exit 1'
    path = wrapped(gated, refuse, 'exec $real "$@"')
    said = gated.submit("--max-jobs", "1", select="gated,quick", PATH=path)
    assert said.code == 2
    assert "Job violates policy" in said.err
    assert "cancelled the jobs submitted before: job " in said.err
    until(no_jobs(slurm), "nothing is left")
    gated.gate.touch()
    # What is known of them stays, and can be gone on with.
    assert gated("resume").code == 0
    assert set(map(str, gated.outcomes().values())) <= {
        "[('passed', '')]",
        "[('failed', 'job-cancelled'), ('passed', '')]",
    }


def test_the_sides_of_a_comparison_and_the_ranks_of_a_job_are_measured_in_one_job(login: Login, slurm: Cluster) -> None:
    other = login.folder / "other.yaml"
    other.write_text(login.suite.read_text())
    words = ("--ab", str(login.suite), str(other), "--select", "quick", "--repeat", "2")
    said = login("run", *words, "--engine", "slurm", "--submit")
    assert said.code == 0, said.err
    (share,) = login.run.shares.values()
    assert len(share.steps) == 4
    assert len({step["node"] for step in login.run.manifest["plan"]["steps"]}) == 1
    spanning = login.folder / "spanning.yaml"
    spanning.write_text(
        "spans: {plan: {method: multinode}, num_machines: 2, max_duration: 60, shell: true, command: [hostname]}\n"
    )
    words = ("--config", str(spanning), "--repeat", "1", "--engine", "slurm", "--submit", "--slurm-arg", "nodes=3")
    said = login("run", *words)
    assert said.code == 0, said.err
    (share,) = login.run.shares.values()
    assert share.job is not None
    nodes = [step["node"] for step in login.run.manifest["plan"]["steps"]]
    assert len(nodes) == 2
    assert set(nodes) == set(share.job.nodes) <= set(slurm.nodes)


KILLED_AT = [
    pytest.param(number, when, marks=() if number == 2 else [pytest.mark.e2e, pytest.mark.long])
    for number in (1, 2, 3)
    for when in ("before", "after")
]


@pytest.mark.parametrize(("number", "when"), KILLED_AT)
def test_whenever_a_submission_is_killed_no_step_is_lost_and_none_is_done_twice(
    gated: Login, number: int, when: str
) -> None:
    kill = f"test $number = {number} && kill -9 $PPID && exit 1"
    submit = 'id=$($real "$@")'
    path = wrapped(gated, *((kill, submit) if when == "before" else (submit, kill)), "echo $id")
    gated.gate.touch()
    process = gated.begun(*gated.words(select="gated,quick,other"), PATH=path)
    assert end_of(process) == -signal.SIGKILL
    said = gated("resume")
    assert said.code == 0, said.err
    assert gated.counts == {"gated": 1, "quick": 1, "other": 1}
    assert set(map(str, gated.outcomes().values())) == {"[('passed', '')]"}
