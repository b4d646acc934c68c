"""An orchestrator of one step on another machine: carries it out in a run directory, tells what happens on stdout, a line each."""

import asyncio, json, sys
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from milabench.events.run_writer import create_run
from milabench.execute.api import Ended, Frame, Started
from milabench.execute.engine import ExecutionSettings, execute
from milabench.execute.retry_policy import RetryPolicy
from milabench.execute.interrupts import Interrupts, run_deferring_signals
from milabench.execute.remote_host import RemoteHost, remote_node
from milabench.execute.locks import this_orchestrator
from milabench.execute.ssh import Address
from milabench.plan.model import Plan, Step


def tell(*words):
    print(*words, flush=True)


def progress(thing):
    if isinstance(thing, Started):
        tell("started", thing.step, thing.pid)
    elif isinstance(thing, Frame) and thing.kind == "line":
        for line in thing.payload.splitlines():
            tell("line", thing.step, json.loads(line)["data"].rstrip("\n"))
    elif isinstance(thing, Ended):
        tell(
            "ended",
            thing.step,
            thing.outcome.name,
            thing.outcome.why or "-",
            thing.outcome.detail,
        )


async def main(base, marker, addresses, steps, settings, lease_s):
    writer, retry = create_run(Path(base), "test", datetime.now()), RetryPolicy(**settings.pop("retry", {}))
    plan = Plan(phase="run", steps=tuple(Step(bench="b", phase="run", needs_data=False, **step) for step in steps))
    machines = [RemoteHost(Address(**address)) for address in addresses]
    nodes = {each.name: remote_node(each, marker, grace_s=settings["grace_s"], lease_s=lease_s) for each in machines}
    entry = {
        "run": "started",
        **this_orchestrator(marker).to_json(),
        "nodes": [asdict(each.address) for each in machines],
    }
    writer.journal(entry)
    try:
        done = await execute(plan, nodes, writer, progress, ExecutionSettings(**settings, retry=retry))
    finally:
        await asyncio.gather(*(node.close() for node in nodes.values()))
        await asyncio.gather(*(machine.close() for machine in machines))
    tell("done", "interrupted" if done.interrupted else "finished")


Interrupts().take_over()
run_deferring_signals(lambda: main(*json.loads(sys.argv[1])))
