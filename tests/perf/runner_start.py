"""What the runner's start costs: CPU of a program that does nothing, under it and under plain Python, without torch.

    python tests/perf/runner_start.py

The row is the difference, in events of the yardstick that was taken in the same round. Run by hand, it also prints what voir's
own command takes, and what a voirfile adds: one of phases and probes, and one that asks for voir.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path

from rows import Row, command_cost, in_turn, in_yardsticks, show, yardstick_ns

ROUNDS = 15
GOAL_S = 0.1
PLAIN, RUNNER, YARDSTICK = "python", "benchmate.run", "yardstick"
PROBES = "from benchmate import probes\n\ndef instrument_main(ov):\n    yield ov.phases.load_script\n"
ASKING = f"{PROBES}    ov.given\n"


def cpu(*argv: str) -> float:
    return command_cost((sys.executable, *argv), VOIRFILE="")[0]


def commands(folder: Path) -> dict[str, tuple[str, ...]]:
    """The ways to start a program that does nothing; those of the row first."""
    script, probes, asking = (folder / name for name in ("empty.py", "probes.py", "asking.py"))
    script.write_text("pass\n")
    probes.write_text(PROBES)
    asking.write_text(ASKING)
    run = ("-m", "benchmate.run")
    ways: dict[str, tuple[str, ...]] = {PLAIN: (str(script),), RUNNER: (*run, str(script))}
    if "--json" not in sys.argv:
        ways["python, import benchmate"] = ("-c", "import benchmate")
        ways["benchmate.run, a voirfile of probes"] = (*run, "--voirfile", str(probes), str(script))
        ways["benchmate.run, a voirfile that uses voir"] = (*run, "--voirfile", str(asking), str(script))
        ways["voir's own command"] = ("-m", "voir", str(script))
    return ways


def main() -> None:
    """Print the row."""
    with tempfile.TemporaryDirectory() as name:
        ways = commands(Path(name))
        measures = {way: partial(cpu, *argv) for way, argv in ways.items()}
        found = in_turn({**measures, YARDSTICK: yardstick_ns}, ROUNDS)
    medians = {way: statistics.median(values) * 1e3 for way, values in found.items()}
    for way in ways:
        if way not in (PLAIN, RUNNER):
            print(f"{way:42} {medians[way]:6.0f} ms of CPU, {medians[way] - medians[PLAIN]:+5.0f} over plain python")
    ratios = tuple(
        (run - plain) * 1e9 / event
        for run, plain, event in zip(found[RUNNER], found[PLAIN], found[YARDSTICK], strict=True)
    )
    seen = f"{medians[RUNNER]:.0f} and {medians[PLAIN]:.0f} ms"
    what = "start of the runner, less plain python's, CPU without torch"
    show([Row(what, "a bare event and append", ratios, in_yardsticks(GOAL_S), seen)])


if __name__ == "__main__":
    main()
