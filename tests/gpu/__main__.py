"""What only an accelerator can show: `make gpu PART=1`, or `python -m tests.gpu --part 1` in an environment with milabench.

Without an accelerator the same programs run, shortened, with a simulated one, and say what that cannot show.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path

from tests.gpu.parts import PARTS
from tests.gpu.runner import PART_S, Results, describe, probe, run_part


def end_at_term() -> None:
    """End at SIGTERM as at the end of a program: the one that runs is ended too, and the results stay as they are."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def main(argv: list[str]) -> int:
    """Run a part; the exit code is 1 where a program failed, 2 for a wrong command."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    parser.add_argument("--part", type=int, choices=sorted(PARTS), default=1)
    parser.add_argument(
        "--out", type=Path, default=Path("results/gpu"), help="folder of the results (default: %(default)s)"
    )
    parser.add_argument("--from", dest="first", metavar="PROGRAM", help="leave out the programs before this one")
    parser.add_argument("--only", metavar="PROGRAM,...", help="run these alone")
    parser.add_argument("--seconds", type=float, default=PART_S, help="for the whole part (default: %(default)g)")
    parser.add_argument("--list", action="store_true", help="name the programs of the part")
    asked = parser.parse_args(argv)
    programs = PARTS[asked.part]
    names = [program.name for program in programs]
    wanted = asked.only.split(",") if asked.only else names
    for name in (*wanted, *([asked.first] if asked.first else [])):
        if name not in names:
            parser.error(f"part {asked.part} has no program {name}; it has {', '.join(names)}")
    start = names.index(asked.first) if asked.first else 0
    programs = [program for program in programs[start:] if program.name in wanted]
    if asked.list:
        for program in programs:
            print(f"{program.name:24} {program.what}")
        return 0
    end_at_term()
    # Making the environment took time of the part, too.
    start = time.monotonic() - max(0.0, time.time() - float(os.environ.get("GPU_BEGAN") or "inf"))
    machine = probe()
    results = Results(asked.out, asked.part, machine)
    print(f"part {asked.part}: {len(programs)} programs, at most {asked.seconds:g} s", flush=True)
    failed = run_part(programs, results, machine, asked.seconds - (time.monotonic() - start))
    print(
        f"{describe(results.head)}: {failed} failed; {results.table} has the table, {results.log} the output of what failed"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
