"""Common types of the modules here: values from outside (torch, JSON), and errors, in words for a person.

Importing this package must not need torch.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from benchmate.errors import BenchmateError

if TYPE_CHECKING:
    import torch

# Types of torch by name, for annotations alone, which are never evaluated.
DType: TypeAlias = "torch.dtype"
Event: TypeAlias = "torch.cuda.Event"
FunctionSchema: TypeAlias = "torch.FunctionSchema"
Generator: TypeAlias = "torch.Generator"
OpOverload: TypeAlias = "torch._ops.OpOverload"
OpOverloadPacket: TypeAlias = "torch._ops.OpOverloadPacket"
Storage: TypeAlias = "torch.UntypedStorage"
Tensor: TypeAlias = "torch.Tensor"
Work: TypeAlias = "torch.distributed.Work"

Call = Callable[[], object]
"""A call with its arguments bound, to be timed."""
Arguments = Sequence[object]
"""Positional arguments of an operator: tensors, numbers, lists, whatever its schema says."""
Keywords = dict[str, object]
"""Keyword arguments of an operator."""
JsonObject = dict[str, Any]
"""An object to be written: a record of a run, a configuration."""
JsonMapping = Mapping[str, Any]
"""An object that was read: a configuration, the specification of an argument, a record."""


class OpsError(BenchmateError):
    """A mistake in a configuration, an option or a name: nothing runs, exit code 2."""


class OperatorFailed(BenchmateError):
    """An operator that could not be built, fed or run with an input: its record says so and the run goes on."""


class OperatorSkipped(BenchmateError):
    """An operator that this machine cannot have (a package, an accelerator, a second process). The message is the reason."""


class UnknownOperator(OperatorSkipped):
    """An operator whose name means nothing: the others of its configuration run all the same."""


def write_whole(path: str | None, text: str) -> None:
    """Write the file of -o: the whole, or nothing and the file as it was. Into a pipe or device as it comes. Raises OpsError.

    Without a path to standard output.
    """
    if path is None:
        sys.stdout.write(text)
        return
    target = Path(path)
    try:
        if target.exists() and not target.is_file():
            target.write_text(text, encoding="utf-8")
            return
        target = target.resolve()
        if target.exists() and all((target.parent / name).is_file() for name in ("manifest.json", "journal.jsonl")):
            raise OpsError(f"-o {path}: is a record of a run. Choose another name")
        draft = target.with_name(f".{os.urandom(8).hex()}.tmp")
        try:
            with draft.open("x", encoding="utf-8") as file:
                file.write(text)
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise OpsError(f"-o {path}: {error.strerror}") from error


def quiet_torch() -> None:
    """Keep torch's own messages, at its import and later, out of a command's output.

    That numpy is not installed, that its observer begins, that its profiler ends: nothing that the user could act on.
    """
    warnings.filterwarnings("ignore", module=r"torch\.")
    for variable, level in (("TORCH_CPP_LOG_LEVEL", "ERROR"), ("KINETO_LOG_LEVEL", "6")):
        os.environ.setdefault(variable, level)


def import_torch() -> None:
    """Import torch, quietly. Raises OpsError where it cannot be imported."""
    quiet_torch()
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise OpsError(f"torch cannot be imported: {error}. Operators run in an environment that has it") from error


# What a terminal acts on, what turns a line around, and halves of characters, which no file can be written with.
_LONGEST = 4000  # characters of an error: a value in it may be a whole file
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Return text from a file of somebody else as a terminal may have it: unreadable characters are escaped."""
    return _UNPRINTABLE.sub(lambda match: ascii(match[0])[1:-1], text)


def _error_line(error: Exception) -> str:
    text = str(error)
    return f"error: {printable(text if len(text) <= _LONGEST else f'{text[:_LONGEST]}...')}"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text: torch's have traces of C++ below it."""
    return next(iter(str(error).strip().splitlines()), "")


def run_command(work: Callable[[], int]) -> int:
    """Do the work of a command. Return its exit code: 1 where an operator failed, 2 for a wrong request, 130 on Ctrl-C."""
    try:
        return work()
    except (OpsError, OperatorFailed) as error:
        print(_error_line(error), file=sys.stderr)
        return 2 if isinstance(error, OpsError) else 1
    except MemoryError:
        print("error: out-of-memory: reading and planning took more than there is", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader has seen enough (`--expand | head`); Python must not flush into the broken pipe at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
