"""SlurmScheduler and answers that a real Slurm gives seldom: late, wrong, unreadable, or none."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from milabench.config.schema import SlurmConfig
from milabench.errors import Unreachable, UsageError
from milabench.schedulers.scheduler import JobHandle, JobRequest, JobState, JobText, job_name
from milabench.slurm.answers import SQUEUE_FORMAT, read_squeue
from milabench.slurm.scheduler import SlurmScheduler
from milabench.slurm.script import batch_script
from milabench.slurm.srun import state_of_job
from tests.processes import is_gone, until
from tests.slurm.fake_commands import FakeSlurm

SHORT_S = 1.0  # what a hanging command is given; the others answer long before
DOWN = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"
TIMED_OUT = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n"


@pytest.fixture
def fake(tmp_path: Path) -> FakeSlurm:
    return FakeSlurm(tmp_path)


@pytest.fixture
def scheduler(fake: FakeSlurm) -> SlurmScheduler:
    return SlurmScheduler(fake.environ)


def request(folder: Path, share: str = "s1", **others: object) -> JobRequest:
    tasks = tuple(f"task {number}" for number in range(int(str(others.get("tasks", 0)))))
    job = JobText(marker="m1", share=share, command=("true",), output=folder / "out", tasks=tasks)
    script = batch_script(SlurmConfig(partition="gpu", exclusive=False), job)
    return JobRequest(name=job_name("m1", share), script=script, path=folder / f"{share}.sh", **others)  # type: ignore[arg-type]


def running(fake: FakeSlurm, scheduler: SlurmScheduler, count: int = 1) -> list[JobHandle]:
    handles = scheduler.submit([request(fake.folder, f"s{number}") for number in range(count)])
    for handle in handles:
        fake.set(handle.id, state="RUNNING", nodes="n[1-2]", reason="")
    return handles


def state(scheduler: SlurmScheduler, handle: JobHandle) -> JobState:
    return scheduler.observe([handle])[handle.id]


# One question


def test_many_jobs_are_one_question(fake: FakeSlurm, scheduler: SlurmScheduler) -> None:
    handles = running(fake, scheduler, 5)
    scheduler.observe(handles)
    before = len(fake.calls)
    states = scheduler.observe(handles)
    [asked] = fake.calls[before:]
    assert asked[:2] == ["squeue", f"--user={os.getuid()}"]
    assert "--array" in asked
    assert states == {
        handle.id: JobState(phase="running", state="RUNNING", nodes=("n1", "n2"), witness="squeue")
        for handle in handles
    }


def test_a_pending_reason_is_kept_as_text(fake: FakeSlurm, scheduler: SlurmScheduler) -> None:
    [handle] = scheduler.submit([request(fake.folder)])
    fake.set(handle.id, reason="ReqNodeNotAvail, UnavailableNodes:n[1-4]")
    expected = JobState(
        phase="pending", state="PENDING", reason="ReqNodeNotAvail, UnavailableNodes:n[1-4]", witness="squeue"
    )
    assert state(scheduler, handle) == expected


def test_names_with_every_letter_are_read(fake: FakeSlurm, scheduler: SlurmScheduler) -> None:
    strange = JobHandle(id=running(fake, scheduler)[0].id, name="a|b, c\t[1-3] %i é")
    fake.set(strange.id, name=strange.name)
    assert state(scheduler, strange).phase == "running"


def test_variables_that_change_answers_reach_no_command(fake: FakeSlurm) -> None:
    (fake.folder / "bin" / "squeue").write_text("#!/bin/sh\nenv >> $FAKE_SLURM/environ\n")
    hostile = ("SQUEUE_USERS", "SQUEUE_STATES", "SLURM_CLUSTERS", "SLURM_JOB_ID", "SACCT_FORMAT", "SCANCEL_INTERACTIVE")
    SlurmScheduler(fake.environ | dict.fromkeys(hostile, "all") | {"SLURM_CONF": "/etc/s"}).observe(
        [JobHandle(id="1", name="x")]
    )
    names = {line.partition("=")[0] for line in (fake.folder / "environ").read_text().splitlines()}
    assert names & {*hostile, "SLURM_CONF"} == {"SLURM_CONF"}
    assert not any("--clusters" in word for call in fake.calls for word in call)


def test_all_who_ask_slurm_keep_a_users_token_and_defaults(fake: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    (fake.folder / "bin" / "squeue").write_text("#!/bin/sh\nenv >> $FAKE_SLURM/environ\n")
    own = {"SLURM_JWT": "token", "SBATCH_ACCOUNT": "physics"}
    for name, value in {**fake.environ, **own, "SLURM_JOB_ID": "7"}.items():
        monkeypatch.setenv(name, value)
    state_of_job("100")
    kept = dict(line.split("=", 1) for line in (fake.folder / "environ").read_text().splitlines())
    assert own.items() <= kept.items() and "SLURM_JOB_ID" not in kept


def test_a_job_on_another_cluster_is_asked_for_there(fake: FakeSlurm, scheduler: SlurmScheduler) -> None:
    fake.next("sbatch", before=True, output="100;far\n")
    far, near = scheduler.submit([request(fake.folder, "s1"), request(fake.folder, "s2")])
    assert (far.id, near.id) == ("100;far", "101")
    before = len(fake.calls)
    assert {state.phase for state in scheduler.observe([far, near]).values()} == {"pending"}
    scheduler.cancel([far])
    asked = [call[1] for call in fake.calls[before:] if "--version" not in call]
    assert asked == ["--clusters=far", f"--user={os.getuid()}", "--clusters=far"]


# Witnesses


def test_a_running_job_that_squeue_leaves_out_is_running(fake: FakeSlurm, scheduler: SlurmScheduler) -> None:
    [handle] = running(fake, scheduler)
    fake.forget(handle.id, "squeue")
    assert state(scheduler, handle) == JobState(
        phase="running", state="RUNNING", nodes=("n1", "n2"), witness="scontrol"
    )


def test_an_end_that_squeue_has_forgotten_is_known_from_sacct(fake: FakeSlurm, scheduler: SlurmScheduler) -> None:
    fake.configure(accounting=True)
    [handle] = running(fake, scheduler)
    fake.set(handle.id, state="OUT_OF_MEMORY", exit=125)
    fake.forget(handle.id, "squeue", "scontrol")
    expected = JobState(
        phase="ended",
        result="out-of-memory",
        state="OUT_OF_MEMORY",
        nodes=("n1", "n2"),
        exit_code=125,
        witness="sacct",
    )
    assert state(scheduler, handle) == expected


def test_an_accounting_that_is_late_does_not_make_a_job_run(fake: FakeSlurm, scheduler: SlurmScheduler) -> None:
    fake.configure(accounting=True)
    [handle] = running(fake, scheduler)
    fake.set(handle.id, state="FAILED", sacct_state="RUNNING")
    fake.forget(handle.id, "squeue", "scontrol")
    late = state(scheduler, handle)
    assert (late.phase, late.state, late.witness) == ("unknown", "RUNNING", "sacct")
    fake.set(handle.id, sacct_state="")
    assert state(scheduler, handle).result == "failed"


def test_the_controller_is_believed_before_the_accounting(fake: FakeSlurm, scheduler: SlurmScheduler) -> None:
    fake.configure(accounting=True)
    [handle] = running(fake, scheduler)
    fake.set(handle.id, sacct_state="COMPLETED")
    assert state(scheduler, handle).phase == "running"


def test_a_cluster_without_accounting_is_asked_for_it_once(fake: FakeSlurm, scheduler: SlurmScheduler) -> None:
    [handle] = running(fake, scheduler)
    fake.forget(handle.id)
    assert [state(scheduler, handle).phase for _ in range(3)] == ["absent"] * 3
    assert [call[0] for call in fake.calls].count("sacct") == 1


def test_an_end_is_confirmed_by_another_witness_than_told_it(fake: FakeSlurm, scheduler: SlurmScheduler) -> None:
    fake.configure(accounting=True)
    [known, forgotten] = running(fake, scheduler, 2)
    fake.set(forgotten.id, state="FAILED")
    fake.forget(forgotten.id, "scontrol")
    before = len(fake.calls)
    states = scheduler.observe([known, forgotten], is_doubted=True)
    assert {id_: (each.phase, each.witness) for id_, each in states.items()} == {
        known.id: ("running", "scontrol"),
        forgotten.id: ("ended", "sacct"),
    }
    assert "squeue" not in {call[0] for call in fake.calls[before:]}


def test_a_job_is_absent_only_where_every_witness_answers(fake: FakeSlurm, scheduler: SlurmScheduler) -> None:
    fake.configure(accounting=True)
    [handle] = running(fake, scheduler)
    fake.forget(handle.id)
    assert state(scheduler, handle).phase == "absent"
    for command in ("squeue", "sacct", "scontrol"):
        fake.next(command, error="error: a bad day\n")
        assert state(scheduler, handle).phase == "unknown", command
    assert state(scheduler, handle).phase == "absent"


def test_another_job_that_got_the_same_id_is_not_ours(fake: FakeSlurm, scheduler: SlurmScheduler) -> None:
    fake.configure(accounting=True)
    [handle] = running(fake, scheduler)
    fake.set(handle.id, name="somebody's", state="COMPLETED")
    assert state(scheduler, handle).phase == "absent"


def test_many_forgotten_jobs_are_asked_for_in_turn(fake: FakeSlurm, scheduler: SlurmScheduler) -> None:
    handles = running(fake, scheduler, 20)
    for handle in handles:
        fake.forget(handle.id)
    for _ in range(3):
        before = len(fake.calls)
        scheduler.observe(handles)
        assert len(fake.calls) - before <= 11
    assert {call[-1] for call in fake.calls if call[0] == "scontrol"} == {handle.id for handle in handles}


# No answer


@pytest.mark.parametrize(
    "broken",
    [
        {"error": DOWN},
        {"error": "squeue: error: Invalid user: 0\n"},
        {"output": "Welcome to the cluster!\nMaintenance on Monday\n"},
        {"output": "\x00\x01\x02", "code": 0},
        {"output": "", "error": "squeue: error: something\n", "code": 0},
        {"output": "100\x1f100\x1fRUNN", "code": 0},
    ],
    ids=lambda broken: next(iter(broken)),
)
def test_an_answer_that_is_an_error_or_garbage_is_unknown(
    fake: FakeSlurm, scheduler: SlurmScheduler, broken: dict[str, object]
) -> None:
    [handle] = running(fake, scheduler)
    fake.always("squeue", **broken)
    fake.always("scontrol", error=DOWN)
    assert state(scheduler, handle).phase == "unknown"
    fake.always("squeue")
    assert state(scheduler, handle).phase == "running"


def test_rows_beside_garbage_count_and_what_is_missing_is_unknown(fake: FakeSlurm, scheduler: SlurmScheduler) -> None:
    first, second = running(fake, scheduler, 2)
    cells = (first.id, first.id, "RUNNING", "n1", first.name, "None")
    fake.always("squeue", output="squeue: warning\n" + "\x1f".join(cells) + "\n" + second.id)
    fake.always("scontrol", error="")
    states = scheduler.observe([first, second])
    assert (states[first.id].phase, states[second.id].phase) == ("running", "unknown")


def test_an_answer_without_end_is_ended_and_is_none(fake: FakeSlurm) -> None:
    (fake.folder / "bin" / "squeue").write_text("#!/bin/sh\nexec yes\n")
    with pytest.raises(Unreachable, match=r"squeue: its answer has more than 16 MiB"):
        SlurmScheduler(fake.environ).adopt("m1")


def test_a_squeue_that_hangs_is_ended_with_all_that_it_started(fake: FakeSlurm) -> None:
    scheduler = SlurmScheduler(fake.environ, timeout_s=SHORT_S)
    [handle] = running(fake, scheduler)
    scheduler.observe([handle])
    fake.next("squeue", hang=True)
    seen = state(scheduler, handle)
    assert (seen.phase, seen.reason) == ("unknown", "squeue did not answer within 1 s")
    until((fake.folder / "hanging").exists)
    until(lambda: is_gone(int((fake.folder / "hanging").read_text())))
    assert state(scheduler, handle).phase == "running"


def test_no_slurm_here_is_one_clear_line(tmp_path: Path) -> None:
    scheduler = SlurmScheduler({"PATH": str(tmp_path)})
    reason = "no {} on PATH: this is no login node of a Slurm cluster, or its module is not loaded"
    with pytest.raises(Unreachable, match=reason.format("sbatch")):
        scheduler.submit([request(tmp_path)])
    with pytest.raises(Unreachable, match=reason.format("scancel")):
        scheduler.cancel([JobHandle(id="1", name="x")])
    with pytest.raises(Unreachable, match=reason.format("squeue")):
        scheduler.adopt("m1")
    assert state(scheduler, JobHandle(id="1", name="x")).reason == reason.format("squeue")


# Submission


@pytest.mark.parametrize(
    ("errors", "reason"),
    [
        (
            "sbatch: error: invalid partition specified: nope\n"
            "sbatch: error: Batch job submission failed: Invalid partition name specified\n",
            "invalid partition specified: nope; Batch job submission failed: Invalid partition name specified",
        ),
        (
            "sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: Job violates"
            " accounting/QOS policy (job submit limit, user's size and/or time limits)\n",
            "QOSMaxSubmitJobPerUserLimit; Batch job submission failed: Job violates accounting/QOS policy (job submit"
            " limit, user's size and/or time limits)",
        ),
        (
            "sbatch: error: Batch job submission failed: Pathname of a file, directory or other parameter too long\n",
            "Batch job submission failed: Pathname of a file, directory or other parameter too long",
        ),
        (
            "sbatch: unrecognized option '--nope'\nTry \"sbatch --help\" for more information\n",
            "sbatch: unrecognized option '--nope'",
        ),
        ("", "exit code 1"),
    ],
)
def test_a_refused_job_names_slurms_own_reason(
    fake: FakeSlurm, scheduler: SlurmScheduler, errors: str, reason: str
) -> None:
    fake.always("sbatch", error=errors)
    with pytest.raises(UsageError) as error:
        scheduler.submit([request(fake.folder)])
    assert str(error.value) == f"job mb-m1-s1: Slurm refused it: {reason}"


def test_a_refusal_cannot_write_to_the_terminal(fake: FakeSlurm, scheduler: SlurmScheduler) -> None:
    fake.always("sbatch", error="sbatch: error: \x1b[2Jgone\rover\n" + "x" * 5000)
    with pytest.raises(UsageError) as error:
        scheduler.submit([request(fake.folder)])
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 600


@pytest.mark.parametrize(
    "unheard",
    [{"before": True, "hang": True}, {"before": True, "error": TIMED_OUT}, {"before": True, "output": "", "code": 0}],
    ids=["hangs", "times out", "says nothing"],
)
@pytest.mark.parametrize("tasks", [0, 2])
def test_a_job_whose_submission_was_not_heard_of_is_found_by_its_name(
    fake: FakeSlurm, unheard: dict[str, object], tasks: int
) -> None:
    scheduler = SlurmScheduler(fake.environ, timeout_s=SHORT_S)
    [*old] = scheduler.submit([request(fake.folder, tasks=tasks)])
    for handle in old:
        fake.set(handle.id, state="FAILED")
    fake.next("sbatch", **unheard)
    handles = scheduler.submit([request(fake.folder, tasks=tasks)])
    assert [handle.id for handle in handles] == [id_ for id_ in fake.jobs() if id_ not in {each.id for each in old}]


def test_a_job_that_ended_before_sbatch_was_given_up_was_submitted(fake: FakeSlurm) -> None:
    scheduler = SlurmScheduler(fake.environ, timeout_s=SHORT_S)
    fake.next("sbatch", before=True, hang=True)
    fake.configure(new_state="COMPLETED")
    [handle] = scheduler.submit([request(fake.folder)])
    assert state(scheduler, handle).result == "completed"


@pytest.mark.parametrize(
    "unheard", [{"hang": True}, {"error": TIMED_OUT}, {"error": DOWN}], ids=["hangs", "times out", "down"]
)
def test_a_job_that_was_never_submitted_is_said_to_be_so(fake: FakeSlurm, unheard: dict[str, object]) -> None:
    scheduler = SlurmScheduler(fake.environ, timeout_s=SHORT_S / 4)
    fake.next("sbatch", **unheard)
    with pytest.raises(Unreachable, match=r"^job mb-m1-s1: sbatch.*. Slurm knows no job of that name$"):
        scheduler.submit([request(fake.folder)])


def test_what_a_site_prints_before_the_id_is_passed_over(fake: FakeSlurm, scheduler: SlurmScheduler) -> None:
    fake.next("sbatch", before=True, output="sbatch: 12 credits left\n7\n100\n\n")
    assert [handle.id for handle in scheduler.submit([request(fake.folder)])] == ["100"]


def test_the_options_of_a_job_win_over_a_users_variables(fake: FakeSlurm) -> None:
    first, second = SlurmScheduler(fake.environ | {"SBATCH_PARTITION": "debug"}).submit(
        [request(fake.folder, "s1"), request(fake.folder, "s2", tasks=3, at_once=2)]
    )[:2]
    words = fake.calls[0]
    assert {"--partition=gpu", "--no-requeue", "--parsable", "--job-name=mb-m1-s1", "--comment=m1"} <= set(words)
    assert fake.calls[1][-2:] == ["--array=0-2%2", str(fake.folder / "s2.sh")]
    assert (first.id, second.id) == ("100", "101_0")


def test_a_job_is_submitted_after_others(fake: FakeSlurm, scheduler: SlurmScheduler) -> None:
    scheduler.submit([request(fake.folder, after=("7", "8_1", "9;far"))])
    assert "--dependency=afterany:7:8_1:9" in fake.calls[0]


# Cancelling and adopting


def test_thousands_of_jobs_are_cancelled_in_batches(fake: FakeSlurm, scheduler: SlurmScheduler) -> None:
    handles = running(fake, scheduler, 3)
    fake.always("scancel", output="")
    scheduler.cancel([JobHandle(id=str(number), name="x") for number in range(250)])
    assert [len(call) - 1 for call in fake.calls if call[0] == "scancel"] == [100, 100, 50]
    assert len(handles) == 3


def test_an_array_is_cancelled_as_one_where_all_of_it_is_to_end(fake: FakeSlurm, scheduler: SlurmScheduler) -> None:
    handles = scheduler.submit([request(fake.folder, tasks=3), request(fake.folder, "s2")])
    fake.set(handles[0].id, state="COMPLETED")
    scheduler.cancel(handles[1:])
    scheduler.cancel(handles[1:2])
    assert [call[1:] for call in fake.calls if call[0] == "scancel"] == [["100", "103"], ["100"]]
    states = SlurmScheduler(fake.environ).observe(handles)
    assert [states[handle.id].result for handle in handles] == ["completed", "cancelled", "cancelled", "cancelled"]


def test_a_cancelled_task_of_which_nothing_is_left_was_cancelled(fake: FakeSlurm, scheduler: SlurmScheduler) -> None:
    handles = scheduler.submit([request(fake.folder, tasks=3)])
    scheduler.cancel(handles[2:])
    assert state(scheduler, handles[2]).result == "cancelled"
    assert state(SlurmScheduler(fake.environ), handles[2]).phase == "absent"
    fake.configure(accounting=True)
    assert state(SlurmScheduler(fake.environ), handles[2]).result == "cancelled"


def test_one_row_for_an_array_whose_tasks_were_cancelled_is_for_each_of_them(
    fake: FakeSlurm, scheduler: SlurmScheduler
) -> None:
    handles = scheduler.submit([request(fake.folder, tasks=2)])
    cells = ("100", "100", "CANCELLED", "", handles[0].name, "None")
    fake.always("squeue", output="\x1f".join(cells) + "\n", code=0)
    assert {state.result for state in scheduler.observe(handles).values()} == {"cancelled"}


@pytest.mark.parametrize(
    ("errors", "kind"),
    [
        ("scancel: error: Kill job error on job id 100: Access/permission denied\n", UsageError),
        (f"scancel: error: {DOWN}", Unreachable),
    ],
)
def test_a_job_that_cannot_be_cancelled_says_why(
    fake: FakeSlurm, scheduler: SlurmScheduler, errors: str, kind: type[Exception]
) -> None:
    handles = running(fake, scheduler)
    fake.next("scancel", error=errors)
    with pytest.raises(kind, match=r"^scancel: "):
        scheduler.cancel(handles)


def test_adopting_finds_ended_jobs_that_only_the_accounting_remembers(
    fake: FakeSlurm, scheduler: SlurmScheduler
) -> None:
    fake.configure(accounting=True)
    handles = running(fake, scheduler, 3)
    fake.set(handles[0].id, state="TIMEOUT")
    fake.forget(handles[0].id, "squeue", "scontrol")
    assert {handle.id for handle in scheduler.adopt("m1")} == {handle.id for handle in handles}


def test_adopting_from_a_scheduler_that_does_not_answer_is_an_error(fake: FakeSlurm, scheduler: SlurmScheduler) -> None:
    fake.always("squeue", error=DOWN)
    with pytest.raises(Unreachable, match=r"^squeue: .*Unable to contact slurm controller"):
        scheduler.adopt("m1")


# What a real one answers


def test_the_answer_of_a_real_slurm_is_read_whole(slurm: object, shared: Path) -> None:
    marker = os.urandom(4).hex()
    handles = SlurmScheduler(os.environ).submit([_sleeper(shared, marker, "s1", 3), _sleeper(shared, marker, "s2")])
    words = ("--states=all", "--array", "--noheader", f"--format={SQUEUE_FORMAT}")
    answer = read_squeue(subprocess.check_output(("squeue", *words), text=True))
    assert answer.whole
    assert {handle.id for handle in handles} == {row.id for row in answer.rows if marker in row.name}


def _sleeper(folder: Path, marker: str, share: str, tasks: int = 0) -> JobRequest:
    job = JobText(marker=marker, share=share, command=("sleep", "300"), output=folder / "out", tasks=("0",) * tasks)
    script = batch_script(SlurmConfig(exclusive=False, time="5"), job)
    return JobRequest(name=job_name(marker, share), script=script, path=folder / f"{share}.sh", tasks=tasks)


@pytest.mark.parametrize("is_accounted", [True, False])
def test_the_exit_code_of_a_job_that_squeue_still_knows_is_asked_for(
    fake: FakeSlurm, scheduler: SlurmScheduler, is_accounted: bool
) -> None:
    fake.configure(accounting=is_accounted)
    [handle] = running(fake, scheduler)
    fake.set(handle.id, state="FAILED", exit="3:0", reason="NonZeroExitCode")
    found = state(scheduler, handle)
    assert (found.phase, found.result, found.exit_code) == ("ended", "failed", 3)
    assert found.reason == "NonZeroExitCode"
    fake.always("sacct", error=DOWN)
    fake.always("scontrol", error=DOWN)
    assert state(scheduler, handle).result == "failed"


def test_a_job_that_a_signal_ended_has_no_exit_code_of_success(fake: FakeSlurm, scheduler: SlurmScheduler) -> None:
    [handle] = running(fake, scheduler)
    fake.set(handle.id, state="FAILED", exit="0:9")
    fake.forget(handle.id, "squeue")
    assert state(scheduler, handle).exit_code == 137
