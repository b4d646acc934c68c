"""What can go wrong before and while operators are measured, in words for a person, and how a command ends of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from benchmate.errors import BenchmateError


class OpsError(BenchmateError):
    """A mistake in a configuration, an option or a name: nothing runs, exit code 2."""


class OperatorFailed(BenchmateError):
    """An operator that could not be built, fed or run with one input: its record says so and the run goes on."""


class OperatorSkipped(BenchmateError):
    """An operator that this machine cannot have (a package, an accelerator, a second process); the message is the reason."""


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text: torch's have traces of C++ below it."""
    return next(iter(str(error).strip().splitlines()), "")


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
