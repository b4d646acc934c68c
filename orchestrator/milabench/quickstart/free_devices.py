"""Checks at the start of a command whether another run uses the devices of this machine."""

from __future__ import annotations

from milabench.devices.locks import DeviceLocks, close_files
from milabench.errors import Unreachable
from milabench.execute.agent_client import read_holder
from milabench.execute.local_agent import device_lock, lock_folder
from milabench.workflow.context import CommandContext


def require_free_devices(context: CommandContext, *, wait: bool) -> None:
    """Raise Unreachable if a device of this machine is in use. With `wait`, report that the run will wait for it.

    For commands that install before they measure. The run itself locks the devices later.
    """
    names = [device_lock(device, node.hostname) for node in context.nodes if node.local for device in node.devices]
    folder = lock_folder()
    locks = DeviceLocks(None if folder is None else str(folder))
    try:
        opened = locks.open(names)
    except OSError:
        return  # the run reports the error
    holder = locks.take(opened)
    close_files(opened)
    if holder is None:
        return
    text = str(read_holder(holder))
    if not wait:
        raise Unreachable(f"{text}; use --wait to wait for it to end")
    context.session.note(f"{text}; the run will wait for it")
