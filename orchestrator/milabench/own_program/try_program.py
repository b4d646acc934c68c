"""Measures a program once, in the current environment, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from milabench.bench_command.measure_commands import command_entry, require_program
from milabench.config.interpolate import escaped
from milabench.config.problems import did_you_mean
from milabench.driver.task_driver import FOREVER_S
from milabench.driver.tasks import verbatim
from milabench.errors import DONE, INTERRUPTED, STEPS_FAILED, UsageError
from milabench.events.removal import remove
from milabench.execute.retry_policy import RetryPolicy
from milabench.own_program.interpreter import Interpreter, interpreter_of
from milabench.own_program.observation import ProgramObservation, observation_of
from milabench.own_program.program import Program, parse_program
from milabench.own_program.reading import Reading
from milabench.own_program.sources import read_source
from milabench.own_program.voirfile import voirfile_text
from milabench.workflow.files import write_file
from milabench.workflow.options import Extent, Session, SuiteOptions

if TYPE_CHECKING:
    from milabench.analysis.summary_model import BenchSummary

MEASURED_S: Final = 30.0
"""How long a program is measured: the window of the profile default, or this many seconds of repeats."""
LAUNCHES: Final = (3, 10)
LONGEST_S: Final = 60.0
"""Seconds that the repeats of a timed program may take. A longer program is run once."""
OBSERVED_AT_MOST_S: Final = 1800.0
SHORTEST_S: Final = 0.001
SHOWN_LINES: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramAtHand:
    """A program after reading. `interpreter` and `reading` are None if it is not Python."""

    program: Program
    interpreter: Interpreter | None = None
    reading: Reading | None = None
    observation: ProgramObservation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The result of a trial: exit code, lines with the number and its validity, and the next command."""

    code: int
    lines: tuple[str, ...] = ()
    next: str = ""


def read_program_at_hand(words: Sequence[str], environ: Mapping[str, str]) -> ProgramAtHand:
    """Return the program that a command line starts. Raises UsageError and EnvironmentFailed."""
    program = parse_program(words)
    if program.command:
        if Path(words[0]).exists() and shutil.which(words[0], path=environ.get("PATH")) is None:
            raise UsageError(f"{words[0]}: is no program. Name a script (.py), `python -m MODULE` or a command")
        require_program(program.command[0], Path.cwd(), environ)
        return ProgramAtHand(program=program)
    if "--help" in program.arguments:
        raise UsageError(f"--help is an option of {program.name}. `milabench try --help` shows ours")
    named = "" if words[0].endswith(".py") else words[0]
    file = Path(program.script)
    if program.module:
        file = Path(interpreter_of(program, named, {}, environ).file)
    elif not file.exists():
        near = did_you_mean(file.name, [path.name for path in file.parent.glob("*.py")])
        raise UsageError(f"{program.script}: no such file in {Path.cwd()}{near and f'. {near}'}")
    is_here = bool(program.module) and file.is_relative_to(Path.cwd())
    source = read_source(file, Path.cwd() if is_here else None)
    return ProgramAtHand(
        program=program,
        interpreter=interpreter_of(program, named, source.needed, environ),
        reading=source.reading,
        observation=observation_of(source.reading, environ),
    )


def try_program(words: Sequence[str], session: Session, *, wait: bool) -> Trial:
    """Measure a program for half a minute, and return the number and the next command.

    Raises UsageError and EnvironmentFailed for a program that cannot be started, Unreachable for devices in use.
    """
    at_hand = read_program_at_hand(words, os.environ)
    base = Path(tempfile.mkdtemp(prefix="milabench-try-"))
    try:
        trial = _Trials(at_hand, tuple(words), base, session, RetryPolicy(wait=wait, max_failures=1))
        return trial.observed() if at_hand.observation is not None else trial.timed("")
    except _Ended as ended:
        return ended.trial
    finally:
        remove(base, base.parent, is_quiet=True)


