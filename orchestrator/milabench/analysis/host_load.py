"""Other load on a machine when a run began, and the difference of its clock."""

from __future__ import annotations

from collections.abc import Mapping

from milabench.events.values import as_mapping, finite_number

LEAST_BUSY = 0.5  # threads
CLOCKS_DIFFER_S = 1.0  # the journal may say a little later that a step has begun


def busy_text(node: Mapping[str, object]) -> str:
    """Return the other load on a node of a plan's system, from the agent. Empty without any.

    Both must say so: the threads that were runnable at that moment, which may have been a blink, and the load of the last
    minute, in which an installation may just have ended.
    """
    details = as_mapping(node.get("details"))
    load, runnable = details.get("load"), finite_number(details.get("runnable")) or 0.0
    last_minute = (finite_number(load[0]) if isinstance(load, list | tuple) and load else None) or 0.0
    if min(last_minute, runnable) < LEAST_BUSY:
        return ""
    count = as_mapping(node.get("cpu")).get("count")
    threads = "1 thread of others runs" if runnable == 1 else f"{runnable:g} threads of others run"
    return f"{threads} on {count} processors (load {last_minute:.2f})"


def clock_text(node: Mapping[str, object]) -> str:
    """Return by how much the clock of a node was ahead of the control plane's, or behind it. Empty when they were equal."""
    behind_s = finite_number(as_mapping(node.get("details")).get("behind_s")) or 0.0
    if abs(behind_s) < CLOCKS_DIFFER_S:
        return ""
    return f"{abs(behind_s):.0f} s {'behind' if behind_s > 0 else 'ahead'}"
