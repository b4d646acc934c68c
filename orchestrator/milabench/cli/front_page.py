"""The pages that `milabench --help` and `--help-all` print: the verbs of the main job, and all of them in groups.

Imports next to nothing, because people wait for these pages most often.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping

from milabench import seams
from milabench.shown import wrapped

PROGRAM = "milabench"
GROUPS = {
    "Set up": {
        "install": "Install the environments and programs of benchmarks",
        "prepare": "Download or generate the data and models of benchmarks",
        "completion": "Print the completion script of a shell",
    },
    "Measure": {
        "plan": "Show the plan of install, prepare or run",
        "run": "Run and measure benchmarks",
        "resume": "Resume an incomplete run, or rerun its failed steps",
    },
    "Follow and manage runs": {},
    "Report, compare and decide": {
        "report": "Report the results of runs",
        "compare": "Compare systems: which is faster, by how much, how surely",
    },
}
for _group, _verbs in GROUPS.items():
    _verbs |= seams.verbs_of(_group)
COMMANDS = {verb: text for verbs in GROUPS.values() for verb, text in verbs.items()}
# In the order in which most people need them.
MAIN = (
    *("quickstart", "doctor", "list", "init", "new", "install", "prepare", "dev"),
    *("run", "status", "resume", "report", "compare", "accept"),
)
# What other programs call: neither listed nor completed.
HIDDEN = seams.verbs_of(seams.HIDDEN)
# What answers with exit code 2, and says what there is instead.
REMOVED = {
    "cleanup": "`milabench gc processes` ends the processes left by crashed runs",
    "gated": "`milabench list --gated` lists the weights and data that need accepted terms",
    "offers": "`milabench offer compare` compares all offers to a tender",
    "rehearse": "in a checkout of milabench, `python -m tests.rehearsal` tries a tender (docs/procurement.md)",
}

ABOUT = "Benchmarks for machine learning systems: install, prepare, run, report."
OPTIONS = {
    "--version": "Print the version.",
    "--traceback": "Show the Python traceback of an error.",
    "--no-color": "Show no colours (NO_COLOR=1).",
    "--help-all": "Show all commands.",
    "-h, --help": "Show this message and exit.",
}
EXIT_CODES = (
    "Exit codes: 0 all passed, 1 a step did not pass, 2 usage or configuration, 3 nothing selected, "
    "4 install or prepare failed, 5 a node could not be reached, 6 records unreadable or altered, "
    "7 acceptance FAIL, 8 acceptance INCONCLUSIVE, 130 interrupted."
)
FIRST = "New here? `milabench quickstart` measures a small suite in about five minutes."
OF_A_COMMAND = (
    "`milabench COMMAND --help` shows the options that most people need, `--help-all` all of them with their variables."
)
NARROWEST, WIDEST = 50, 78  # as click writes the help of a verb


def front_page(width: int, *, has_all: bool = False) -> str:
    """Return the page, in lines of at most `width` characters: of the main job, or of all verbs."""
    rest = len(COMMANDS) - len(MAIN)
    shown = GROUPS if has_all else {"Commands": {verb: COMMANDS[verb] for verb in MAIN if verb in COMMANDS}}
    more = f"{rest} more commands: {PROGRAM} --help-all"
    notes = (EXIT_CODES, OF_A_COMMAND) if has_all else (FIRST, more, OF_A_COMMAND)
    column = [verb for verbs in shown.values() for verb in verbs]
    blocks = [
        [f"Usage: {PROGRAM} [OPTIONS] COMMAND [ARGS]..."],
        wrapped(ABOUT, "  ", width),
        ["Options:", *_table(OPTIONS, OPTIONS, width)],
        *([f"{group}:", *_table(verbs, column, width)] for group, verbs in shown.items()),
        *(wrapped(note, "  ", width) for note in notes),
    ]
    return "\n\n".join("\n".join(block) for block in blocks)


def terminal_width() -> int:
    """Return how wide the page is to be here."""
    columns = os.environ.get("COLUMNS", "")
    try:
        wide = int(columns) if columns.isdigit() else 0
        wide = wide or os.get_terminal_size(sys.__stdout__.fileno() if sys.__stdout__ is not None else 1).columns
    except (OSError, ValueError):  # not a terminal
        wide = 0
    return max(min((wide or 80) - 2, WIDEST), NARROWEST)


def _table(rows: Mapping[str, str], column: Iterable[str], width: int) -> Iterator[str]:
    """Yield the rows in two columns. `column` has all names that are to stand below one another."""
    indent = max(map(len, column)) + 4
    for name, text in rows.items():
        yield from wrapped(text, f"  {name}".ljust(indent), width)
