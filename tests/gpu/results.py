"""Puts the results of `make gpu` into the documentation: `python tests/gpu/results.py write FOLDER`.

docs/measurements.md gets every number with its goal, under the device, driver, torch and date. config/seen.json gets the memory
and minutes of each benchmark that were seen; docs/suite.md is generated from it. Results of simulated accelerators are refused.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.gpu.runner import ROOT, describe, shown_value

MEASUREMENTS: Final = ROOT / "docs" / "measurements.md"
SEEN: Final = ROOT / "config" / "seen.json"
BEGIN, END = "<!-- gpu: begin, written by tests/gpu/results.py -->", "<!-- gpu: end -->"
MEMORY, MINUTES = "peak memory of the device", "minutes, prepared and run"

Part = tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]
"""The machine of a part, and its programs."""


def read_parts(folder: Path) -> list[Part]:
    """Return the parts in a folder. Raises SystemExit, with the reason, where there is none, or one is of a simulation."""
    parts = []
    for path in sorted(folder.glob("part*.jsonl")):
        try:
            head, *programs = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
            simulated = head["simulated"]
        except (ValueError, KeyError, TypeError) as error:
            raise SystemExit(f"error: {path}: is not a result of `make gpu`: {error}") from None
        if simulated:
            raise SystemExit(
                f"error: {path}: is of simulated accelerators; only those of real ones belong into the documentation"
            )
        parts.append((head, programs))
    if not parts:
        raise SystemExit(f"error: {folder}: has no part1.jsonl to part5.jsonl; run `make gpu PART=1`")
    return parts


def measurements_section(parts: Sequence[Part]) -> str:
    """Return what docs/measurements.md says of the accelerator: every number with its goal, and what failed or was skipped."""
    lines = [BEGIN, ""]
    for where in dict.fromkeys(describe(head) for head, _ in parts):
        lines += [f"{where}; `make gpu`.", ""]
    lines += ["| program | what | value | goal | met |", "|---|---|---|---|---|"]
    words = {True: "yes", False: "no", None: "-"}
    for _, programs in parts:
        for found in programs:
            for line in found["numbers"]:
                cells = (
                    f"`{found['program']}`",
                    line["what"],
                    shown_value(line),
                    line["goal"] or "-",
                    words[line["met"]],
                )
                lines.append(f"| {' | '.join(_cell(cell) for cell in cells)} |")
    for outcome, title in (("failed", "Failed"), ("skipped", "Not shown")):
        kept = [found for _, programs in parts for found in programs if found["outcome"] == outcome]
        if kept:
            lines += ["", f"{title}:", ""]
            lines += [f"- `{found['program']}`: {_cell(found['reason'])}" for found in kept]
    return "\n".join([*lines, "", END])


def seen_benchmarks(parts: Sequence[Part]) -> dict[str, Any]:
    """Return what config/seen.json holds: where, and of each benchmark the outcome, the memory, the minutes and the reason."""
    kept = [(head, programs) for head, programs in parts if head["part"] in (3, 4)]
    benchmarks = {}
    for _, programs in kept:
        for found in programs:
            if found["outcome"] != "skipped":
                seen = {line["what"]: shown_value(line) for line in found["numbers"]}
                benchmarks[found["program"]] = {
                    "outcome": found["outcome"],
                    "memory": seen.get(MEMORY, ""),
                    "minutes": seen.get(MINUTES, ""),
                    "why": found["reason"],
                }
    return {"where": list(dict.fromkeys(describe(head) for head, _ in kept)), "benchmarks": benchmarks}


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def with_section(text: str, section: str) -> str:
    """Return a page with the section in the place of the one that it has, or under a title of its own at the end."""
    if BEGIN not in text:
        return f"{text.rstrip()}\n\n## On accelerators, by `make gpu`\n\n{section}\n"
    before, _, rest = text.partition(BEGIN)
    return before + section + rest.partition(END)[2]


def main(argv: Sequence[str]) -> int:
    """Write the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    writes = parser.add_subparsers(required=True).add_parser("write", help="put results into the documentation")
    writes.add_argument("folder", type=Path)
    parts = read_parts(parser.parse_args(argv).folder)
    MEASUREMENTS.write_text(
        with_section(MEASUREMENTS.read_text(encoding="utf-8"), measurements_section(parts)), encoding="utf-8"
    )
    seen = seen_benchmarks(parts)
    if seen["benchmarks"]:
        SEEN.write_text(json.dumps(seen, indent=1) + "\n", encoding="utf-8")
    return subprocess.run([sys.executable, str(ROOT / "docs" / "generate.py")], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
