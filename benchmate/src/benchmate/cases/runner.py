"""The parent of a run of cases: it locks their devices, has each measured in a process of its own, and tells what came of it."""

from __future__ import annotations

import contextlib
import os
import random
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from benchmate.cases import step_records
from benchmate.cases.command import FAILED, INTERRUPTED, PASSED
from benchmate.cases.device_locks import DeviceInUseError, DeviceLocks, lock_names
from benchmate.cases.formats import ResultFormat, open_format, status_line
from benchmate.cases.isolation import Forks, Isolation, IsolationError, Spawn
from benchmate.cases.machine_context import google_context
from benchmate.cases.options import CaseOptions, UsageError
from benchmate.cases.outcome import supervise
from benchmate.cases.registry import Case
from benchmate.cases.results import CaseResult, aggregate_results, make_result

SLIP = "CUDA_VISIBLE_GPU"
"""What the few-bit library's page calls CUDA_VISIBLE_DEVICES."""


class _Interrupted(BaseException):
    """Somebody wants this program to end."""


class CaseRunner:
    """One run of some cases."""

    def __init__(self, options: CaseOptions, cases: Sequence[Case]) -> None:
        self._options, self._cases = options, cases
        self._results: list[CaseResult] = []
        self._is_step = step_records.has_sink(os.environ)

    def carry_out(self) -> int:
        """Run them; the exit code. Raises UsageError."""
        try:
            with _interruptible():
                self._carry_out()
        except IsolationError as error:
            raise UsageError(str(error)) from None
        except DeviceInUseError as error:
            _say(f"error: {error}")
            return FAILED
        except OSError as error:
            where = ", ".join(str(each.path or "standard output") for each in self._options.outputs)
            _say(f"error: {error.filename or where}: {error.strerror or error}")
            return FAILED
        except (_Interrupted, KeyboardInterrupt):
            wanted = len(self._cases) * self._options.repetitions
            _say(f"interrupted after {len(self._results)} of {wanted} processes")
            return INTERRUPTED
        return FAILED if any(result.outcome == "failed" for result in self._results) else PASSED

    def _carry_out(self) -> None:
        options, cases = self._options, self._cases
        for notice in options.notices:
            _say(f"note: {notice}")
        _mend_visible_devices()
        with contextlib.ExitStack() as stack:
            formats = self._formats(stack)
            self._announce(len(cases))
            devices = stack.enter_context(_Devices())
            locks = stack.enter_context(contextlib.closing(_Held(options, devices)))
            isolation: Isolation = stack.enter_context(contextlib.closing(self._isolation(locks.descriptors())))
            context = google_context(sys.argv[0], options.context)
            for each in formats:
                each.begin(context, [case.name for case in cases])
            try:
                self._measure(cases, isolation, devices, formats)
            finally:
                for each in formats:
                    each.end(self._results, aggregate_results(self._results))

    def _measure(
        self, cases: Sequence[Case], isolation: Isolation, devices: _Devices, formats: Sequence[ResultFormat]
    ) -> None:
        options = self._options
        todo = [(case, repetition) for case in cases for repetition in range(options.repetitions)]
        if options.interleaved:
            random.shuffle(todo)
        for number, (case, repetition) in enumerate(todo):
            if number and options.delay_s:
                time.sleep(options.delay_s)
            result = self._one(case, repetition, isolation, devices)
            self._results.append(result)
            for each in formats:
                each.add(result)
            if result.outcome == "failed":
                _say(f"{case.name}: {status_line(result)}")
            own = [one for one in self._results if one.case is case]
            if self._is_step and len(own) == options.repetitions:
                step_records.record_case(own)

    def _one(self, case: Case, repetition: int, isolation: Isolation, devices: _Devices) -> CaseResult:
        before = devices.foreign()
        ended = supervise(isolation, case.name, self._options.timeout_s, _show)
        foreign = sorted({*before, *devices.foreign()})
        reasons, detail = ended.reasons, ended.detail
        if foreign:
            reasons = (*reasons, "contended")
            detail = detail or f"other processes on the device: {', '.join(map(str, foreign))}"
        return make_result(
            case,
            repetition,
            ended.said,
            outcome=ended.outcome,
            why=ended.why,
            detail=detail,
            reasons=reasons,
            seconds=ended.seconds,
            tail=ended.tail,
        )

    def _isolation(self, kept: Sequence[int]) -> Isolation:
        options = self._options
        effort = options.effort
        least = f"{effort.iterations}x" if effort.iterations is not None else f"{effort.min_time_s}s"
        arguments = (f"--benchmark_min_time={least}", f"--benchmark_min_warmup_time={effort.warmup_s}")
        if options.isolation == "spawn":
            return Spawn(_program(), arguments, kept)
        return Forks(_program(), (*arguments, "--isolation=fork", f"--preload={','.join(options.preload)}"), kept)

    def _formats(self, stack: contextlib.ExitStack) -> list[ResultFormat]:
        options, made = self._options, []
        for output in options.outputs:
            stream: Any = sys.stdout
            if output.path is not None:
                try:
                    stream = Path(output.path).open("w", encoding="utf-8", newline="")  # noqa: SIM115
                except OSError as error:
                    raise UsageError(f"{output.path}: {error.strerror}; give a file that can be written") from None
                stack.callback(stream.close)
            hides = options.aggregates_only or (output.path is None and options.display_aggregates_only)
            made.append(
                open_format(
                    output.format, stream, unit=options.time_unit, tabular=options.tabular, aggregates_only=hides
                )
            )
        return made

    def _announce(self, count: int) -> None:
        """How many there are; not between the lines of a table that somebody reads from standard output."""
        shown = {output.format for output in self._options.outputs if output.path is None}
        stream = sys.stdout if shown <= {"stdout"} else sys.stderr
        print(f"total {count} benchmark(s) matched to pattern", file=stream, flush=True)


