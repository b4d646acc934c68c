"""Makes a new run for a plan, and executes it. Shared by run, prepare and size."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from milabench.errors import Unreachable
from milabench.events.removal import remove
from milabench.events.run_writer import create_run
from milabench.execute.interrupts import interrupts
from milabench.execute.local_agent import new_marker
from milabench.execute.locks import hold_run, this_orchestrator
from milabench.execute.retry_policy import NO_RETRIES, RetryPolicy
from milabench.plan.model import Plan
from milabench.workflow.local_agents import local_agents, marker_ahead
from milabench.workflow.options import CommandContext
from milabench.workflow.run_records import ExtendPlan, RunDescription, stems, with_stems, write_manifest

if TYPE_CHECKING:
    from milabench.execute.detach import DetachHandover
    from milabench.workflow.execution import ExecutedPlan


def execute_plan(
    plan: Plan,
    context: CommandContext,
    description: RunDescription,
    *,
    retry: RetryPolicy = NO_RETRIES,
    extend: ExtendPlan | None = None,
    handover: DetachHandover | None = None,
) -> ExecutedPlan:
    """Execute the plan in a new run directory.

    `extend` decides from the records how the run continues after the plan. `handover` lets go of the terminal
    when the run has begun. Raises RecordError and Unreachable before anything is started, RecordError also when the
    extension cannot be recorded.
    """
    files = stems(plan.steps)
    plan = with_stems(plan, files)
    writer = create_run(Path(context.dirs.base), description.name, datetime.now())
    marker = marker_ahead(plan, context) or new_marker(writer.path.name)
    orchestrator = this_orchestrator(marker, detached=handover is not None)
    try:
        # Held from before there is a plan until the journal says that its run began: an interrupt in between would leave a
        # run that cannot be resumed. An agent serves it when the lock names its marker, so that a sweep finds both.
        with (
            interrupts().deferred(),
            hold_run(writer.path, orchestrator),
            local_agents(plan, context, marker) as agents,
        ):
            write_manifest(writer, plan, context, description, files)
            from milabench.workflow.execution import continue_plan  # with the event loop, while the agent starts

            return continue_plan(
                *(plan, context, description, writer, orchestrator),
                retry=retry,
                extend=extend,
                handover=handover,
                agents=agents,
            )
    except Unreachable:
        # Nothing was started: such a run must not be the latest one. That of a detached one holds the reason.
        if handover is None or handover.is_held:
            remove(writer.path, writer.path.parent, is_quiet=True)
        raise
    finally:
        writer.close()
