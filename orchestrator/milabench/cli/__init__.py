"""The command line: one module per verb. This one starts them, and holds the only `except` of the control plane."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import sys
from typing import Any, BinaryIO, NoReturn, TextIO, cast

from milabench.errors import DONE, INTERRUPTED, NOT_WRITTEN, MilabenchError
from milabench.execute.interrupts import InterruptRequested, Interrupts
from milabench.redaction import learn, mask, mask_argument, mask_bytes, values_in, values_in_environment
from milabench.shown import visible

MAX_LINE = 4_000  # characters of a line of an error
COMPLETION = "_MILABENCH_COMPLETE"  # set by the completion of a shell
# Objects, more than a start makes; Python's own 700 is for programs that make more garbage than they keep.
COLLECT_AFTER = 200_000


class MaskedStream:
    """Standard output without secrets, whoever writes to it."""

    def __init__(self, stream: TextIO | BinaryIO) -> None:
        self._stream: Any = stream

    def write(self, text: str | bytes) -> int:
        """Write with known secrets masked."""
        self._stream.write(mask(text) if isinstance(text, str) else mask_bytes(text))
        return len(text)

    @property
    def buffer(self) -> MaskedStream:
        """The stream that takes bytes."""
        return MaskedStream(self._stream.buffer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class UnbreakableStream(MaskedStream):
    """Standard error that may fail: a closed pipe or a full disk behind it does not end a command."""

    def write(self, text: str | bytes) -> int:
        """Write the text, or drop it where it cannot be written."""
        with contextlib.suppress(OSError, ValueError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        """Flush the stream, or drop its text where it cannot be written."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()


class VisibleStream:
    """A standard stream on which foreign text does nothing to a terminal. `unfiltered` is the stream itself."""

    def __init__(self, stream: TextIO) -> None:
        self.unfiltered = stream

    def write(self, text: str) -> int:
        """Write the text, with a sign for each character that must not be shown or that the stream's encoding lacks."""
        text = visible(text)
        try:
            self.unfiltered.write(text)
        except UnicodeEncodeError:
            encoding = self.unfiltered.encoding
            self.unfiltered.write(text.encode(encoding, "backslashreplace").decode(encoding))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unfiltered, name)


def program() -> NoReturn:
    """Run `main` in a process of its own, and end at once: Python would first free every object, for 20 ms."""
    _reopen_closed_streams()
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
        if code != NOT_WRITTEN:  # else it has been reported: what was not written then is not written now
            print(f"error: {_output_error(error)}", file=sys.stderr)
        code = code or NOT_WRITTEN
    sys.stderr.flush()
    os._exit(code)


def _reopen_closed_streams() -> None:
    """Connect closed standard streams (`>&-`) to /dev/null.

    Otherwise a file of the run would get the number of the stream, and a child that inherits it would write over the file.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free: this one
            os.set_inheritable(number, True)
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115  stays


def _hide_arguments() -> None:
    """Overwrite the secrets among our arguments where others read them, by `ps`."""

    def shown(word: str) -> str:
        return mask(mask_argument(word))

    if all(shown(word) == word for word in sys.argv):
        return
    import ctypes  # they take milliseconds to import, for what is rarely there
    from pathlib import Path

    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_text(errors="replace").rpartition(")")[2].split()
        start, end = map(int, fields[45:47])
        words = ctypes.string_at(start, end - start).split(b"\0")
        hidden = [os.fsencode(shown(os.fsdecode(word)))[: len(word)].ljust(len(word), b"*") for word in words]
        ctypes.memmove(start, b"\0".join(hidden), end - start)


def _output_error(error: Exception) -> str:
    """Return the error as a line: `output: no space left on device`."""
    what = error.strerror if isinstance(error, OSError) else None
    return f"{getattr(error, 'filename', None) or 'output'}: {(what or str(error)).lower()}"


def main() -> NoReturn:
    """Run the command line and end with its exit code (docs/reference/protocol.md, section 5)."""
    # Nothing that we or our children make can be written by everybody, also where the umask would allow that.
    os.umask(os.umask(0o077) | 0o002)
    interrupts = Interrupts()
    learn([*values_in_environment(os.environ), *values_in(sys.argv)])
    _hide_arguments()
    sys.stdout = cast(TextIO, MaskedStream(sys.stdout))
    sys.stderr = cast(TextIO, UnbreakableStream(sys.stderr))
    try:
        interrupts.take_over()
        code = run_command_line()
        interrupts.ignore_all()
    except (InterruptRequested, Exception) as error:  # raised once, so nothing interrupts this line
        # Some libraries, Python's own among them, turn an exception raised inside them into another one.
        if not isinstance(error, InterruptRequested) and not interrupts.was_raised:
            raise
        print("interrupted", file=sys.stderr)
        code = INTERRUPTED
        interrupts.ignore_all()
    sys.exit(code)


def run_command_line() -> int:
    """Return the exit code. Only signal handling is imported before this call."""
    # Imports make tens of thousands of objects that all stay; collecting garbage among them costs a tenth of the start.
    gc.set_threshold(COLLECT_AFTER)
    out, err = (cast("TextIO", VisibleStream(stream)) for stream in (sys.stdout, sys.stderr))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        return _exit_code_of_verb()


def _error_text(text: str) -> str:
    """Return the printed text of an error. A name in it may be as long as a file."""
    lines = f"error: {text}".split("\n")
    return "\n".join(line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]}..." for line in lines)


def _show_front_page(*, has_all: bool) -> int:
    """Print a page about all of milabench without click, whose import takes longer than all the rest."""
    from milabench.cli.front_page import front_page, terminal_width

    try:
        print(front_page(terminal_width(), has_all=has_all), flush=True)  # a pipe's reader reads all of it at once
    except BrokenPipeError:
        return NOT_WRITTEN
    except OSError as error:
        print(_error_text(_output_error(error)), file=sys.stderr)
        return NOT_WRITTEN
    return DONE


def _exit_code_of_verb() -> int:
    if sys.argv[1:] in (["--help"], ["-h"], ["help"], ["--help-all"]) and COMPLETION not in os.environ:
        return _show_front_page(has_all=sys.argv[1] == "--help-all")
    import click

    from milabench.cli.front_page import PROGRAM
    from milabench.cli.verbs import verbs

    try:
        code = verbs.main(prog_name=PROGRAM, standalone_mode=False)
    except (MilabenchError, OSError) as error:
        if "--traceback" in sys.argv:
            raise
        click.echo(_error_text(str(error) if isinstance(error, MilabenchError) else _output_error(error)), err=True)
        return error.exit_code if isinstance(error, MilabenchError) else NOT_WRITTEN
    except click.ClickException as error:
        text = error.format_message()
        words = error.ctx.command.params if isinstance(error, click.UsageError) and error.ctx else ()
        if text.startswith("Got unexpected extra argument") and any(param.name == "select" for param in words):
            text += ". Choose benchmarks with --select NAME"
        # A group of verbs without a verb: click's message is then the help.
        click.echo(text if text.startswith("Usage:") else _error_text(text), err=True)
        return error.exit_code
    except click.Abort:
        raise InterruptRequested from None
    except SystemExit as end:
        # Only click raises it: after a completion, and with a 1, which is a failed step's, when whoever reads our output has
        # gone (`| head -1`).
        return NOT_WRITTEN if end.code else DONE
    return code if isinstance(code, int) else 0
