"""A control plane without a command line: carries out the steps given as JSON, tells what happens on stdout, a line each."""

import json, sys
from datetime import datetime
from pathlib import Path

from milabench.events.run_writer import create_run
from milabench.execute.api import Ended, Frame, Notice, Started, Waiting
from milabench.execute.engine import ExecutionSettings, execute
from milabench.execute.retry_policy import RetryPolicy
from milabench.execute.interrupts import Interrupts, run_deferring_signals
from milabench.execute.agent_client import local_node
from milabench.plan.model import Plan, Step


def tell(*words):
    print(*words, flush=True)


def progress(thing):
    if isinstance(thing, Started):
        tell("started", thing.step, thing.pid)
    elif isinstance(thing, Frame) and thing.kind == "line":
        for line in thing.payload[:10_000].splitlines()[:10]:
            tell("line", thing.step, json.loads(line)["data"].rstrip("\n"))
    elif isinstance(thing, Ended):
        why = thing.outcome.why or "-"
        tell("ended", thing.step, thing.outcome.name, why, thing.outcome.detail)
    elif isinstance(thing, Notice):
        tell("notice", thing.text)
    elif isinstance(thing, Waiting):
        tell("waiting", thing.holders[0].name)


async def main(base, run_id, steps, settings):
    writer, retry = create_run(Path(base), "test", datetime.now()), RetryPolicy(**settings.pop("retry", {}))
    tell("run", writer.path)
    plan = Plan(phase="run", steps=tuple(Step(bench="b", phase="run", needs_data=False, **step) for step in steps))
    locks = settings.pop("lock_folder", None)
    async with local_node(run_id, grace_s=settings["grace_s"], locks=Path(locks) if locks else None) as node:
        await node.open()
        tell("agent", node._link.hello.result()["pid"], node._link.hello.result()["folder"])
        done = await execute(plan, {"local": node}, writer, progress, ExecutionSettings(retry=retry, **settings))
    tell("done", "interrupted" if done.interrupted else "finished", json.dumps(done.overhead.to_json()))


Interrupts().take_over()
run_deferring_signals(lambda: main(*json.loads(sys.argv[1])))
