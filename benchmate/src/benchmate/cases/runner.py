"""The runner of cases: lock their devices, measure each in a process of its own, report and record the results."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import shlex
import signal
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from benchmate.cases.device_locks import DeviceInUseError, lock_devices, lock_names
from benchmate.cases.exit_codes import FAILED, INTERRUPTED, PASSED
from benchmate.cases.formats import FORMATS, ResultFormat, Style, status_line
from benchmate.cases.isolation import Forks, IsolationError, Spawn
from benchmate.cases.options import CaseOptions, UsageError
from benchmate.cases.registry import Case
from benchmate.cases.results import CaseResult, aggregate_results, make_result, parse_payload
from benchmate.devices.api import DeviceLostError
from benchmate.devices.detect import open_vendor, visible
from benchmate.devices.vendors.locks import DeviceLocks
from benchmate.machine_context import google_context
from benchmate.supervisor import supervise

MISSPELLED_VARIABLE = "CUDA_VISIBLE_GPU"
"""The few-bit library's name for CUDA_VISIBLE_DEVICES."""


class CaseRunner:
    """A run of some cases."""

    def __init__(self, options: CaseOptions, cases: Sequence[Case]) -> None:
        self._options, self._cases = options, cases
        self._results: list[CaseResult] = []
        # A step of a milabench run: somebody reads the records.
        self._has_sink = bool(os.environ.get("MILABENCH_SINK") or os.environ.get("DATA_FD"))

    def run(self) -> int:
        """Run the cases. Return the exit code. Raises UsageError."""
        try:
            with _interruptible():
                self._run()
        except IsolationError as error:
            raise UsageError(str(error)) from None
        except DeviceInUseError as error:
            _print_stderr(f"error: {error}")
            return FAILED
        except OSError as error:
            where = ", ".join(output.path or "standard output" for output in self._options.outputs)
            _print_stderr(f"error: {error.filename or where}: {error.strerror or error}")
            return FAILED
        except KeyboardInterrupt:
            total = len(self._cases) * self._options.repetitions
            _print_stderr(f"interrupted after {len(self._results)} of {total} processes")
            return INTERRUPTED
        return FAILED if any(result.outcome == "failed" for result in self._results) else PASSED

    def _run(self) -> None:
        options, cases = self._options, self._cases
        if options.channel is not None:
            _print_stderr("note: -s: the parent talks to its children over private pipes, so the path is not used")
        _correct_visible_devices()
        with contextlib.ExitStack() as stack:
            formats = self._open_formats(stack)
            self._announce(len(cases))
            # The accelerators that the cases may use, looked at from outside, without a context on any of them.
            vendor, problem = open_vendor("auto", os.environ)
            stack.callback(vendor.close)
            if problem:
                _print_stderr(f"note: {problem}")
            self._devices = visible(vendor.devices, os.environ, vendor.arch)
            # Elsewhere than where all programs of this machine look for each other: for tests that run side by side.
            locks = DeviceLocks(os.environ.get("MILABENCH_LOCK_DIR"))
            stack.callback(locks.release)
            self._lock(locks, vendor.arch)
            isolation = stack.enter_context(contextlib.closing(self._isolation(locks.descriptors())))
            context = google_context(sys.argv[0], options.context)
            for output in formats:
                output.begin(context, [case.name for case in cases])
                output.out.flush()
            try:
                self._measure_all(isolation, formats)
            finally:
                for output in formats:
                    output.end(self._results, aggregate_results(self._results))
                    output.out.flush()

    def _measure_all(self, isolation: Spawn | Forks, formats: Sequence[ResultFormat]) -> None:
        options = self._options
        todo = [(case, repetition) for case in self._cases for repetition in range(options.repetitions)]
        if options.interleaved:
            # So that drift of the machine (heat, clocks, neighbours) falls on all cases alike and not on the last.
            random.shuffle(todo)
        for number, (case, repetition) in enumerate(todo):
            if number and options.delay_s:
                time.sleep(options.delay_s)
            result = self._measure(case, repetition, isolation)
            self._results.append(result)
            for output in formats:
                output.add(result)
                # At once: what has been measured is on disk, whatever happens to the rest.
                output.out.flush()
            if result.outcome == "failed":
                _print_stderr(f"{case.name}: {status_line(result)}")
            of_case = [other for other in self._results if other.case is case]
            if self._has_sink and len(of_case) == options.repetitions:
                _record_case(of_case)

    def _measure(self, case: Case, repetition: int, isolation: Spawn | Forks) -> CaseResult:
        timeout_s = self._options.timeout_s
        # Before and after, not during: what asks the driver meanwhile would share the device with the case.
        before = self._foreign_pids()
        ended = supervise(functools.partial(isolation.start, case.name), _forward_output, timeout_s=timeout_s)
        foreign = sorted(before | self._foreign_pids())
        return make_result(case, repetition, parse_payload(ended.result), ended, timeout_s, foreign)

    def _foreign_pids(self) -> set[int]:
        """Return the processes that compute on the devices now, when no case of ours does."""
        pids = set()
        for device in self._devices:
            with contextlib.suppress(DeviceLostError):
                pids |= {process.pid for process in device.survey().processes or ()}
        return pids

    def _lock(self, locks: DeviceLocks, arch: str) -> None:
        options = self._options
        if options.lock == "none":
            return
        wait_s = options.lock_wait_s if options.lock == "wait" else 0.0
        names = lock_names([device.uuid for device in self._devices], arch, os.environ)
        try:
            lock_devices(locks, names, shlex.join(sys.argv), wait_s, _print_stderr)
        except OSError as error:
            raise UsageError(f"{error.filename}: {error.strerror}. Do without with --lock none") from None

    def _isolation(self, kept: Sequence[int]) -> Spawn | Forks:
        options, budget = self._options, self._options.budget
        min_time = f"{budget.iterations}x" if budget.iterations is not None else f"{budget.min_time_s}s"
        program = [*_program(), f"--benchmark_min_time={min_time}", f"--benchmark_min_warmup_time={budget.warmup_s}"]
        if options.isolation == "spawn":
            return Spawn(program, kept)
        return Forks([*program, "--isolation=fork", f"--preload={','.join(options.preload)}"], kept)

    def _open_formats(self, stack: contextlib.ExitStack) -> list[ResultFormat]:
        options, formats = self._options, []
        for output in options.outputs:
            stream: TextIO = sys.stdout
            if output.path is not None:
                try:
                    stream = Path(output.path).open("w", encoding="utf-8", newline="")  # noqa: SIM115
                except OSError as error:
                    raise UsageError(f"{output.path}: {error.strerror}. Give a file that can be written") from None
                stack.callback(stream.close)
            aggregates_only = options.aggregates_only or (output.path is None and options.display_aggregates_only)
            style = Style(unit=options.time_unit, tabular=options.tabular, aggregates_only=aggregates_only)
            formats.append(FORMATS[output.format](stream, style))
        return formats

    def _announce(self, count: int) -> None:
        """Print how many cases there are. Not between the lines of a table that somebody reads from standard output."""
        shown = {output.format for output in self._options.outputs if output.path is None}
        stream = sys.stdout if shown <= {"stdout"} else sys.stderr
        print(f"total {count} benchmark(s) matched to pattern", file=stream, flush=True)


