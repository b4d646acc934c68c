"""`main()` of a program of cases: read the command line, and be the parent, a child or the server of forks that it asks for.

A child imports no more than it needs: whatever is for the parent alone is imported by the parent.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

from benchmate.cases.channel import CLOSED_MEANWHILE, Channel
from benchmate.cases.lifecycle import run_case
from benchmate.cases.options import CaseOptions, Effort, UsageError, parse_options
from benchmate.cases.processes import die_with_parent
from benchmate.cases.registry import REGISTRY, Case, Registry

PASSED, FAILED, USAGE, NOTHING, INTERRUPTED = 0, 1, 2, 3, 130
PARENT = "BENCHMATE_CASES_PARENT"
"""The variable by which a child knows whose it is: that process's number."""

_DESCRIPTOR = re.compile(r"fd:(\d+)")


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the registered cases as the command line says, and exit: 0 all passed, 1 a case did not, 2 usage, 3 nothing matched."""
    code = run_program(sys.argv[1:] if argv is None else argv, REGISTRY)
    if sys.stdout is not None:
        try:
            sys.stdout.flush()
        except OSError as error:
            if code == PASSED:
                print(f"error: standard output: {error.strerror or error}", file=sys.stderr)
                code = FAILED
            os.dup2(
                os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
            )  # else Python tries again, and exits with 120
    sys.exit(code)


def run_program(argv: Sequence[str], registry: Registry) -> int:
    """The same, as an exit code."""
    try:
        options = parse_options(argv, os.environ)
        match options.action:
            case "one":
                return _live_here(options, registry)
            case "list":
                return _list(options, registry)
            case "serve":
                from benchmate.cases.isolation import serve

                die_with_parent(int(os.environ[PARENT]))
                return serve(_descriptor(options.channel), options.preload, _forked(options, registry))
        cases = registry.matching(options.pattern, negated=options.negated)
        if not cases:
            return _nothing(options, registry)
        from benchmate.cases.runner import CaseRunner

        return CaseRunner(options, cases).carry_out()
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE


def _list(options: CaseOptions, registry: Registry) -> int:
    cases = registry.matching(options.pattern, negated=options.negated)
    names = [case.name for case in cases if options.listed.search(case.name)]
    if not names:
        return _nothing(options, registry)
    wants_json = any(output.format == "google-json" and output.path is None for output in options.outputs)
    if wants_json:
        import json

        print(json.dumps({"benchmarks": [{"name": name} for name in names]}, indent=2))
    else:
        print("\n".join(names))
    return PASSED


def _nothing(options: CaseOptions, registry: Registry) -> int:
    if not registry.cases:
        print("error: no cases are registered; put @register(name='...') before a function or class", file=sys.stderr)
    else:
        pattern = options.listed.pattern or options.pattern.pattern
        has_other = "no case has a name without" if options.negated else "no case has a name with"
        print(f"error: {has_other} {pattern!r}; -l lists all {len(registry.cases)}", file=sys.stderr)
    return NOTHING


# ------------------------------------------------------------------------------------------------- in the case's process


def _live_here(options: CaseOptions, registry: Registry) -> int:
    """Run one case in this process, which is its own; the result goes where -s says, else to standard output."""
    case = registry.cases.get(options.name)
    if case is None:
        raise UsageError(f"-r {options.name!r}: no such case; -l lists them")
    if options.channel is None:
        return _live_into(None, case, options.effort)
    if _DESCRIPTOR.fullmatch(options.channel) is None:
        with _opened_channel(options.channel) as descriptor:
            return _live_into(descriptor, case, options.effort)
    if PARENT in os.environ:
        die_with_parent(int(os.environ[PARENT]))
    return _live_into(_descriptor(options.channel), case, options.effort)


def _live_into(descriptor: int | None, case: Case, effort: Effort) -> int:
    channel = None if descriptor is None else Channel(descriptor)
    said = {"name": case.name, **run_case(case, effort)}
    if channel is None:
        from benchmate.records import encode

        print(encode(said).decode())
    elif not channel.send(said):
        return CLOSED_MEANWHILE
    # Failed is what the result says; a parent that gets it needs no exit code, a person at -r does.
    return FAILED if channel is None and said["outcome"] == "failed" else PASSED


def _forked(options: CaseOptions, registry: Registry) -> Callable[[str, int], int]:
    """What the fork of a warm interpreter does."""
    return lambda name, descriptor: _live_into(descriptor, registry.cases[name], options.effort)


def _descriptor(channel: str | None) -> int:
    matched = _DESCRIPTOR.fullmatch(channel or "")
    if matched is None:
        raise UsageError(f"{channel!r}: expected fd:NUMBER; it is the parent's to give")
    try:
        os.fstat(int(matched[1]))
    except OSError:
        raise UsageError(f"{channel}: this descriptor is not open; it is the parent's to give") from None
    return int(matched[1])


@contextlib.contextmanager
def _opened_channel(path: str) -> Iterator[int]:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    except OSError as error:
        raise UsageError(f"-s {path}: {error.strerror}; give a file that can be written, or a named pipe") from None
    try:
        yield descriptor
    finally:
        with contextlib.suppress(OSError):
            os.close(descriptor)
