"""Inputs run again under NSight Compute or NSight Systems, several in one launch of the profiler."""

from __future__ import annotations

import json
import logging
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing import resource_tracker, shared_memory
from pathlib import Path
from typing import Any

from benchmate.ops.config_file import OperatorInput
from benchmate.ops.options import Options, ProfilerOptions
from benchmate.ops.profiler_ranges import MEASURED

logger = logging.getLogger("benchmate.ops")


class ProfilerBatches:
    """Queues inputs of one build and runs them under each profiler that is asked for; `done` takes the record of a launch."""

    def __init__(self, options: Options, done: Callable[[dict[str, Any]], None]) -> None:
        self.options, self.done = options, done
        self._queue: list[OperatorInput] = []

    def add(self, one: OperatorInput) -> None:
        """Queue an input; a full batch, or another build, is run first."""
        if self._queue and _build_of(self._queue[0]) != _build_of(one):
            self.flush()
        self._queue.append(one)
        if len(self._queue) >= max(1, self.options.run_batch_size):
            self.flush()

    def flush(self) -> None:
        """Run what is queued."""
        if not self._queue:
            return
        for name, profiler in (("ncu", self.options.ncu), ("nsys", self.options.nsys)):
            if profiler.is_on:
                self.done(self._run(name, profiler))
        self._queue.clear()

    def _run(self, name: str, profiler: ProfilerOptions) -> dict[str, Any]:
        first, last = self._queue[0], self._queue[-1]
        config = batch_payload(self._queue, self.options, profiler)
        text = json.dumps(config).encode()
        stem = f"{self.options.out_file_prefix}_{os.getpid()}_{time.time_ns() // 1000}_{name}"
        output = f"{stem}.log" if name == "ncu" else f"{stem}.nsys-rep"
        memory = shared_memory.SharedMemory(create=True, size=len(text))
        try:
            assert memory.buf is not None
            memory.buf[: len(text)] = text
            argv = profiler_argv(name, profiler, output, self.options.batch_cmd, memory.name)
            code, said = _carried_out(argv, self.options.batch_cuda_device)
        finally:
            memory.close()
            memory.unlink()
        logger.info("%s", said.rstrip())
        made = {
            f"{name}_file": output,
            f"{name}_cmd_str": shlex.join(argv),
            "config": config,
            "start_run_id": first.run_id,
            "end_run_id": last.run_id,
            "return_code": code,
        }
        if code:
            lines = said.strip().splitlines()
            made["error"] = lines[-1] if lines else f"{argv[0]} ended with {code}"
            logger.warning("%s: %s: exit code %s", name, output, code)
        return made


def batch_payload(queue: Sequence[OperatorInput], options: Options, profiler: ProfilerOptions) -> dict[str, Any]:
    """What the child is told: one build, its inputs with their ids, and how to run them."""
    first = queue[0]
    return {
        "op_name": first.operator,
        "config_build_id": f"{first.config_id}|{first.build_id}",
        "op_info": {
            "build_iterator": None,
            "input_iterator": "DummyConfigIterator",
            "build_data_generator": first.build_generator,
            "input_data_generator": first.input_generator,
            "config": [
                {"build": None if first.build is None else [first.build], "input": [_with_id(one) for one in queue]}
            ],
        },
        "run_options": {
            **{key: value for key, value in options.described().items() if key != "cmd_args"},
            "warmup": profiler.warmup,
            "iteration": profiler.iteration,
            "device": "cuda" if options.device.startswith("cuda") else options.device,
        },
    }


def profiler_argv(name: str, profiler: ProfilerOptions, output: str, batch_command: str, memory: str) -> list[str]:
    """The words that start the profiler on a batch."""
    more = shlex.split(Path(profiler.args_file).read_text(encoding="utf-8")) if profiler.args_file else []
    child = shlex.split(batch_command) if batch_command else [sys.executable, "-m", "benchmate.ops", "run_batch"]
    if name == "ncu":
        # The measured calls only: their range, with no domain. The original's `--app-replay-buffer file` is for a mode of
        # replay that is not the default one, with which today's ncu refuses it.
        own = ["--log-file", output, "--csv", "--nvtx", "--nvtx-include", MEASURED]
        own += ["--target-processes", "all"]
    else:
        own = ["profile", "-t", "cuda,nvtx", "-o", output]
    return [profiler.program, *own, *more, *child, "-s", memory]


def _carried_out(argv: Sequence[str], device: int) -> tuple[int, str]:
    """(exit code, what it said); 127 for a program that is not there."""
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": str(device)}
    try:
        done = subprocess.run(
            argv,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    except OSError as error:
        return 127, f"{argv[0]}: {error.strerror}"
    return done.returncode, done.stdout


def read_shared_memory(name: str) -> bytes:
    """The content of a shared memory that belongs to another process."""
    memory = shared_memory.SharedMemory(name=name)
    try:
        # Python < 3.13 takes every memory that is attached for its own, and would remove it when this process ends.
        resource_tracker.unregister(memory._name, "shared_memory")  # type: ignore[attr-defined]
        return bytes(memory.buf or b"").rstrip(b"\0")
    finally:
        memory.close()


def _build_of(one: OperatorInput) -> tuple[Any, ...]:
    return one.operator, one.config_id, one.build_id


def _with_id(one: OperatorInput) -> dict[str, Any]:
    return (
        {**one.input, "id": one.input_id} if isinstance(one.input, dict) else {"value": one.input, "id": one.input_id}
    )
