"""How to run: everything that the command line or a program that uses the library can choose."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TextIO

from benchmate.ops import exec_modes, sampling
from benchmate.ops.base import JsonMapping, JsonObject, OpsError
from benchmate.ops.statistics import StopRule

MODES = (*exec_modes.NAMES, *sampling.NAMES)
FORMATS = ("original", "rich")


class ExecutionPass(enum.Enum):
    """Which passes are timed."""

    FORWARD = "forward"
    BACKWARD = "backward"  # forward and backward


class OpExecutionMode(enum.Enum):
    """The modes of the original, by the names that its programs use."""

    DISCRETE = "discrete"
    CONTINUOUS = "continuous"
    CONTINUOUS_EVENTS = "continuous_events"


@dataclass(frozen=True, kw_only=True)
class ProfilerOptions:
    """How NSight Compute or NSight Systems is started: the program, a file with more of its options, and the passes under it."""

    is_on: bool = False
    program: str = ""
    args_file: str = ""
    warmup: int = 5
    iteration: int = 1


@dataclass(frozen=True, kw_only=True)
class Options:
    """A run, by the original's names. `modes` is a mode of the original's, or any of ours.

    `cuda_l2_cache` says whether the cache is kept from call to call.
    """

    device: str = "cpu"
    pass_type: ExecutionPass = ExecutionPass.FORWARD
    modes: tuple[str, ...] = ("discrete",)
    warmup: int = 1
    iteration: int = 1
    cuda_l2_cache: bool = True
    out_file_prefix: str = "benchmark_result"
    resume_op_run_id: str | None = None
    stop_op_run_id: str | None = None
    run_batch_size: int = 50
    batch_cuda_device: int = 1
    batch_cmd: str = ""
    run_ncu: ProfilerOptions = ProfilerOptions(program="ncu")
    run_nsys: ProfilerOptions = ProfilerOptions(program="nsys", iteration=10)
    pt2_model: bool = False
    cuda_graph: bool = False
    format: str = "original"
    data: str = "uniform"
    seed: int = 0
    threads: int | None = None
    rule: StopRule = field(default_factory=StopRule)
    cmd_args: JsonMapping = field(default_factory=dict)
    has_peaks: bool = True
    out_stream: TextIO | None = None

    @property
    def cpu_threads(self) -> int | None:
        """Threads of an operator on the CPU: a single one in the original's format, as there.

        None leaves torch its own choice.
        """
        return 1 if self.threads is None and self.format == "original" else self.threads

    @property
    def has_backward(self) -> bool:
        return self.pass_type is ExecutionPass.BACKWARD

    @property
    def is_dry(self) -> bool:
        """Whether nothing is run: no call is asked for in a mode that counts its calls."""
        return self.warmup == 0 and self.iteration == 0 and self.modes[0] in exec_modes.NAMES

    def described(self) -> JsonObject:
        """Return the options as the record of a run holds them."""
        values: JsonObject = {option.name: getattr(self, option.name) for option in dataclasses.fields(self)}
        values |= {"pass_type": self.pass_type.value, "threads": self.cpu_threads, "cmd_args": dict(self.cmd_args)}
        values |= {"run_ncu": self.run_ncu.is_on, "run_nsys": self.run_nsys.is_on}
        values |= {"rule": dataclasses.asdict(self.rule), "op_exec_mode": ",".join(values.pop("modes"))}
        return {name: value for name, value in values.items() if name not in NOT_RECORDED}


NOT_RECORDED = ("has_peaks", "out_stream")
ORIGINAL_OPTIONS = ["device", "pass_type", "warmup", "iteration", "cuda_l2_cache", "out_file_prefix", "out_stream"]
ORIGINAL_OPTIONS += ["resume_op_run_id", "stop_op_run_id", "run_batch_size", "batch_cuda_device", "batch_cmd"]


def require_at_least(*options: tuple[str, int | None, int]) -> None:
    """Raise OpsError for an option that is given and below its minimum."""
    for name, value, least in options:
        if value is not None and value < least:
            raise OpsError(f"{name}: expected at least {least}, got {value}")


def parse_modes(text: str) -> tuple[str, ...]:
    """Return `hot,cold` as modes. Raises OpsError for an unknown mode, or a mode of the original's combined with another."""
    modes = tuple(word.strip() for word in text.split(","))
    for mode in modes:
        if mode not in MODES:
            raise OpsError(f"--exec-mode: unknown mode '{mode}'. Known: {', '.join(MODES)}")
    if len(modes) > 1 and set(modes) & set(exec_modes.NAMES):
        raise OpsError(
            f"--exec-mode {text}: {', '.join(exec_modes.NAMES)} stand alone, {', '.join(sampling.NAMES)} combine"
        )
    return modes


def get_benchmark_options() -> dict[str, Any]:
    """Return the defaults as the mapping that a program changes and hands to `BenchmarkConfig`. Its keys are the original's."""
    defaults = {name: getattr(Options(), name) for name in ORIGINAL_OPTIONS}
    return {**defaults, "op_exec_mode": OpExecutionMode.DISCRETE}


def as_options(run_options: Options | JsonMapping) -> Options:
    """Return options from the original's mapping. Unknown keys are left alone. Raises OpsError for a wrong value."""
    if isinstance(run_options, Options):
        return run_options
    # Of the profilers the original says no more than whether they run.
    known = {option.name for option in dataclasses.fields(Options)} - {"run_ncu", "run_nsys"}
    values: JsonObject = {name: value for name, value in run_options.items() if name in known}
    if isinstance(values.get("rule"), Mapping):
        values["rule"] = StopRule(**values["rule"])
    if (mode := run_options.get("op_exec_mode")) is not None:
        values["modes"] = parse_modes(str(getattr(mode, "value", mode)))
    if isinstance(values.get("pass_type"), str):
        values["pass_type"] = ExecutionPass(values["pass_type"].lower())
    if isinstance(values.get("cuda_l2_cache"), str):
        values["cuda_l2_cache"] = values["cuda_l2_cache"] == "on"
    return Options(**values)
