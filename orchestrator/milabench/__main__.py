"""The program `milabench`, and `python -m milabench`; imports nothing before it is ready to report an interrupt in a line."""

import os
import sys
from typing import NoReturn


def run_program() -> NoReturn:
    """Run the command line. Report an interrupt while that is imported, as it reports later ones itself."""
    try:
        from milabench.cli import program  # most of a start

        program()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        os._exit(130)  # errors.INTERRUPTED


if __name__ == "__main__":
    run_program()
