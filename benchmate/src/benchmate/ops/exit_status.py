"""How the commands of operators and traces end: their exit code, and an error in one line."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from benchmate.ops.errors import OperatorFailed, OpsError


def run_command(work: Callable[[], int]) -> int:
    """Do the work of a command; return its exit code: 1 where an operator failed, 2 for a wrong request, 130 on Ctrl-C."""
    try:
        return work()
    except OpsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OperatorFailed as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader has seen enough (`--expand | head`); Python must not flush into the broken pipe at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
