"""`main()` of a program of cases: read the command line, and be the runner, a case's process or the fork server.

A case's process imports only its needs: modules for the runner alone are imported by the runner.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from typing import NoReturn

from benchmate.cases.exit_codes import FAILED, NOTHING_MATCHED, PASSED, USAGE
from benchmate.cases.lifecycle import run_case
from benchmate.cases.options import CaseOptions, RunBudget, UsageError, parse_options
from benchmate.cases.registry import REGISTRY, Case, Registry
from benchmate.result_channel import CHANNEL_CLOSED, ResultChannel, die_with_supervisor

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
            # Else Python flushes again at exit, and exits with 120.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def run_program(argv: Sequence[str], registry: Registry) -> int:
    """Carry out the command line on the cases of a registry. Return the exit code."""
    try:
        options = parse_options(argv, os.environ)
        action = {"one": _run_here, "list": _list, "serve": _serve, "run": _run_all}[options.action]
        return action(options, registry)
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE


def _run_all(options: CaseOptions, registry: Registry) -> int:
    cases = registry.matching(options.pattern, negated=options.negated)
    if not cases:
        return _nothing_matched(options, registry)
    from benchmate.cases.runner import CaseRunner

    return CaseRunner(options, cases).run()


def _list(options: CaseOptions, registry: Registry) -> int:
    cases = registry.matching(options.pattern, negated=options.negated)
    names = [case.name for case in cases if options.listed.search(case.name)]
    if not names:
        return _nothing_matched(options, registry)
    if any(output.format == "google-json" and output.path is None for output in options.outputs):
        import json

        print(json.dumps({"benchmarks": [{"name": name} for name in names]}, indent=2))
    else:
        print("\n".join(names))
    return PASSED


def _nothing_matched(options: CaseOptions, registry: Registry) -> int:
    if not registry.cases:
        print("error: no cases are registered. Put @register(name='...') before a function or class", file=sys.stderr)
    else:
        pattern = options.listed.pattern or options.pattern.pattern
        problem = "no case has a name without" if options.negated else "no case has a name with"
        print(f"error: {problem} {pattern!r}. -l lists all {len(registry.cases)}", file=sys.stderr)
    return NOTHING_MATCHED


# ------------------------------------------------------------------------------------------------- in the case's process


def _run_here(options: CaseOptions, registry: Registry) -> int:
    """Run a case in this process, which is its own. The result goes where -s says, else to standard output."""
    case = registry.cases.get(options.name)
    if case is None:
        raise UsageError(f"-r {options.name!r}: no such case. -l lists them")
    if options.channel is None:
        from benchmate.records import encode

        payload = run_case(case, options.budget)
        print(encode({"name": case.name, **payload}).decode())
        # The runner learns from the payload that a case failed; a person at -r from the exit code.
        return FAILED if payload["outcome"] == "failed" else PASSED
    return _send_case(_open_channel(options.channel), case, options.budget)


def _open_channel(channel: str) -> int:
    """Return the descriptor for a result: inherited from the runner, or of a file or named pipe. Raises UsageError."""
    inherited = _DESCRIPTOR.fullmatch(channel)
    try:
        if inherited is None:
            # Open until this process ends, which it does next: the case itself may close every descriptor.
            return os.open(channel, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        os.fstat(int(inherited[1]))
    except OSError as error:
        if inherited is not None:
            raise UsageError(f"{channel}: this descriptor is not open. Only the runner can open it") from None
        raise UsageError(f"-s {channel}: {error.strerror}. Give a file that can be written, or a named pipe") from None
    die_with_supervisor()
    return int(inherited[1])


def _send_case(descriptor: int, case: Case, budget: RunBudget) -> int:
    channel = ResultChannel(descriptor)
    return PASSED if channel.send({"name": case.name, **run_case(case, budget)}) else CHANNEL_CLOSED


def _serve(options: CaseOptions, registry: Registry) -> int:
    from benchmate.cases.isolation import serve_forks

    def run_forked(name: str, descriptor: int) -> int:
        return _send_case(descriptor, registry.cases[name], options.budget)

    channel = options.channel or ""
    if _DESCRIPTOR.fullmatch(channel) is None:
        raise UsageError(f"{channel!r}: expected fd:NUMBER. Only the runner can open it")
    return serve_forks(_open_channel(channel), options.preload, run_forked)