def _record_case(results: Sequence[CaseResult]) -> None:
    """Record all processes of a case for milabench: the median time as a main metric, rates, counters, memory, failures."""
    from benchmate.session import current

    session = current()
    case = results[0].case
    for result in results:
        if result.outcome == "failed":
            session.fail(result.why, f"case {case.name}: {status_line(result)}")
        elif result.outcome == "skipped":
            session.message(f"case {case.name}: skipped: {result.detail}")
        elif "contended" in result.reasons:
            message = f"case {case.name}: {result.detail}"
            session.record("verdict", {"check": "contended", "verdict": "warn", "numbers": {}, "message": message})
        elif result.reasons:
            session.message(f"case {case.name}: {status_line(result)}")
    measured = [result for result in results if result.is_measured]
    if not measured:
        return
    times = [result.real_ns / 1e9 for result in measured]
    median = statistics.median(times)
    session.metric("wall_time", median, "s", "lower", main=True, case=case.name, n=len(times), values=times)
    for name, units in (("items_per_second", "items/s"), ("bytes_per_second", "B/s")):
        rates = [result.rates[name] for result in measured if name in result.rates]
        if rates:
            session.metric(name, statistics.median(rates), units, "higher", case=case.name)
    for name in measured[0].counters:
        counts = [result.counters[name] for result in measured if name in result.counters]
        session.metric(name, statistics.median(counts), "", "none", case=case.name)
    for name in ("memory_allocated_peak", "memory_reserved_peak", "host_memory_peak"):
        for part in ("setup", "run"):
            peaks = [result.memory[key] for result in measured if (key := f"{name}_{part}") in result.memory]
            if peaks:
                session.metric(name, max(peaks), "B", "lower", case=case.name, part=part)


def _program() -> list[str]:
    """Return the command that starts this program again. Raises UsageError where it is no file."""
    module = sys.modules["__main__"]
    spec = getattr(module, "__spec__", None)
    if spec is not None and spec.name != "__main__":
        return [sys.executable, "-m", spec.name.removesuffix(".__main__")]
    file = getattr(module, "__file__", None)
    if file is None or not Path(file).exists():
        raise UsageError("the cases must stand in a file: every case starts its program again, in a process of its own")
    return [sys.executable, str(Path(file).resolve())]


def _correct_visible_devices() -> None:
    if MISSPELLED_VARIABLE not in os.environ:
        return
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        used = os.environ["CUDA_VISIBLE_DEVICES"]
        _print_stderr(f"warning: {MISSPELLED_VARIABLE} is not used, but CUDA_VISIBLE_DEVICES={used}")
        return
    value = os.environ["CUDA_VISIBLE_DEVICES"] = os.environ[MISSPELLED_VARIABLE]
    _print_stderr(
        f"warning: {MISSPELLED_VARIABLE} is taken as CUDA_VISIBLE_DEVICES={value}, which is the variable's name"
    )


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """While inside, SIGTERM ends the run as Ctrl-C does: the case is ended, and its measurements are written."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _forward_output(data: bytes) -> None:
    """Write a case's output to stderr, whichever stream it was for: it is not a result."""
    with contextlib.suppress(OSError):
        sys.stderr.flush()
        os.write(2, data)


def _print_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