class _Trials:
    """Runs a program in a base of its own."""

    def __init__(
        self, at_hand: ProgramAtHand, words: tuple[str, ...], base: Path, session: Session, retry: RetryPolicy
    ) -> None:
        self._at_hand, self._words, self._base, self._session, self._retry = at_hand, words, base, session, retry
        self._name = at_hand.program.name

    def observed(self) -> Trial:
        """Measure the steps of the program, or its time where it ends before it has done enough of them."""
        at_hand = self._at_hand
        assert at_hand.observation is not None and at_hand.reading is not None and at_hand.interpreter is not None
        seen = f"{at_hand.observation.why} ({at_hand.observation.found})"
        self._session.info(f"{self._name}: with {at_hand.interpreter.python}. Observed: {seen}")
        voirfile = self._base / "voirfile.py"
        write_file(voirfile, voirfile_text(self._name, at_hand.reading, at_hand.observation))
        began = time.monotonic()
        bench = self._run(at_hand.program.observed(at_hand.interpreter.python, str(voirfile)))
        wall_s = time.monotonic() - began
        if bench.outcome != "passed":
            return self.timed(f"its steps could not be observed: {bench.failures[0].detail}")
        is_whole = bench.perf is not None and "short" not in bench.doubts
        if is_whole or (bench.perf is not None and wall_s * LAUNCHES[0] > LONGEST_S):
            lines = (*self._number(bench), f"observed: {seen}")
            return Trial(code=DONE, lines=lines, next=self._keep() if is_whole else self._more())
        return self.timed(f"it ended after {wall_s:.0f} s, before {MEASURED_S:.0f} s of steps were measured", wall_s)

    def timed(self, why: str, wall_s: float | None = None) -> Trial:
        """Measure the time of the whole program: as many repeats as fit, at least three unless they take minutes.

        `why` is the reason for not measuring steps. `wall_s` is an estimate of the seconds of a repeat, if available.
        """
        plain = self._plain()
        if wall_s is None:
            first = self._run(plain, launches=1)
            wall_s = first.perf or 0.0
            if wall_s * LAUNCHES[0] > LONGEST_S:
                return self._whole(first, why)
        least, most = LAUNCHES
        count = int(MEASURED_S / max(wall_s, SHORTEST_S))
        return self._whole(self._run(plain, launches=min(most, max(least, count))), why)

    def _whole(self, bench: BenchSummary, why: str) -> Trial:
        lines = (*self._number(bench), f"measured: the time of the whole program{f', for {why}' if why else ''}")
        return Trial(code=DONE, lines=lines, next=self._more() if why else self._ways())

    def _run(self, words: Sequence[str], *, launches: int = 0) -> BenchSummary:
        """Return the result of timed repeats, or of one with the probes: then a probe that failed is a result too.

        Raises _Ended for any other failure.
        """
        from milabench.workflow.new_run import execute_plan
        from milabench.workflow.planning import describe_run
        from milabench.workflow.run_suite import RunSettings, prepare_runs, write_summary

        suite = self._base / f"{launches}.yaml"
        write_file(suite, json.dumps({"program": _entry(words, is_timed=launches > 0)}) + "\n")
        options = SuiteOptions(config_file=suite, base=self._base)
        extent = Extent(repeat=launches or 1, profile="default", run_name="try")
        settings = RunSettings(retry=self._retry, as_default=False, is_kept=False)
        prepared = prepare_runs(options, extent, settings, self._session)
        planned = prepared.plans[0].planned
        description = describe_run(planned, stamp=prepared.stamp, validations=prepared.checks)
        executed = execute_plan(planned.plan, planned.request.context, description, retry=self._retry)
        if executed.result.interrupted:
            raise _Ended(Trial(code=INTERRUPTED))
        summary = write_summary(executed.path, self._session)
        if summary is None or not summary.benchmarks:
            raise _Ended(Trial(code=STEPS_FAILED))
        bench = summary.benchmarks[0]
        if bench.outcome != "passed" and not any(failure.why == "probe" for failure in bench.failures):
            raise _Ended(self._failed(bench, executed.path))
        return bench

    def _number(self, bench: BenchSummary) -> tuple[str, ...]:
        from milabench.report.labels import format_number
        from milabench.report.model import half_width, validity_text, warnings_of

        number = f"{format_number(bench.perf)} {bench.units} {half_width(bench)}".rstrip()
        warnings = (text for reason, text in warnings_of(bench).items() if reason != "imprecise")
        return (f"{self._name}: {number}, {validity_text(bench)}", *(f"warning: {text}" for text in warnings))

    def _failed(self, bench: BenchSummary, run: Path) -> Trial:
        """Return why the program failed, and show the end of its output."""
        for file in sorted(run.glob("*.stderr"))[:1]:
            for line in file.read_text(errors="replace").splitlines()[-SHOWN_LINES:]:
                self._session.info(f"  {line}")
        for failure in bench.failures[:1]:
            self._session.error(f"{self._name}: {failure.why}: {failure.detail}")
        return Trial(code=STEPS_FAILED, next=f"`{shlex.join(self._plain())}` shows all that it writes")

    def _plain(self) -> tuple[str, ...]:
        python = "python" if self._at_hand.interpreter is None else self._at_hand.interpreter.python
        return self._at_hand.program.plain(python)

    def _keep(self) -> str:
        words = self._words if len(self._words) == 1 else (shlex.join(self._words),)
        return f"`milabench new NAME --from {shlex.join(words)}`: makes a benchmark, whose number comes from three processes"

    def _more(self) -> str:
        """Return how the program would run long enough."""
        work = None if self._at_hand.reading is None else self._at_hand.reading.work
        if work is None:
            return self._keep()
        if work.what.startswith("-"):
            return f"`milabench try {shlex.join(self._words)} {work.what} N` with a larger N measures its steps"
        return f"a larger `{work.what}` (line {work.line}) measures its steps"

    def _ways(self) -> str:
        line = shlex.join(self._plain())
        return f"`milabench bench --runs 10 -- {line}`: more repeats. With --metric: a number that it prints"


class _Ended(Exception):
    """The trial is over, with this result."""

    def __init__(self, trial: Trial) -> None:
        super().__init__(trial)
        self.trial = trial


def _entry(words: Sequence[str], *, is_timed: bool) -> dict[str, object]:
    """Return the entry of a suite for this command, started where we are; with our instruments on its path unless it is timed."""
    from milabench.workflow.context import instruments

    entry = command_entry(words, Path.cwd(), FOREVER_S if is_timed else OBSERVED_AT_MOST_S, os.environ)
    tools = instruments()
    if is_timed:
        return {**entry, "timed": True}
    if tools is not None:
        path = os.pathsep.join(filter(None, (tools.folder, os.environ.get("PYTHONPATH"))))
        entry["env"]["PYTHONPATH"] = escaped(verbatim(path))
    return entry
