"""What the commands that a user types often cost: CPU, as multiples of a bare interpreter, median of interleaved runs.

    python tests/perf/startup.py [BASE]

With BASE, a base in which config/quickstart.yaml is installed and prepared, also `install` and `prepare` with nothing to do.
"""

from __future__ import annotations

import statistics
import sys
from functools import partial

from rows import Row, command_cost, in_turn, ratios, show

ROUNDS = 15
BARE = "bare interpreter"
GOALS = {"milabench --help": 3.5}


# What a shell asks at a tab behind `milabench run --select `.
TAB = {"_MILABENCH_COMPLETE": "bash_complete", "COMP_WORDS": "milabench run --select ", "COMP_CWORD": "3"}


def cpu(*argv: str, **environ: str) -> float:
    return command_cost((sys.executable, *argv), **environ)[0]


def main() -> None:
    """Print a row for each command."""
    bases = [word for word in sys.argv[1:] if not word.startswith("--")]
    milabench = ("-m", "milabench")
    commands = {BARE: ("-c", "pass"), "milabench --help": (*milabench, "--help")}
    if "--json" not in sys.argv:
        commands["milabench --version"] = (*milabench, "--version")
        commands["milabench list"] = (*milabench, "list", "--config", "config/quickstart.yaml")
        commands["milabench report --help"] = (*milabench, "report", "--help")
    for base in bases[:1]:
        suite = ("--config", "config/quickstart.yaml", "--base", base)
        commands["install, nothing to do"] = (*milabench, "install", *suite)
        commands["prepare, nothing to do"] = (*milabench, "prepare", *suite)
    measures = {name: partial(cpu, *argv) for name, argv in commands.items()}
    if "--json" not in sys.argv:
        measures["tab behind --select"] = partial(cpu, *milabench, **TAB)
    found = in_turn(measures, ROUNDS)
    medians = {name: statistics.median(values) * 1e3 for name, values in found.items()}
    for name in measures:
        if name not in GOALS:
            print(f"{name:24} {medians[name]:6.0f} ms of CPU, {medians[name] / medians[BARE]:5.1f} x bare")
    show(
        [
            Row(
                f"`{name}`, CPU",
                BARE,
                ratios(found, name, BARE),
                GOALS[name],
                f"{medians[name]:.0f} and {medians[BARE]:.0f} ms",
            )
            for name in commands
            if name in GOALS
        ]
    )


if __name__ == "__main__":
    main()
