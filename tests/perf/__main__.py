"""What the harness itself costs, as one table: `python tests/perf [--write] [PROGRAM ...]` (`make perf`).

Each program is a process of its own, one after the other; the machine should do nothing else. With `--write` the table is
put into docs/measurements.md as well.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from datetime import date
from pathlib import Path

from rows import ROOT, Row, yardstick_ns

FOLDER = Path(__file__).parent
PROGRAMS = sorted(
    path.stem for path in FOLDER.glob("*.py") if "from rows import" in path.read_text() and path != Path(__file__)
)
"""The programs that have rows; the others of this folder answer other questions and are run by hand."""
PAGE = ROOT / "docs" / "measurements.md"
BEGIN, END = "<!-- perf: begin, written by make perf -->", "<!-- perf: end -->"
HEADINGS = ("what", "over", "median [95 % interval]", "goal", "verdict", "seen")


def measured(program: str) -> list[Row]:
    """What one program found."""
    path = Path(__file__).with_name(f"{program}.py")
    command = [sys.executable, "-W", "ignore", str(path), "--json"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return [Row(**{**each, "ratios": tuple(each["ratios"])}) for each in json.loads(done.stdout.splitlines()[-1])]


def machine() -> str:
    """Where the table was measured, in one line."""
    load = os.getloadavg()[0]
    return (
        f"{date.today()}, {os.cpu_count()} processors, Python {platform.python_version()}, load average {load:.1f} before; "
        f"a bare event and append took {yardstick_ns():.0f} ns"
    )


def page_section(rows: list[Row], where: str) -> str:
    """The table of docs/measurements.md, and why a goal is not met."""
    lines = [BEGIN, "", f"{where}.", "", f"| {' | '.join(HEADINGS)} |", f"|{'---|' * len(HEADINGS)}"]
    lines += [f"| {' | '.join((*row.cells(), row.seen))} |" for row in rows]
    unmet = [row for row in rows if not row.is_met]
    if unmet:
        lines += ["", "Not met, and why:", ""]
        lines += [f"- {row.what}: {row.unmet or 'not explained yet'}" for row in unmet]
    return "\n".join([*lines, "", END])


def write(section: str) -> None:
    """Put the table in the place of the one that stands in the page."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(before + section + after, encoding="utf-8")


def main() -> None:
    """Measure, print, and write where that is asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the table into docs/measurements.md")
    parser.add_argument("programs", nargs="*", default=PROGRAMS, metavar="PROGRAM", help=", ".join(PROGRAMS))
    asked = parser.parse_args()
    unknown = [name for name in asked.programs if name not in PROGRAMS]
    if unknown:
        parser.error(f"no program {', '.join(unknown)}; there are {', '.join(PROGRAMS)}")
    where, rows = machine(), []
    print(where)
    for program in asked.programs:
        for row in measured(program):
            rows.append(row)
            what, over, median, goal, verdict = row.cells()
            print(f"{verdict:8} {what}, over {over}: {median}, {goal}   ({row.seen})", flush=True)
            if not row.is_met and row.unmet:
                print(f"         {row.unmet}")
    met = sum(row.is_met for row in rows)
    print(f"{met} of {len(rows)} goals met")
    if asked.write:
        write(page_section(rows, where))


if __name__ == "__main__":
    main()
