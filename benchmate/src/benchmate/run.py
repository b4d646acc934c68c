"""The runner: `python -m benchmate.run [--config F] [--voirfile V] [--path DIR]... script.py args...`, or `-m module args...`."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path

from benchmate.configuration import read_config
from benchmate.errors import BenchmateError
from benchmate.phases import StopProgram
from benchmate.program_overseer import InstrumentFailed, ProgramOverseer
from benchmate.session import Session, flush_and_exit, use
from benchmate.stack_dump import dump_stacks_on_signal

USAGE = """\
usage: python -m benchmate.run [--config FILE] [--voirfile FILE] [--path DIR]... [INSTRUMENT OPTIONS] SCRIPT [ARGUMENTS...]
       python -m benchmate.run [--config FILE] [--voirfile FILE] [--path DIR]... [INSTRUMENT OPTIONS] -m MODULE [ARGUMENTS...]
"""
THREADS_GRACE_S = 5.0


def parse_arguments(argv: Sequence[str]) -> tuple[dict[str, str], list[str], list[str]]:
    """Take the runner's options off the front; return them, the paths, and the words for the instruments and the program."""
    options: dict[str, str] = {}
    paths: list[str] = []
    rest = list(argv)
    # The first other word ends them: a program may have options of the same names.
    while rest and rest[0].partition("=")[0] in ("--config", "--voirfile", "--path"):
        name, equals, value = rest.pop(0).partition("=")
        if not equals:
            if not rest:
                raise BenchmateError(f"{name}: expected a value\n{USAGE}")
            value = rest.pop(0)
        if name == "--path":
            paths.append(str(Path(value).absolute()))
        else:
            options[name] = value
    if not rest:
        raise BenchmateError(f"expected a script, or -m and a module\n{USAGE}")
    return options, paths, rest


def main(argv: Sequence[str] | None = None) -> int:
    """Run a program under its instruments. Return the exit code of a usage error, else exit with the program's."""
    try:
        options, paths, rest = parse_arguments(sys.argv[1:] if argv is None else argv)
        config = read_config(options.get("--config") or os.environ.get("MILABENCH_BENCH_CONFIG"))
    except BenchmateError as error:
        return _usage_error(error)
    # Before the voirfile is imported: what fails there has somewhere to be recorded.
    session = use(Session(config, stop_exception=StopProgram))
    audit = None
    if os.environ.get("MILABENCH_AUDIT"):
        from benchmate.loop_audit import Audit

        audit = Audit(session)
    dump_stacks_on_signal(session.sink.ring_folder)
    overseer = ProgramOverseer(session, config.voir_options)
    try:
        overseer.run_command(rest, paths, options.get("--voirfile"))
        code: str | int | None = 0
    except BenchmateError as error:
        session.fail("environment", str(error))
        code = _usage_error(error)
    except SystemExit as error:
        code = error.code
    except BaseException as error:
        _silence_handlers()
        code = _report_exception(session, overseer, error)
    _silence_handlers()
    if session.is_forked_child:
        sys.exit(code)
    if code in (0, None):
        check_probes(session)
    was_stopped = session.stopped_because is not None
    if audit is not None:
        audit.report()
    session.finish()
    if code in (0, None) and session.failures:
        code = 1
    if was_stopped:
        _exit_despite_threads(1 if code else 0)
    sys.exit(code)


def _has_broken_graph() -> bool:
    """Return whether a rewritten function broke a graph of torch.compile: the measured program is no longer the original."""
    utils = sys.modules.get("torch._dynamo.utils")
    if utils is None or "ptera" not in sys.modules:
        return False
    # Every rewritten function begins by reading ptera's context variable, which Dynamo cannot trace.
    return any("ContextVar" in reason for reason in utils.counters["graph_break"])


def _spawned_processes_hint() -> str:
    """Return a hint at processes that the program spawned, which the instruments do not reach."""
    if "multiprocessing.popen_spawn_posix" not in sys.modules:
        return ""
    return (
        ". The processes that it spawned are not under the instruments: start them with torchrun or `accelerate launch`, "
        "or call benchmate.observed in those processes"
    )


def _silence_handlers() -> None:
    """Replace the signal handlers of the ended program: they may raise (a DataLoader's does after its worker died)."""
    for number in signal.valid_signals() - {signal.SIGINT, signal.SIGTERM}:
        for _ in range(2):  # a handler that was due just before raises here
            try:
                if callable(signal.getsignal(number)):
                    signal.signal(number, lambda *_: None)  # not SIG_IGN, which children inherit
                break
            except Exception:  # noqa: S112  (raised by the program's handler)
                continue


def check_probes(session: Session) -> None:
    """Fail the step for every probe that never fired. A program that ended with success has reached all it ever will."""
    from benchmate.probe_registry import silent_probes

    if _has_broken_graph():
        text = (
            "a probe rewrote a function that torch.compile compiles, and broke its graph. "
            "Probe a function that calls the compiled function, or use probes.calls there"
        )
        _fail_probe(session, text)
    for probe in silent_probes():
        text = f"{probe.text} never fired: {probe.why_not()}{_spawned_processes_hint()}"
        if probe.required:
            _fail_probe(session, text)
        else:
            session.message(text)


def _fail_probe(session: Session, text: str) -> None:
    session.fail("probe", text)
    print(f"benchmate: {text}", file=sys.stderr)


def _report_exception(session: Session, overseer: ProgramOverseer, error: BaseException) -> int:
    """Record the exception that ended the program, show it as Python would, and return its exit code."""
    from benchmate.memory import is_out_of_memory
    from benchmate.program_loader import show_exception

    if isinstance(error, InstrumentFailed):
        return 1
    begin = overseer.program.traceback if overseer.program is not None else error.__traceback__
    trace = "".join(traceback.format_exception(type(error), error, begin))
    if not session.is_forked_child:
        session.error(error, trace)
        if is_out_of_memory(error):
            session.fail("out-of-memory", f"{type(error).__name__}: {error}".splitlines()[0])
    show_exception(error, begin)
    # As a shell counts a program that SIGINT has ended.
    return 130 if isinstance(error, KeyboardInterrupt) else 1


def _usage_error(error: BenchmateError) -> int:
    print(f"benchmate.run: {error}", file=sys.stderr)
    return 2


def _exit_despite_threads(code: int) -> None:
    """End the process after an early stop, even if other threads of the program continue."""
    main_thread = threading.main_thread()
    others = [thread for thread in threading.enumerate() if thread is not main_thread and not thread.daemon]
    for thread in others:
        thread.join(THREADS_GRACE_S / len(others))
    if any(thread.is_alive() for thread in others):
        import atexit

        # os._exit runs none of them.
        atexit._run_exitfuncs()
        flush_and_exit(code)


if __name__ == "__main__":
    # The program replaces this module as __main__: run the importable copy of this module instead.
    from benchmate.run import main as run

    sys.exit(run())
