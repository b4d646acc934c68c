"""Inputs run again under NSight Compute or NSight Systems, several in a run of the profiler."""

from __future__ import annotations

import json
import logging
import os
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing import resource_tracker, shared_memory

from benchmate.devices.vendors.regular_file import MIB, read_regular
from benchmate.ops.base import JsonObject, OpsError
from benchmate.ops.config_file import OperatorInput
from benchmate.ops.device import MEASURED
from benchmate.ops.options import Options, ProfilerOptions
from benchmate.supervisor import SupervisedProcess, spawn, supervise

logger = logging.getLogger("benchmate.ops")


class ProfilerBatches:
    """Queues inputs of a build and runs them under each requested profiler, if any. `done` takes the record of a run."""

    def __init__(self, options: Options, done: Callable[[JsonObject], None]) -> None:
        self.options, self.done = options, done
        self._queue: list[OperatorInput] = []

    def add(self, operator_input: OperatorInput) -> None:
        """Queue an input. A full batch, or a batch of another build, is run first."""
        if self._queue and self._queue[0].build_key != operator_input.build_key:
            self.flush()
        self._queue.append(operator_input)
        if len(self._queue) >= max(1, self.options.run_batch_size):
            self.flush()

    def flush(self) -> None:
        """Run the queued inputs."""
        if not self._queue:
            return
        for name, profiler in (("ncu", self.options.run_ncu), ("nsys", self.options.run_nsys)):
            if profiler.is_on:
                self.done(self._run(name, profiler))
        self._queue.clear()

    def _run(self, name: str, profiler: ProfilerOptions) -> JsonObject:
        payload = batch_payload(self._queue, self.options, profiler)
        content = json.dumps(payload).encode()
        stem = f"{self.options.out_file_prefix}_{os.getpid()}_{time.time_ns() // 1000}_{name}"
        path = f"{stem}.log" if name == "ncu" else f"{stem}.nsys-rep"
        memory = shared_memory.SharedMemory(create=True, size=len(content))
        try:
            assert memory.buf is not None
            memory.buf[: len(content)] = content
            argv = profiler_argv(name, profiler, path, self.options.batch_cmd, memory.name)
            code, output = _run_profiler(argv, self.options.batch_cuda_device)
        finally:
            memory.close()
            memory.unlink()
        logger.info("%s", output.rstrip())
        record: JsonObject = {
            f"{name}_file": path,
            f"{name}_cmd_str": shlex.join(argv),
            "config": payload,
            "start_run_id": self._queue[0].run_id,
            "end_run_id": self._queue[-1].run_id,
            "return_code": code,
        }
        if code:
            lines = output.strip().splitlines()
            record["error"] = lines[-1] if lines else f"{argv[0]} exited with code {code}"
            logger.warning("%s: %s: exit code %s", name, path, code)
        return record


def batch_payload(queue: Sequence[OperatorInput], options: Options, profiler: ProfilerOptions) -> JsonObject:
    """Return the task for the child: a build, its inputs with their ids, and how to run them."""
    first = queue[0]
    build = None if first.build is None else [first.build]
    return {
        "op_name": first.operator,
        "config_build_id": f"{first.config_id}|{first.build_id}",
        "op_info": {
            "build_iterator": None,
            "input_iterator": "DummyConfigIterator",
            "build_data_generator": first.spec.build_data_generator,
            "input_data_generator": first.spec.input_data_generator,
            "config": [{"build": build, "input": [_with_id(operator_input) for operator_input in queue]}],
        },
        "run_options": {
            **{key: value for key, value in options.described().items() if key != "cmd_args"},
            "warmup": profiler.warmup,
            "iteration": profiler.iteration,
            "device": "cuda" if options.device.startswith("cuda") else options.device,
        },
    }


def profiler_argv(name: str, profiler: ProfilerOptions, output: str, batch_command: str, memory: str) -> list[str]:
    """Return the words that start the profiler on a batch."""
    extra = shlex.split(read_regular(profiler.args_file, MIB).decode()) if profiler.args_file else []
    child = shlex.split(batch_command) if batch_command else [sys.executable, "-m", "benchmate.ops", "run_batch"]
    if name == "ncu":
        # The measured calls only: their range, with no domain. The original's `--app-replay-buffer file` is for a mode of
        # replay that is not the default one, with which today's ncu refuses it.
        own = ["--log-file", output, "--csv", "--nvtx", "--nvtx-include", MEASURED]
        own += ["--target-processes", "all"]
    else:
        own = ["profile", "-t", "cuda,nvtx", "-o", output]
    return [profiler.program, *own, *extra, *child, "-s", memory]


def _run_profiler(argv: Sequence[str], device: int) -> tuple[int, str]:
    """Return the exit code and the output. 127 for a program that does not exist."""
    # The child is told `cuda`, whichever device that is here: it sees no other.
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": str(device)}
    output: list[bytes] = []

    def start(_result: int, descriptor: int) -> SupervisedProcess:
        return spawn(argv, output=descriptor, env=env)

    try:
        ended = supervise(start, output.append)
    except OSError as error:
        return 127, f"{argv[0]}: {error.strerror}"
    return ended.code or 0, b"".join(output).decode("utf-8", "replace")


def read_shared_memory(name: str) -> str:
    """Return the text in a shared memory that belongs to another process. Raises OpsError where there is none."""
    try:
        memory = shared_memory.SharedMemory(name=name)
    except OSError as error:
        raise OpsError(f"{name}: {error.strerror}") from error
    try:
        # Python < 3.13 takes every memory that is attached for its own, and would remove it when this process ends.
        resource_tracker.unregister(memory._name, "shared_memory")  # type: ignore[attr-defined]
        # Some systems round the size up to whole pages, filled with zeros.
        return bytes(memory.buf or b"").rstrip(b"\0").decode(errors="replace")
    finally:
        memory.close()


def _with_id(operator_input: OperatorInput) -> JsonObject:
    content = operator_input.input if isinstance(operator_input.input, dict) else {"value": operator_input.input}
    return {**content, "id": operator_input.input_id}
