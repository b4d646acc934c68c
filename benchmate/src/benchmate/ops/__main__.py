"""`python -m benchmate.ops`: run a configuration, or a sub-command."""

from __future__ import annotations

import importlib
import sys

# Sub-commands: a module of this package each, with main(argv) -> exit code; imported when named.
COMMANDS = {"trace": "traces.cli", "run_batch": "run_batch", "nsys_analysis": "nsys_analysis", "alias": "alias"}


def main(argv: list[str]) -> int:
    """Run the command of the first word, by default the benchmark itself. Return the exit code."""
    if argv and argv[0] in COMMANDS:
        return int(importlib.import_module(f"benchmate.ops.{COMMANDS[argv[0]]}").main(argv[1:]))
    return int(importlib.import_module("benchmate.ops.cli").main(argv))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
