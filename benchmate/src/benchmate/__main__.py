"""`python -m benchmate demo`: a plain training script, its own or the user's, observed without milabench."""

from __future__ import annotations

import sys
from pathlib import Path

USAGE = "usage: python -m benchmate demo [STEPS | SCRIPT.py [ARGUMENTS...]]"


def main(argv: list[str]) -> int:
    """Run the demo. Returns the exit code."""
    if not argv or argv[0] != "demo":
        print(USAGE, file=sys.stderr)
        return 2
    if len(argv) > 1 and Path(argv[1]).is_file():
        from benchmate import demo, run

        return run.main(["--voirfile", demo.__file__, *argv[1:]])
    try:
        (steps,) = [int(word) for word in argv[1:]] or [200]
    except ValueError:
        print(f"{USAGE}: expected a number or an existing script, got {' '.join(argv[1:])!r}", file=sys.stderr)
        return 2
    from benchmate import demo

    demo.run_demo(steps)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
