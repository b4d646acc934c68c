"""The command line: one module per command; this one names them, and holds the only `except` of the control plane."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import sys
from typing import Any, NoReturn, TextIO, cast

from milabench.errors import INTERRUPTED, NOT_WRITTEN, MilabenchError
from milabench.execute.interrupts import InterruptRequested, Interrupts

PROGRAM = "milabench"
COLLECT_AFTER = 50_000  # objects; Python's own 700 is for programs that make more garbage than they keep
# Each verb's help stands here so that `--help` and completion import none of the modules behind it.
COMMANDS = {
    "install": "Make the environments of the selected benchmarks and fetch their programs.",
    "prepare": "Make or fetch the data and models that the selected benchmarks need.",
    "run": "Run and measure the selected benchmarks.",
    "resume": "Go on with a run that was cut off, or run what failed in it.",
    "report": "Report on runs.",
    "compare": "Compare systems: which is faster, by how much, and how sure that is.",
    "accept": "Hold a run against acceptance criteria.",
    "baseline": "Compute what is expected of the nodes and devices of a fleet.",
    "outliers": "Name the nodes and devices that fall out of a baseline.",
    "bundle": "Pack runs into one file that tells when it was changed.",
    "verify": "Recompute every hash and number of a bundle.",
    "db": "Keep and query the results of many runs.",
    "history": "Show how a benchmark's number went on, and where it changed.",
    "import": "Make runs of results of milabench 1.3 and of nccl-tests.",
    "export": "Write the results of runs to a Parquet file.",
    "runs": "List the runs with their verdicts.",
    "status": "Say how far a run is.",
    "logs": "Show what a step said.",
    "cancel": "End a run that is going on.",
    "replay": "Show a run again as it went on.",
    "cleanup": "End what dead runs left.",
    "list": "List the benchmarks of the suite.",
    "plan": "Show what install, prepare or run would do.",
    "config": "Show, explain or check what the suite means.",
    "size": "Find the largest batch size of a benchmark that fits.",
    "driver": "Run a task of a .cfg file and take its metrics from its log.",
    "timing-audit": "Show how the way of timing a model's call changes what is read.",
    "ops": "Time operators, record and replay execution traces.",
    "nodes": "Check the machines of a system.",
    "dev": "Open a shell in a benchmark's environment, or run a command there.",
    "doctor": "Say what this machine is and whether the suite can run on it.",
    "new": "Make a benchmark from a template.",
    "pin": "Write the lock files of the selected benchmarks.",
    "completion": "Print what makes a shell complete commands, options and names.",
}


class UnbreakableStream:
    """Standard error that nobody need read: a closed pipe or a full disk behind it ends no run and no install."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, or drop what cannot be written."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, or drop what cannot be written."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def program() -> NoReturn:
    """`main` for a process of its own, which ends at once: Python would first take every object apart, for 20 ms."""
    _open_what_is_closed()
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = code or NOT_WRITTEN
    except (OSError, ValueError) as error:
        if code != NOT_WRITTEN:  # else it has been said: what was not written then is not written now
            print(f"error: {_of_output(error)}", file=sys.stderr)
        code = code or NOT_WRITTEN
    sys.stderr.flush()
    os._exit(code)


def _open_what_is_closed() -> None:
    """Let nothing come in and go out where a standard stream was closed (`>&-`).

    Otherwise a file of the run would get the number of the stream, and would be written over by whoever inherits it.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free: this one
            os.set_inheritable(number, True)
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115  stays


def _of_output(error: Exception) -> str:
    """`output: no space left on device`."""
    what = error.strerror if isinstance(error, OSError) else None
    return f"{getattr(error, 'filename', None) or 'output'}: {(what or str(error)).lower()}"


def main() -> NoReturn:
    """Run the command line and end with its exit code (docs/protocol.md, section 5)."""
    interrupts = Interrupts()
    sys.stderr = cast(TextIO, UnbreakableStream(sys.stderr))
    try:
        interrupts.take_over()
        code = _carry_out_the_command_line()
        interrupts.over()
    except (InterruptRequested, Exception) as error:  # it is raised once, so nothing strikes this line
        # Some places, Python's own among them, make another error of what was raised in them.
        if not isinstance(error, InterruptRequested) and not interrupts.was_asked:
            raise
        print("interrupted", file=sys.stderr)
        code = INTERRUPTED
        interrupts.over()
    sys.exit(code)


def _carry_out_the_command_line() -> int:
    """The exit code. Nothing is imported before this but what takes the signals over."""
    # Imports make tens of thousands of objects that all stay; looking through them again and again costs a tenth of the start.
    gc.set_threshold(COLLECT_AFTER)
    import click

    from milabench.cli.verbs import verbs

    try:
        code = verbs.main(prog_name=PROGRAM, standalone_mode=False)
    except MilabenchError as error:
        if "--traceback" in sys.argv:
            raise
        click.echo(f"error: {error}", err=True)
        return error.exit_code
    except click.ClickException as error:
        text = error.format_message()
        # A group of verbs without a verb: click's message is then the help.
        click.echo(text if text.startswith("Usage:") else f"error: {text}", err=True)
        return error.exit_code
    except click.Abort:
        raise InterruptRequested from None
    except OSError as error:
        if "--traceback" in sys.argv:
            raise
        click.echo(f"error: {_of_output(error)}", err=True)
        return NOT_WRITTEN
    return code if isinstance(code, int) else 0
