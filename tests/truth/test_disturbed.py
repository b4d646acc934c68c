"""The interval of a number against the undisturbed rate, by the clock of the program, beside disturbances that come by chance."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from statistics import geometric_mean

import pytest

from tests.commands import milabench_in
from tests.processes import started

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(1200)]

RUNS, LAUNCHES = 20, 3
SPIN = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"


def freeze(pid: int, seconds: float, ended: threading.Event) -> None:
    """Stop a process for a while, as a machine that swaps does."""
    try:
        os.kill(pid, signal.SIGSTOP)
        ended.wait(seconds)
    finally:
        os.kill(pid, signal.SIGCONT)


def load(processor: int, seconds: float, ended: threading.Event) -> None:
    """Use the processor of a process for a while, as a job of somebody else does."""
    with started([sys.executable, "-c", SPIN, str(processor)]) as job:
        ended.wait(seconds)
        job.kill()


def disturb(launch: Path, chance: random.Random, ended: threading.Event) -> None:
    """Disturb a launch: one in three not at all, one by freezes, one by a load; it takes four seconds or more."""
    pid, processor = int(launch.suffix[1:]), int(launch.read_text())
    kind = chance.choice(("none", "freezes", "load"))
    with contextlib.suppress(ProcessLookupError):
        for _ in range(chance.randint(1, 3) if kind == "freezes" else int(kind == "load")):
            ended.wait(chance.uniform(0.5, 1.5))
            if kind == "freezes":
                freeze(pid, chance.uniform(0.1, 0.8), ended)
            else:
                load(processor, chance.uniform(0.3, 2.5), ended)


@contextlib.contextmanager
def disturbances(folder: Path) -> Iterator[None]:
    """Disturb each launch that says where it runs, below a folder."""
    chance, ended, seen = random.Random(37), threading.Event(), set[Path]()
    at_work: list[threading.Thread] = []

    def watch() -> None:
        while not ended.wait(0.05):
            for launch in sorted({*folder.glob("*/launch.*")} - seen):
                seen.add(launch)
                at_work.append(threading.Thread(target=disturb, args=(launch, random.Random(chance.random()), ended)))
                at_work[-1].start()

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        for thread in (watching, *at_work):
            thread.join()


def test_the_undisturbed_rate_lies_in_the_interval_of_19_of_20_runs(tmp_path: Path) -> None:
    shutil.copytree(Path(__file__).parent / "disturbed", tmp_path / "disturbed")
    names = [f"run{number:02}" for number in range(RUNS)]
    common = "definition: disturbed, install_group: disturbed, install_variant: unpinned, max_duration: 120"
    text = ["profile: quick", f"_one: {{{common}, plan: {{method: njobs, n: 1}}}}"]
    suite = tmp_path / "suite.yaml"
    suite.write_text("\n".join([*text, *(f"{name}: {{inherits: _one}}" for name in names)]) + "\n")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MILABENCH_")}
    base = tmp_path / "base"
    milabench = milabench_in({**kept, "MILABENCH_BASE": str(base), "MILABENCH_LOCK_DIR": str(tmp_path / "locks")})
    with disturbances(base / "data"):
        said = milabench("run", "--use-current-env", "--config", str(suite), "--repeat", str(LAUNCHES))
    assert said.code == 0, said.err
    found = []
    for bench in json.loads(milabench("report", "--json").out)["benchmarks"]:
        own = [path.read_text().split() for path in (base / "data" / bench["bench"]).glob("own.*")]
        assert len(own) == LAUNCHES
        rate, known = geometric_mean(int(steps) / int(ns) * 1e9 for steps, ns in own), bench["uncertainty"]
        found.append((known["low"] <= rate <= known["high"], bench["bench"], rate, bench["perf"], known))
    assert len(found) == RUNS
    missed = [each for is_inside, *each in found if not is_inside]
    assert len(missed) <= 1, missed
    # They were disturbed: otherwise nothing is shown.
    assert sum(perf < 0.98 * rate for _, _, rate, perf, _ in found) >= RUNS / 2