class _Devices:
    """The accelerators that the cases may use, looked at from outside, without a context on any of them."""

    def __enter__(self) -> _Devices:
        from benchmate.devices.detect import open_vendor, visible

        self._vendor, problem = open_vendor("auto", os.environ)
        self.arch = self._vendor.arch
        self._devices = visible(self._vendor.devices, os.environ, self.arch)
        self.uuids = tuple(device.uuid for device in self._devices)
        if problem:
            _say(f"note: {problem}")
        return self

    def __exit__(self, *_: object) -> None:
        self._vendor.close()

    def foreign(self) -> set[int]:
        """Who computes on them now, when no case of ours does."""
        from benchmate.devices.api import DeviceLostError

        found = set()
        for device in self._devices:
            with contextlib.suppress(DeviceLostError):
                found |= {process.pid for process in device.survey().processes or ()}
        return found


class _Held:
    """The locks of a run, until `close`."""

    def __init__(self, options: CaseOptions, devices: _Devices) -> None:
        # Elsewhere than where all programs of this machine look for each other: for tests that run side by side.
        self._locks = DeviceLocks(os.environ.get("MILABENCH_LOCK_DIR"))
        if options.lock == "none":
            return
        wait_s = options.lock_wait_s if options.lock == "wait" else 0.0
        names = lock_names(devices.uuids, devices.arch, os.environ)
        try:
            self._locks.take(names, shlex.join(sys.argv), wait_s, _say)
        except OSError as error:
            raise UsageError(f"{error}; --lock none goes without") from None
        except BaseException:
            self.close()
            raise

    def descriptors(self) -> tuple[int, ...]:
        """For the children to keep open."""
        return self._locks.descriptors()

    def close(self) -> None:
        """Let go."""
        self._locks.release()


def _program() -> list[str]:
    """The command that starts this program again. Raises UsageError where it is no file."""
    module = sys.modules["__main__"]
    spec = getattr(module, "__spec__", None)
    if spec is not None and spec.name != "__main__":
        return [sys.executable, "-m", spec.name.removesuffix(".__main__")]
    file = getattr(module, "__file__", None)
    if file is None or not Path(file).exists():
        raise UsageError("the cases must stand in a file: every case starts its program again, in a process of its own")
    return [sys.executable, str(Path(file).resolve())]


def _mend_visible_devices() -> None:
    if SLIP not in os.environ:
        return
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        _say(f"warning: {SLIP} is not used; CUDA_VISIBLE_DEVICES={os.environ['CUDA_VISIBLE_DEVICES']} is")
        return
    os.environ["CUDA_VISIBLE_DEVICES"] = os.environ[SLIP]
    _say(f"warning: {SLIP} is taken as CUDA_VISIBLE_DEVICES={os.environ[SLIP]}; that is the variable's name")


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """While inside, SIGTERM ends the run as Ctrl-C does: the case is ended, and what was measured is written."""

    def interrupt(*_: object) -> NoReturn:
        raise _Interrupted

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _show(data: bytes) -> None:
    """A case's output, whichever stream it was for, is not a result: it goes to stderr."""
    with contextlib.suppress(OSError):
        sys.stderr.flush()
        os.write(2, data)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
