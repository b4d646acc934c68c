"""`python -m benchmate demo`: a training script of its own, observed without any orchestrator."""

from __future__ import annotations

import sys

USAGE = "usage: python -m benchmate demo [STEPS]"


def main(argv: list[str]) -> int:
    """Run the demo; returns the exit code."""
    if not argv or argv[0] != "demo" or len(argv) > 2:
        print(USAGE, file=sys.stderr)
        return 2
    try:
        steps = int(argv[1]) if len(argv) == 2 else 200
    except ValueError:
        print(f"{USAGE}: expected a number, got {argv[1]!r}", file=sys.stderr)
        return 2
    from benchmate import demo

    demo.run(steps)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
