"""The recorder, in the process of the program: it times some steps of the optimizer, then traces a step."""

from __future__ import annotations

import atexit
import contextlib
import gzip
import json
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmate.clock import wait_for_devices
from benchmate.frameworks import launched_rank
from benchmate.patching import apply_when_imported, call_when_imported, optimizer_step_hook

if TYPE_CHECKING:
    from torch.profiler import profile

VARIABLE = "BENCHMATE_TRACE"
CHUNK = 1 << 20


@dataclass(frozen=True, kw_only=True)
class TraceRecording:
    """The extent of a recording: the step after `skip` steps of the optimizer and `timed` timed steps; or the whole program.

    With several ranks each writes a file of its own, `{rank}` in the name or `.rank-N` before its end. `notes` is a folder in
    which each process reports its work.
    """

    path: str = "trace.json"
    skip: int = 3
    timed: int = 5
    is_whole: bool = False
    has_profile: bool = False
    is_last: bool = False  # the program ends after it
    notes: str | None = None


def start_from_environment() -> None:
    """Start the recording that the variable BENCHMATE_TRACE describes, if it is set."""
    if VARIABLE in os.environ:
        start_recording(TraceRecording(**json.loads(os.environ[VARIABLE])))


def start_recording(recording: TraceRecording) -> None:
    """Start recording as soon as the program imports torch."""
    recorder = Recorder(recording)
    if recording.is_whole:
        call_when_imported("torch", recorder.start_whole)
    else:
        apply_when_imported(optimizer_step_hook(recorder.on_step))
    atexit.register(recorder.at_exit)


def traced(path: str = "trace.json", **options: Any) -> Callable[[Any], Iterator[object]]:
    """Return an instrument for a voirfile: `instrument_trace = traced("trace.json", skip=3)`; options as of TraceRecording."""

    def instrument(overseer: Any) -> Iterator[object]:
        start_recording(TraceRecording(path=path, **options))
        yield overseer.phases.load_script

    return instrument


@contextlib.contextmanager
def execution_trace(path: Path) -> Iterator[None]:
    """Record an execution trace of the work inside."""
    from torch.profiler import ExecutionTraceObserver

    observer = ExecutionTraceObserver()
    observer.register_callback(str(path))
    observer.start()
    try:
        yield
    finally:
        observer.stop()
        observer.unregister_callback()


def rank_path(path: str, rank: int, ranks: int) -> Path:
    """Return the file of a rank."""
    if "{rank}" in path:
        return Path(path.replace("{rank}", str(rank)))
    if ranks == 1:
        return Path(path)
    # The longer ending first: a name in .json.gz does not end in .json.
    ending = next((ending for ending in (".json.gz", ".json") if path.endswith(ending)), "")
    return Path(f"{path.removesuffix(ending)}.rank-{rank}{ending}")


class Recorder:
    """Counts the steps of the first optimizer that steps, and records when it is time."""

    def __init__(self, recording: TraceRecording) -> None:
        self.recording = recording
        self.process = os.getpid()
        self.steps = 0
        self.times_s: list[float] = []
        self._first: int | None = None
        self._since = 0.0
        self._tracing: contextlib.ExitStack | None = None
        self._profiler: profile | None = None
        self._written: Path | None = None

    def start_whole(self) -> None:
        """Start to record the whole program, once torch is there."""
        # torchrun imports torch as well, and is not the program: its ranks are.
        if "torch.distributed.run" not in sys.modules or "RANK" in os.environ:
            self._start()

    def on_step(self, optimizer: object, *_: object) -> None:
        """Count a step of an optimizer. Time it, record it or finish its recording."""
        # Workers of a data loader are forks, which have this hook and are not the program.
        if self._written is not None or os.getpid() != self.process:
            return
        # Programs with several optimizers, such as a GAN, take one step of each: the first one counts the steps.
        if self._first is None:
            self._first = id(optimizer)
        if id(optimizer) != self._first:
            return
        recording = self.recording
        self.steps += 1
        if self._tracing is not None:
            self._finish()
        elif self.steps >= recording.skip:
            wait_for_devices()
            now = time.perf_counter()
            if self.steps > recording.skip:
                self.times_s.append(now - self._since)
            if self.steps >= recording.skip + recording.timed:
                self._start()
            self._since = time.perf_counter()

    def at_exit(self) -> None:
        """Stop a recording in progress, and leave a note of the work."""
        if os.getpid() != self.process:
            return
        if self._tracing is not None:
            if self.recording.is_whole:
                self._finish()
            else:  # the step that it began with never ended
                self._stop()
                self._raw().unlink(missing_ok=True)
        if self.recording.notes is not None and (self.steps or self._written is not None):
            note = {"steps": self.steps, "path": str(self._written or ""), "step_s": self._step_s()}
            (Path(self.recording.notes) / f"{self.process}.json").write_text(json.dumps(note))

    def _start(self) -> None:
        import torch
        from torch.profiler import ProfilerActivity, profile

        # What earlier steps asked of the device would be done, and profiled, within this one.
        wait_for_devices()
        self._path().parent.mkdir(parents=True, exist_ok=True)
        self._tracing = contextlib.ExitStack()
        self._tracing.enter_context(execution_trace(self._raw()))
        if self.recording.has_profile:
            kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
            self._profiler = self._tracing.enter_context(profile(activities=kinds))

    def _stop(self) -> None:
        wait_for_devices()
        if self._tracing is not None:
            self._tracing.close()
            self._tracing = None

    def _finish(self) -> None:
        import torch

        self._stop()
        path, raw = self._path(), self._raw()
        rank, ranks = launched_rank()
        about = {
            "step_s": self._step_s(),
            "steps_timed": len(self.times_s),
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
            "rank": rank,
            "ranks": ranks,
        }
        # Renamed when it is whole: a program that is killed leaves no trace that looks like one.
        part = path.with_name(path.name + ".part")
        with raw.open("rb") as source, (gzip.open if path.suffix == ".gz" else open)(part, "wb") as sink:
            # What we add goes behind the first brace, as bytes: a trace has gigabytes, and need not be parsed for it.
            head = source.read(CHUNK)
            inside = head.index(b"{") + 1
            sink.write(head[:inside] + b'"benchmate": ' + json.dumps(about).encode() + b"," + head[inside:])
            shutil.copyfileobj(source, sink, CHUNK)
        part.replace(path)
        raw.unlink()
        if self._profiler is not None:
            self._profiler.export_chrome_trace(str(profile_path(path)))
        self._written = path
        if self.recording.is_last:
            raise SystemExit(0)

    def _step_s(self) -> float | None:
        return statistics.median(self.times_s) if self.times_s else None

    def _path(self) -> Path:
        return rank_path(self.recording.path, *launched_rank())

    def _raw(self) -> Path:
        path = self._path()
        return path.with_name(f"{path.name}.{self.process}.raw")


def profile_path(path: Path) -> Path:
    """Return the file of the profiler's trace of a recording."""
    name = path.name.removesuffix(".gz").removesuffix(".json")
    return path.with_name(f"{name}.profile.json")
