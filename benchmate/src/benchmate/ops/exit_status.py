"""How the commands of operators and traces end: their exit code, and what went wrong in one line."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from benchmate.ops.errors import OperatorFailed, OpsError


def run_command(work: Callable[[], int]) -> int:
    """What `work` returns; 1 where an operator failed, 2 for a mistake in what was asked for, 130 when interrupted."""
    try:
        return work()
    except OpsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OperatorFailed as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # Who reads has seen enough (`--expand | head`); nothing more can be told, at exit neither.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
