"""Runs commands that it is sent, in this process, and answers each with what is wrong with how it ended.

    python -m tests.fuzz.worker < REQUESTS

A request is a line of JSON, {"argv": [...]}; so is the answer: "defect", "code", "peak_MiB". The folder it starts in is
where the commands run, with their input in `in`. `limit` bounds memory and the size of files; the time is watched from outside.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import json
import os
import re
import resource
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn
from xml.etree import ElementTree

from tests.fuzz.harness import WIRE

MEMORY_MIB = 300
OUTPUT_MIB = 256
EXIT_CODES = (0, 1, 2, 3, 4, 5, 6, 7, 8)
ERRORS = (2, 3, 4, 5, 6)  # that say why in a line of standard error
OPS = "benchmate.ops"
STATEMENTS = "python"  # instead of a command, for tests of the harness
LONGEST_LINE = 20_000  # characters of a message: a person reads it, in a terminal
# What a terminal would act on, and what makes a line look like another: C0 but tab and line feed, DEL, C1, bidi controls.
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def main() -> NoReturn:
    """Answer requests until there are no more."""
    # The answers get a stream of their own: whatever a command prints, also below Python, goes to its files.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    out, err = (
        os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600) for name in ("../out", "../err")
    )
    os.dup2(out, 1)
    os.dup2(err, 2)
    faulthandler.enable()  # SIGABRT, from who watches the time, writes the stack
    _import()
    limit()
    here = Path.cwd()
    print("ready", file=answers)
    for line in sys.stdin:
        argv = json.loads(line)["argv"]
        os.chdir(here)
        os.ftruncate(1, 0)
        os.ftruncate(2, 0)
        _forget_peak()
        code, defect = run(argv)
        peak = _peak_mib()
        if not defect and peak > MEMORY_MIB:
            defect = f"memory: {peak} MiB"
        print(json.dumps({"defect": defect, "code": code, "peak_MiB": peak}), file=answers)
    os._exit(0)


def _import() -> None:
    """Import what commands would, once: the memory of modules is not that of an input."""
    import click

    from milabench.cli import verbs

    for name in ("benchmate.ops.cli", "benchmate.ops.traces.cli", WIRE):
        importlib.import_module(name)
    for name in verbs.COMMANDS:
        verbs.verbs.get_command(click.Context(verbs.verbs), name)


def limit() -> None:
    """Bound this process: so much memory more than it has now, and the size of what it writes."""
    has = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    most = has + (MEMORY_MIB << 20)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_FSIZE, (OUTPUT_MIB << 20, OUTPUT_MIB << 20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def run(argv: list[str]) -> tuple[int, str]:
    """Run a command; return its exit code, and what is wrong with its end, or nothing."""
    try:
        if argv[0] == OPS:
            from benchmate.ops.__main__ import main as ops

            code = ops(argv[1:])
        elif argv[0] == WIRE:
            from tests.fuzz.wire import main as wire

            code = wire(argv[1:])
        elif argv[0] == STATEMENTS:
            exec(argv[1])
            code = 0
        else:
            from milabench.cli import run_command_line

            sys.argv = ["milabench", *argv]
            code = run_command_line()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException as error:  # whatever it is: it is what a person would see
        return 1, describe(error)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return code, wrong_with(argv, code, _text("../out"), _text("../err"))


def describe(error: BaseException) -> str:
    """Return an exception as its type, the place in our code and its message, then its traceback."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/milabench/" in frame.filename]
    frames += [frame for frame in traceback.extract_tb(error.__traceback__) if "/benchmate/" in frame.filename]
    place = f"{Path(frames[-1].filename).name}:{frames[-1].name}" if frames else "?"
    message = str(error).splitlines()[0][:200] if str(error) else ""
    shown = "".join(traceback.format_exception(error))
    return f"traceback: {type(error).__name__} in {place}: {message}\n{shown[-6000:]}"


def wrong_with(argv: list[str], code: int, out: str, err: str) -> str:
    """Return what of exit code and output breaks what is promised of every command."""
    if "Traceback (most recent call last)" in err:
        return f"traceback: on standard error\n{err[-6000:]}"
    if code not in EXIT_CODES:
        return f"exit code: {code} is not documented\n{err[-2000:]}"
    if code in ERRORS and not re.search("^(error: |usage: |.*: error: )", err, re.M) and argv[0] != "verify":
        return f"message: exit code {code} without an error\n{err[-2000:]}"
    if "cannot allocate memory" in err.lower() or "file too large" in err.lower():
        return f"memory: {err[-300:]}"
    longest = max(map(len, err.splitlines()), default=0)
    if longest > LONGEST_LINE:
        return f"message: a line of {longest} characters\n{err[:500]}"
    if control := CONTROL.search(err):
        return f"control: {control[0]!r} on standard error\n{err[max(0, control.start() - 200) :][:400]}"
    return _wrong_with_output(format_of(argv), out) if code in (0, 1, 7, 8) else ""


def format_of(argv: list[str]) -> str:
    """Return the format that a command was told to write."""
    if "--json" in argv:
        return "json"
    return argv[argv.index("--format") + 1] if "--format" in argv else "text"


def _wrong_with_output(form: str, out: str) -> str:
    try:
        match form:
            case "json":
                json.loads(out, parse_constant=_no_constant)
            case "junit":
                ElementTree.fromstring(out)
            case "html":
                if "<script>alert(1)" in out:
                    return "output: a script of the input is a script of the page"
            case _:
                if control := CONTROL.search(out):
                    return f"control: {control[0]!r} in {form}\n{out[max(0, control.start() - 200) :][:400]!r}"
    except (ValueError, ElementTree.ParseError) as error:
        return f"output: not {form}: {error}\n{out[:1000]}"
    return ""


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _text(name: str) -> str:
    return Path(name).read_bytes().decode("utf-8", "backslashreplace")


def _forget_peak() -> None:
    with contextlib.suppress(OSError):  # a kernel without it: the peak is that of all inputs so far
        Path("/proc/self/clear_refs").write_text("5")


def _peak_mib() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) >> 10


if __name__ == "__main__":
    main()
