"""Measures a program once, in the current environment, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from milabench.analysis.summary_model import BenchSummary
from milabench.bench_command.measure_commands import command_entry, require_program
from milabench.config.problems import did_you_mean
from milabench.driver.task_driver import FOREVER_S
from milabench.errors import DONE, INTERRUPTED, STEPS_FAILED, UsageError
from milabench.events.removal import remove
from milabench.execute.retry_policy import RetryPolicy
from milabench.own_program.interpreter import find_interpreter, module_file, require_packages
from milabench.own_program.observation import ProgramObservation, observation_of, voirfile_text
from milabench.own_program.program import Program, parse_program
from milabench.own_program.reading import Reading, read_source
from milabench.workflow.files import write_file
from milabench.workflow.options import Extent, Session, SuiteOptions

MEASURED_S: Final = 30.0
"""How long a program is measured: the window of the profile default, or this many seconds of repeats."""
LAUNCHES: Final = (3, 10)
LONGEST_S: Final = 60.0
"""Seconds that the repeats of a timed program may take. A longer program is run once."""
OBSERVED_AT_MOST_S: Final = 1800.0
SHORTEST_S: Final = 0.001
SHOWN_LINES: Final = 12


def try_program(words: Sequence[str], session: Session, *, wait: bool) -> tuple[int, Sequence[str]]:
    """Measure a program for half a minute. Return the exit code, and lines: the number, its validity and the next command.

    Raises UsageError and EnvironmentFailed for a program that cannot be started, Unreachable for devices in use.
    """
    program = parse_program(words)
    reading, python = _read(program) if program.is_python else (None, _required(program))
    base = Path(tempfile.mkdtemp(prefix="milabench-try-"))
    try:
        trials = _Trials(program, python, reading, base, session, RetryPolicy(wait=wait, max_failures=1))
        observation = None if reading is None else observation_of(reading)
        if reading is None or observation is None:
            return DONE, trials.timed("")
        return DONE, trials.observed(reading, observation)
    except _Ended as ended:
        code, *lines = ended.args
        return code, lines
    finally:
        remove(base, base.parent, is_quiet=True)


def _read(program: Program) -> tuple[Reading, str]:
    """Return the reading of a Python program, and its interpreter. Raises UsageError and EnvironmentFailed."""
    if "--help" in program.arguments:
        raise UsageError(f"--help is an option of {program.name}. `milabench try --help` shows ours")
    file, here = Path(program.script), Path.cwd()
    if program.module:
        file = module_file(program.start, program.module)
    elif not file.exists():
        near = did_you_mean(file.name, [path.name for path in file.parent.glob("*.py")])
        raise UsageError(f"{program.script}: no such file in {here}{near and f'. {near}'}")
    reading = read_source(file, here if program.module and file.is_relative_to(here) else None)
    interpreter = find_interpreter(program.start, reading.needed)
    require_packages(interpreter, reading.needed, program.name)
    return reading, interpreter.python


def _required(program: Program) -> str:
    """Return the program that is started. Raises UsageError where there is none."""
    [command] = program.start
    if Path(command).exists() and shutil.which(command) is None:
        raise UsageError(f"{command}: is no program. Name a script (.py), `python -m MODULE` or a command")
    require_program(command, Path.cwd(), os.environ)
    return command


class _Trials:
    """Runs a program in a base of its own. `reading` is None if it is not Python."""

    def __init__(
        self, program: Program, python: str, reading: Reading | None, base: Path, session: Session, retry: RetryPolicy
    ) -> None:
        self._program, self._python, self._base, self._session, self._retry = program, python, base, session, retry
        self._plain = program.plain(python)
        self._work = None if reading is None else reading.work

    def observed(self, reading: Reading, observation: ProgramObservation) -> list[str]:
        """Measure the steps of the program, or its time where it ends before it has done enough of them."""
        name = self._program.name
        seen = f"{observation.why} ({observation.found})"
        self._session.info(f"{name}: with {self._python}. Observed: {seen}")
        voirfile = self._base / "voirfile.py"
        write_file(voirfile, voirfile_text(name, reading, observation))
        bench = self._run(_observed_entry(self._program.observed(self._python, str(voirfile))))
        wall_s = bench.wall_s or 0.0  # without the time that it waited for the device
        if bench.outcome != "passed":
            return self.timed(f"its steps could not be observed: {bench.failures[0].detail}")
        is_whole = bench.perf is not None and "short" not in bench.doubts
        if is_whole or (bench.perf is not None and wall_s * LAUNCHES[0] > LONGEST_S):
            return self._lines(bench, f"observed: {seen}", self._keep() if is_whole else self._more())
        return self.timed(f"it ended after {wall_s:.0f} s, before {MEASURED_S:.0f} s of steps were measured", wall_s)

    def timed(self, why: str, wall_s: float | None = None) -> list[str]:
        """Measure the time of the whole program: as many repeats as fit, at least three unless they take minutes.

        `why` is the reason for not measuring steps. `wall_s` is an estimate of the seconds of a repeat, if available.
        """
        first, (least, most) = None, LAUNCHES
        if wall_s is None:
            unseen = "no training loop was found. " if self._program.is_python and not why else ""
            self._session.info(f"{self._program.name}: {unseen}Measured: the time of the whole program, until it ends")
            first = self._timed(1)
            wall_s = first.perf or 0.0
        if first is None or wall_s * least <= LONGEST_S:
            first = self._timed(min(most, max(least, int(MEASURED_S / max(wall_s, SHORTEST_S)))))
        measured = f"measured: the time of the whole program{f', for {why}' if why else ''}"
        again = f"`milabench bench -- {shlex.join(self._plain)}`"
        more = f"{again}: until it is precise. With --metric: a number that it prints"
        if why or (first.validity == "valid" and self._program.is_python):
            more = self._more() if why else self._keep()
        return self._lines(first, measured, more)

    def _lines(self, bench: BenchSummary, measured: str, following: str) -> list[str]:
        from milabench.report.labels import format_number
        from milabench.report.model import half_width, validity_text, warnings_of

        number = f"{format_number(bench.perf)} {bench.units} {half_width(bench)}".rstrip()
        first = f"{self._program.name}: {number}, {validity_text(bench)}"
        warnings = (f"warning: {text}" for reason, text in warnings_of(bench).items() if reason != "imprecise")
        return [first, *warnings, measured, f"next: {following}"]

    def _timed(self, launches: int) -> BenchSummary:
        entry = command_entry(self._plain, Path.cwd(), FOREVER_S, os.environ)
        return self._run({**entry, "timed": True}, launches)

    def _run(self, entry: Mapping[str, object], launches: int = 1) -> BenchSummary:
        """Return the result of an entry of a suite. A probe that failed is a result too.

        Raises _Ended for any other failure.
        """
        from milabench.workflow.new_run import execute_plan
        from milabench.workflow.planning import describe_run
        from milabench.workflow.run_suite import RunSettings, prepare_runs, write_summary

        suite = self._base / f"{launches}.yaml"
        write_file(suite, json.dumps({"program": entry}) + "\n")
        options = SuiteOptions(config_file=suite, base=self._base)
        extent = Extent(repeat=launches, profile="default", run_name="try")
        settings = RunSettings(retry=self._retry, as_default=False, is_kept=False)
        prepared = prepare_runs(options, extent, settings, self._session)
        planned = prepared.plans[0].planned
        description = describe_run(planned, stamp=prepared.stamp, validations=prepared.checks)
        executed = execute_plan(planned.plan, planned.request.context, description, retry=self._retry)
        if executed.result.interrupted:
            raise _Ended(INTERRUPTED)
        summary = write_summary(executed.path, self._session)
        if summary is None or not summary.benchmarks:
            raise _Ended(STEPS_FAILED)
        bench = summary.benchmarks[0]
        if bench.outcome != "passed" and not any(failure.why == "probe" for failure in bench.failures):
            self._show_failure(bench, executed.path)
            raise _Ended(STEPS_FAILED, f"next: `{shlex.join(self._plain)}` shows all that it writes")
        return bench

    def _show_failure(self, bench: BenchSummary, run: Path) -> None:
        """Show why the program failed, and the end of its output."""
        for file in sorted(run.glob("*.stderr"))[:1]:
            for line in file.read_text(errors="replace").splitlines()[-SHOWN_LINES:]:
                self._session.info(f"  {line}")
        for failure in bench.failures[:1]:
            self._session.error(f"{self._program.name}: {failure.why}: {failure.detail}")

    def _keep(self) -> str:
        words = self._program.typed
        given = shlex.quote(words[0] if len(words) == 1 else shlex.join(words))
        return f"`milabench new NAME --from {given}`: makes a benchmark, whose number comes from several processes"

    def _more(self) -> str:
        """Return how the program would run long enough."""
        work = self._work
        if work is None:
            return self._keep()
        if work.what.startswith("-"):
            typed = shlex.join(self._program.typed)
            if any(word.partition("=")[0] == work.what for word in self._program.arguments):
                return f"`milabench try {typed}` with a larger {work.what} measures its steps"
            return f"`milabench try {typed} {work.what} N` with a larger N measures its steps"
        return f"a larger `{work.what}` (line {work.line}) measures its steps"


class _Ended(Exception):
    """The trial is over. Its arguments are the exit code and the lines to show."""


def _observed_entry(words: Sequence[str]) -> dict[str, object]:
    """Return the entry of a suite for a command under our runner, started where we are, with our instruments on its path."""
    from milabench.workflow.context import instruments

    tools = instruments()
    folders = (tools.folder if tools is not None else "", os.environ.get("PYTHONPATH"))
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, folders))}
    return command_entry(words, Path.cwd(), OBSERVED_AT_MOST_S, environ)
