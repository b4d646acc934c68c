"""The program `milabench`, and `python -m milabench`: it imports nothing before an interrupt is told in a line."""

import os
import sys
from typing import NoReturn


def program() -> NoReturn:
    """Run the command line; an interrupt before that handles signals itself ends as those after it do."""
    try:
        from milabench.cli import program as run  # most of a start: the wait for it is when Ctrl-C comes

        run()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        os._exit(130)  # errors.INTERRUPTED


if __name__ == "__main__":
    program()
