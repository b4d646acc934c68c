"""Locks of the devices that commands measure on: looked at before anything is installed, held while a command runs alone."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from milabench.devices.locks import DeviceLocks, close_files
from milabench.errors import Unreachable
from milabench.execute.local_agent import device_lock, lock_folder
from milabench.plan.model import Plan
from milabench.workflow.options import CommandContext

_LOOK_AGAIN_S: Final = 0.5


def device_locks(context: CommandContext, plan: Plan | None = None) -> dict[str, Sequence[str]]:
    """Return the locks of the devices by node: those that a plan measures on, without a plan all.

    Slots of a processor share one.
    """
    locks: dict[str, Sequence[str]] = {}
    for node in context.nodes:
        steps = [step for step in plan.steps if step.node == node.name] if plan is not None else []
        used = {device for step in steps for device in step.devices}
        # Slurm may call several nodes, with processors of their own, by the name of one machine.
        host = node.hostname if context.allocation is None else node.name
        if names := {device_lock(device, host) for device in node.devices if plan is None or device.index in used}:
            locks[node.name] = sorted(names)
    return locks


def require_free_devices(context: CommandContext, plan: Plan | None = None, *, wait: bool) -> None:
    """Raise Unreachable if another command uses a device of this machine. With `wait`, wait until none does.

    For commands that install or prepare before they measure. The run itself takes the locks later. With a plan only its devices
    matter.
    """
    with held_devices(context, "about to begin", plan, wait=wait):
        pass


@contextmanager
def held_devices(context: CommandContext, name: str, plan: Plan | None = None, *, wait: bool) -> Iterator[None]:
    """Hold the devices of this machine, with a plan those that it measures on; `name` tells others who we are.

    Raises Unreachable if another command uses one. With `wait`, it waits until none does.
    """
    local = [node.name for node in context.nodes if node.local]
    names = [lock for node, locks in device_locks(context, plan).items() if node in local for lock in locks]
    folder = lock_folder()
    locks = DeviceLocks(None if folder is None else str(folder))
    try:
        opened = locks.open(names)
    except OSError:  # the run itself reports it
        opened = []
    is_told = False
    while (holder := locks.take(opened)) is not None:
        from milabench.execute.agent_client import read_holder

        if not wait:
            close_files(opened)
            raise Unreachable(f"{read_holder(holder)}. Use --wait to wait for it to end")
        if not is_told:
            context.session.note(f"{read_holder(holder)}. Waiting for it to end")
            is_told = True
        time.sleep(_LOOK_AGAIN_S)
    locks.keep(opened, run=name)
    try:
        yield
    finally:
        locks.release()
