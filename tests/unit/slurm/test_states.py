"""Every state of Slurm, as each of its commands writes it."""

from __future__ import annotations

import pytest

from milabench.schedulers.scheduler import JobPhase, JobResult
from milabench.slurm.states import STATES, read_state

TABLE: list[tuple[str, JobPhase, JobResult]] = [
    ("BOOT_FAIL", "ended", "node-failed"),
    ("BF", "ended", "node-failed"),
    ("CANCELLED", "ended", "cancelled"),
    ("CA", "ended", "cancelled"),
    ("COMPLETED", "ended", "completed"),
    ("CD", "ended", "completed"),
    ("CONFIGURING", "pending", ""),
    ("CF", "pending", ""),
    ("COMPLETING", "running", ""),
    ("CG", "running", ""),
    ("DEADLINE", "ended", "time-limit"),
    ("DL", "ended", "time-limit"),
    ("EXPEDITING", "pending", ""),
    ("EX", "pending", ""),
    ("FAILED", "ended", "failed"),
    ("F", "ended", "failed"),
    ("LAUNCH_FAILED", "ended", "not-started"),
    ("LF", "ended", "not-started"),
    ("NODE_FAIL", "ended", "node-failed"),
    ("NF", "ended", "node-failed"),
    ("OUT_OF_MEMORY", "ended", "out-of-memory"),
    ("OOM", "ended", "out-of-memory"),
    ("PENDING", "pending", ""),
    ("PD", "pending", ""),
    ("POWER_UP_NODE", "pending", ""),
    ("PREEMPTED", "ended", "preempted"),
    ("PR", "ended", "preempted"),
    ("RECONFIG_FAIL", "pending", ""),
    ("REQUEUED", "pending", ""),
    ("RQ", "pending", ""),
    ("REQUEUE_FED", "pending", ""),
    ("RF", "pending", ""),
    ("REQUEUE_HOLD", "pending", ""),
    ("RH", "pending", ""),
    ("RESIZING", "running", ""),
    ("RS", "running", ""),
    ("RESV_DEL_HOLD", "pending", ""),
    ("RD", "pending", ""),
    ("REVOKED", "unknown", ""),
    ("RV", "unknown", ""),
    ("RUNNING", "running", ""),
    ("R", "running", ""),
    ("SIGNALING", "running", ""),
    ("SI", "running", ""),
    ("SPECIAL_EXIT", "pending", ""),
    ("SE", "pending", ""),
    ("STAGE_OUT", "running", ""),
    ("SO", "running", ""),
    ("STOPPED", "running", ""),
    ("ST", "running", ""),
    ("SUSPENDED", "running", ""),
    ("S", "running", ""),
    ("TIMEOUT", "ended", "time-limit"),
    ("TO", "ended", "time-limit"),
]


@pytest.mark.parametrize(("state", "phase", "result"), TABLE)
def test_a_state_means_what_the_table_says(state: str, phase: JobPhase, result: JobResult) -> None:
    assert read_state(state) == (phase, result)
    assert read_state(f" {state.lower()}\n") == (phase, result)
    assert read_state(f"{state}+") == (phase, result)  # sacct cuts what does not fit


def test_every_state_is_tested_by_each_of_its_names() -> None:
    assert {state for state, _, _ in TABLE} == {name for state, row in STATES.items() for name in (state, *row[0])}


@pytest.mark.parametrize(
    ("state", "phase", "result"),
    [
        ("CANCELLED by 1000", "ended", "cancelled"),
        ("RUNNING+COMPLETING", "running", ""),
        ("COMPLETED+COMPLETING", "running", ""),
        ("RUNNING+CONFIGURING", "pending", ""),
        ("RUNNING+POWER_UP_NODE+CONFIGURING", "pending", ""),
        ("NODE_FAIL+REQUEUED", "pending", ""),
        ("TIMEOUT+STAGE_OUT", "running", ""),
        ("CANCELLED+REVOKED", "unknown", ""),
        ("FAILED+LAUNCH_FAILED", "ended", "not-started"),
        ("RUNNING+UPDATE_DB", "running", ""),
        ("FAILED+UPDATE_DB", "ended", "failed"),
        ("UPDATE_DB", "unknown", ""),
        # What no release that we know says.
        ("TELEPORTED", "unknown", ""),
        ("COMPLETED+TELEPORTED", "unknown", ""),
        ("RUNNING+TELEPORTED", "running", ""),
        ("PENDING+TELEPORTED", "pending", ""),
        ("COMPLETED+FAILED", "unknown", ""),
        ("COMPLETEDLY", "unknown", ""),
        ("?", "unknown", ""),
        ("", "unknown", ""),
    ],
)
def test_a_job_has_ended_only_where_all_of_its_words_say_so(state: str, phase: JobPhase, result: JobResult) -> None:
    assert read_state(state) == (phase, result)
