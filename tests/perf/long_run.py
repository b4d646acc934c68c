"""What a run of 100,000 steps costs when it is resumed: `python tests/perf/long_run.py`.

The run was cut off at its last step. Its directory is read and what is left of its plan decided, in CPU seconds, over
what json.loads takes for every line of its journal and for its manifest.
"""

from __future__ import annotations

import gc
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path

from rows import Row, in_turn, ratios, show

from milabench.cli import COLLECT_AFTER
from milabench.events.attempts import attempts
from milabench.events.run_writer import create_run
from milabench.events.rundir import open_run
from milabench.plan.model import Plan, Step, remaining_plan
from milabench.workflow.run_records import stems

STEPS = 100_000
ROUNDS = 7


def written_run(base: Path, plan: Plan) -> Path:
    """A run of all steps of a plan, of which the last one has not been started."""
    writer = create_run(base, "long", datetime.now())
    writer.write_manifest({"phase": "run", "plan": plan.to_json(), "files": stems(plan.steps)})
    entries: list[dict[str, object]] = [
        {"step": step.id, "attempt": 1, "state": "planned", "node": "local"} for step in plan.steps
    ]
    for step in plan.steps[:-1]:
        about = {"step": step.id, "attempt": 1, "node": "local"}
        entries.append({**about, "state": "started", "pid": 1, "pgid": 1})
        entries.append({**about, "state": "ended", "outcome": "passed"})
    writer.journal_all(entries)
    writer.close()
    return writer.path


def read_and_decide(path: Path, plan: Plan) -> None:
    run = open_run(path)
    tried = attempts(run.journal)
    passed = frozenset(name for name in run.files if any(each.outcome == "passed" for each in tried.get(name, ())))
    rest = remaining_plan(plan, passed)
    assert [step.id for step in rest.steps] == [plan.steps[-1].id]


def only_parse(path: Path) -> None:
    with (path / "journal.jsonl").open("rb") as lines:
        journal = [json.loads(line) for line in lines]
    manifest = json.loads((path / "manifest.json").read_bytes())
    assert journal
    assert manifest


def cpu_s(action: Callable[[], None]) -> float:
    began = time.process_time()
    action()
    return time.process_time() - began


def main() -> None:
    """Print the row."""
    gc.set_threshold(COLLECT_AFTER)  # as the command line does
    names = [f"b{number}" for number in range(STEPS)]
    steps = [
        Step(id=f"{name}.D0", bench=name, phase="run", argv=("true",), group=name, needs_data=False) for name in names
    ]
    plan = Plan(phase="run", steps=tuple(steps))
    with tempfile.TemporaryDirectory() as folder:
        path = written_run(Path(folder), plan)
        found = in_turn(
            {
                "all": partial(cpu_s, partial(read_and_decide, path, plan)),
                "json": partial(cpu_s, partial(only_parse, path)),
            },
            ROUNDS,
        )
    took, bare = (statistics.median(found[name]) for name in ("all", "json"))
    show(
        [
            Row(
                f"a run of {STEPS:,} steps: read, and its rest decided, CPU",
                "json.loads of its journal and manifest",
                ratios(found, "all", "json"),
                2.0,
                f"{took:.2f} and {bare:.2f} s",
            )
        ]
    )


if __name__ == "__main__":
    main()
