"""Steps that measure together: their start barrier, their common stop, the monitor that watches them."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping

from .event_loop import EventLoop, NamedTimers
from .helpers import HelperProcesses
from .outcome import StepOutcome
from .procfs import signal_name
from .protocol import RUN_MARKER, TAIL_CHARACTERS
from .step import RunningStep, describe_start_failure

MONITOR_S = 2.0  # a monitor may take so long to end after its last step


class Groups:
    """The groups of an agent's steps. A step without a group is its own group.

    `steps` is the agent's own table, by id.
    """

    def __init__(
        self, steps: Mapping[str, RunningStep], loop: EventLoop, helpers: HelperProcesses, run_id: str
    ) -> None:
        self._steps = steps
        self._loop = loop
        self._helpers = helpers
        self._run_id = run_id
        self._ended: dict[str, int] = {}  # how many members of a group have ended, while others live
        self._barriers = NamedTimers(loop)  # by group
        self._released: set[str] = set()  # groups with members on other nodes that may measure
        self._monitors: dict[str, int] = {}  # the pid of each group's

    def members(self, group: str) -> list[RunningStep]:
        """Return the steps of a group that are not over."""
        return [step for step in self._steps.values() if step.group == group]

    def allow(self, group: str) -> None:
        """Release a group with members on other nodes: all of them are there."""
        if self.members(group):
            self._released.add(group)
            self.release(group)

    def release(self, group: str) -> None:
        """Let the members of a group go once all of them are ready or have ended."""
        members = self.members(group)
        if not members:
            return
        size = max(step.group_size for step in members)
        if members[0].is_spread:
            if group not in self._released:
                for step in members:
                    if step.is_at_barrier:
                        step.notify_once("at-barrier")
                return
        elif size > 1:
            present = len(members) + self._ended.get(group, 0)
            if present < size or not all(step.is_at_barrier for step in members):
                self._limit_barrier(group, members)
                return
        self._barriers.cancel(group)
        message = {"go": round(time.time(), 6)}
        for step in members:
            for connection in step.connections:
                if connection.is_ready and not connection.was_released:
                    connection.was_released = True
                    connection.send(message)

    def stragglers(self, step: RunningStep) -> list[str]:
        """Return whom a step waits for at the start barrier. Nobody when it does not wait."""
        if not any(one.is_open and one.is_ready and not one.was_released for one in step.connections):
            return []
        late = [other.id for other in self.members(step.group) if not other.is_at_barrier]
        return late or (["steps on other nodes"] if step.is_spread else [])

    def _limit_barrier(self, group: str, members: list[RunningStep]) -> None:
        """Let nobody wait longer at the barrier than is allowed, counted from the first who is there."""
        allowed = [step.barrier_s for step in members if step.barrier_s is not None]
        if allowed and group not in self._barriers and any(step.is_at_barrier for step in members):
            seconds = max(allowed)
            self._barriers.start(group, seconds, lambda: self._fail_barrier(group, seconds))

    def _fail_barrier(self, group: str, seconds: float) -> None:
        members = self.members(group)
        late = [step for step in members if not step.is_at_barrier]
        names = ", ".join(step.id for step in late) or "a member that was never started"
        for step in members:
            if step in late:
                detail = "not ready within %g s of the first of its group" % seconds
            else:
                detail = "waited at the start barrier for %s, which was not ready within %g s" % (names, seconds)
            step.end_hung(StepOutcome("failed", "timeout", detail))

    def settle(self, group: str) -> None:
        """End the work of a group's members once each has its observations: until then all keep up the load."""
        members = self.members(group)
        if members and members[0].is_spread:
            for step in members:
                if step.has_observations and any(connection.is_complete for connection in step.connections):
                    step.notify_once("measured")
            return
        is_complete = any(connection.is_complete for step in members for connection in step.connections)
        if is_complete and all(step.has_observations for step in members):
            for step in members:
                step.request_stop("all of the group have their observations")

    def watch(self, group: str, is_due: bool = False) -> None:
        """Start the group's monitor when the last of its members on this node has been started.

        Where its start would disturb the measurement, it is put off (`after_s`) until `is_due`.
        It watches the group from outside and tells each step its readings over its sink. It is no member of any step: it
        neither keeps a group alive nor counts as its heartbeat.
        """
        members = self.members(group)
        size = max((step.group_size for step in members), default=0)
        live = [step for step in members if step.pid is not None and step.ledger.return_code is None]
        request = next((step.monitor for step in live if step.monitor.get("argv")), None)
        if request is None or len(members) + self._ended.get(group, 0) < size or group in self._monitors:
            return
        if request.get("after_s") and not is_due:
            self._loop.after(float(request["after_s"]), lambda: self.watch(group, is_due=True))
            return
        about = [
            dict(step.monitor.get("about") or {}, step=step.id, pid=step.pid, sink="unix:" + step.sink) for step in live
        ]
        try:
            # In the agent's own folder: a file of simulated devices may be named relative to where the command was given.
            self._monitors[group] = self._helpers.start(
                request["argv"],
                lambda code, output: self._note_monitor_exit(group, code, output),
                message=json.dumps({"steps": about}).encode(),
                stderr=subprocess.STDOUT,  # it prints only why it cannot go on: the last line is told with its end
                env=dict(os.environ, **{RUN_MARKER: self._run_id}),
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            live[0].frames.message("no monitor: " + describe_start_failure(error, request["argv"], None))

    def _note_monitor_exit(self, group: str, code: int, output: bytes) -> None:
        """Take note of a monitor's end. Before its steps it is worth a message, not a failure."""
        live = [step for step in self.members(group) if step.ledger.return_code is None]
        if self._monitors.pop(group, None) is not None and live:
            end = "was ended by %s" % signal_name(-code) if code < 0 else "ended with exit code %d" % code
            *_, last = ["", *output.decode("utf-8", "backslashreplace").strip().splitlines()]
            live[0].frames.message(
                "the monitor %s, so devices and host are no longer read%s"
                % (end, last and ": " + last[:TAIL_CHARACTERS])
            )

    def forget(self, step: RunningStep) -> bool:
        """Take note that a step is over and out of the table. Return whether it was the last that its group will have."""
        group = step.group
        is_last = True
        if self.members(group) or step.group_size > 1:
            self._ended[group] = self._ended.get(group, 0) + 1
            is_last = self._ended[group] >= step.group_size
            if is_last:
                del self._ended[group]
        if step.service is not None and not step.ledger.is_serving:
            self._ended.pop(group, None)  # its client will not be started
        self.release(group)
        self.settle(group)
        if not self.members(group):
            self._released.discard(group)
            self._barriers.cancel(group)
            pid = self._monitors.pop(group, None)
            if pid is not None:
                self._loop.after(MONITOR_S, lambda: self._helpers.kill(pid))
        return is_last
