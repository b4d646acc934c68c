"""Ends an active run in order, as Ctrl-C in its terminal would."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from milabench.errors import NothingSelected, Unreachable
from milabench.events.rundir import open_run
from milabench.execute.locks import Orchestrator, wait_for_release
from milabench.seams import handler
from milabench.workflow.files import base_folder
from milabench.workflow.options import Session
from milabench.workflow.recorded_nodes import dead_requests, held_jobs, recorded_allocation
from milabench.workflow.run_lookup import ACTIVE_STATES, RunHandle, all_runs, resolve_run


def cancel_run(name: str | None, base: Path | None, session: Session, *, now: bool = False) -> None:
    """Ask the orchestrator of a run, by default the only active run, to end, and wait until it has. `now` kills its steps.

    The jobs of a run are ended by their scheduler. Raises NothingSelected, and Unreachable for a run of another host or user.
    """
    if name is None and not any(handle.state in ACTIVE_STATES for handle in all_runs(base)):
        dead = dead_requests(base_folder(base))
        for request in dead:  # of a process that died before its run began, or with it
            handler("requests for nodes").end_request(request)
            session.info(f"cancel: ended {request}")
        if dead:
            return
    handle = resolve_run(base, name) if name is not None else active_run(base)
    run, holder = handle.run, handle.holder
    if any(share.job is None for share in run.shares.values()) and holder is not None and holder.is_local:
        signal_process(holder, times=1)  # it submits: what it has not yet submitted must not follow
        wait_for_release(run.path)
        run, holder = open_run(run.path), None
    if run.shares and handler("jobs of a run").cancel_jobs(run, session):
        return
    if holder is None and (held := held_jobs([used] if (used := recorded_allocation(run)) is not None else [])):
        handler("recorded nodes").give_back(held[0])
        session.info(f"cancel: {run.name} is not active ({handle.state_text}). Gave back {held[0]}")
        return
    if holder is None:
        session.info(f"cancel: {run.name} is not active ({handle.state_text}). There is nothing to cancel")
        return
    if not holder.is_local:
        raise Unreachable(f"{run.name}: is executed on another host, by {holder}. Run `milabench cancel` there")
    if signal_process(holder, times=2 if now else 1):
        session.info(f"cancel: {run.name}: asked {holder} to end. Waiting for it")
        wait_for_release(run.path)
    session.info(f"cancel: {run.name} has ended. `milabench resume` continues it")


def signal_process(orchestrator: Orchestrator, *, times: int) -> bool:
    """Signal exactly this process. Return whether it still existed. Raises Unreachable for another user's."""
    try:
        fd = os.pidfd_open(orchestrator.pid)
    except ProcessLookupError:
        return False
    try:
        if not orchestrator.is_alive:  # checked after opening: from here on the descriptor stands for this process
            return False
        # The second signal is what a second Ctrl-C is: no grace for the steps.
        for _ in range(times):
            signal.pidfd_send_signal(fd, signal.SIGTERM)
    except ProcessLookupError:
        return False
    except PermissionError:
        raise Unreachable(f"{orchestrator}: belongs to another user. Only they can end it") from None
    finally:
        os.close(fd)
    return True


def active_run(base: Path | None) -> RunHandle:
    """Return the only active run below a base. Raises NothingSelected."""
    active = [handle for handle in all_runs(base) if handle.state in ACTIVE_STATES]
    if not active:
        raise NothingSelected(f"{base_folder(base) / 'runs'}: no active run")
    if len(active) > 1:
        raise NothingSelected(
            f"several active runs: {', '.join(handle.run.name for handle in active)}. Name a single run"
        )
    return active[0]
