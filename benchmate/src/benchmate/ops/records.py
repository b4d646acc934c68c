"""The records of a run as JSON lines: setup, a line for each input, finish."""

from __future__ import annotations

import io
import json
import os
import platform
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

import benchmate
from benchmate.kernel_files import cpu_model, read_text
from benchmate.ops.base import JsonMapping, JsonObject
from benchmate.ops.config_file import OperatorInput
from benchmate.ops.config_iterators import META
from benchmate.ops.executor import InputResult
from benchmate.ops.options import Options

SCHEMA = 1


def setup_record(options: Options, floor: Mapping[str, float] | None) -> JsonObject:
    """Return the first line: options, machine and software, start time. `floor` is the cost of the harness itself, in seconds."""
    record: JsonObject = {"run_options": options.described(), "sys_info": system_info(), "start_time": _now()}
    if options.format == "rich":
        record |= {"schema": SCHEMA, "format": "rich", "floor": None if floor is None else dict(floor)}
    return record


def input_record(operator_input: OperatorInput, result: InputResult, options: Options) -> JsonObject:
    """Return the line of an input: the original's four keys, in the format `rich` everything else too.

    Failed and skipped inputs are marked in both formats, and random draws are in both.
    """
    details = result.details
    config = {"build": operator_input.build, "input": operator_input.input}
    record: JsonObject = {
        "op_name": operator_input.operator,
        "id": operator_input.id,
        "metric": result.metric,
        "config": _without_macros(config),
    }
    if result.drawn:
        record["drawn"] = result.drawn
    if result.status != "passed":
        record |= {"status": result.status, "error": result.error}
    elif "no_backward" in details:
        record["no_backward"] = details["no_backward"]
    if options.format == "rich":
        reasons = list(details.get("reasons", ()))
        if any(timed.get("converged") is False for timed in result.results):
            reasons.append("unconverged")
        validity = "suspect" if reasons else "valid"
        if details.get("correctness", {}).get("status") == "wrong":
            validity = "invalid"
            reasons.append("wrong")
        record |= {
            "run_id": operator_input.run_id,
            "hash": operator_input.hash,
            "status": result.status,
            "validity": validity,
            "results": result.results,
            **details,
            "reasons": reasons,
        }
    return record


def finish_record(counts: Mapping[str, int]) -> JsonObject:
    """Return the last line."""
    return {"finish_time": _now(), "counts": dict(counts)}


def write_record(stream: TextIO, record: JsonMapping) -> None:
    """Append a record and flush it to the file."""
    # A line in one write: what is killed in between leaves whole lines, but for the last.
    stream.write(json.dumps(record, default=str) + "\n")
    stream.flush()


def output_path(prefix: str, is_appended: bool) -> Path:
    """Return `prefix_pid_time.json`, new for each run. `prefix.json` where runs are appended to each other."""
    return Path(f"{prefix}.json" if is_appended else f"{prefix}_{os.getpid()}_{int(time.time())}.json")


def open_output(path: Path, is_appended: bool) -> TextIO:
    """Open the file to write to. A line that a killed run left unfinished is ended first, so that it spoils no other."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # x: the name of a new one can be known before, and somebody may have put a link there.
    stream = path.open("a" if is_appended else "x", encoding="utf-8")
    if is_appended and path.stat().st_size:
        with path.open("rb") as written:
            written.seek(-1, io.SEEK_END)
            if written.read(1) != b"\n":
                stream.write("\n")
    return stream


def system_info() -> JsonObject:
    """Return the machine and the software, under the original's names where it has them. Unknown values are null."""
    import torch

    info: JsonObject = {
        "hostname": socket.gethostname(),
        "pid": os.getpid(),
        "cwd": str(Path.cwd()),
        "python_version": sys.version,
        "param_train_compute_version": benchmate.__version__,
        "cuda_available": torch.cuda.is_available(),
        "pytorch_version": torch.__version__,
        "pytorch_debug_build": torch.version.debug,
        "pytorch_build_config": torch._C._show_config(),
        "threads": torch.get_num_threads(),
        "cpu_model": cpu_model() or platform.processor() or None,
        "cpu_count": os.cpu_count(),
        "affinity": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "load": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
        "governor": read_text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "kernel": platform.release(),
        "tf32": torch.backends.cuda.matmul.allow_tf32,
        "cudnn_tf32": torch.backends.cudnn.allow_tf32,
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
    }
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        info |= {
            "cuda": torch.version.cuda,
            "cuda_device_driver": _driver(),
            "cuda_gencode": torch.cuda.get_gencode_flags(),
            "cuda_device_id": torch.cuda.current_device(),
            "cuda_device_name": properties.name,
            "cuda_device_property": str(properties),
            "cudnn": torch.backends.cudnn.version(),
            "cudnn_enabled": torch.backends.cudnn.enabled,
        }
    return info


def _without_macros(spec: object) -> object:
    if isinstance(spec, Mapping):
        return {key: _without_macros(value) for key, value in spec.items() if key not in META}
    return [_without_macros(item) for item in spec] if isinstance(spec, (list, tuple)) else spec


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S")


def _driver() -> str | None:
    text = read_text("/proc/driver/nvidia/version") or ""
    return next((word for word in text.split() if word[:1].isdigit() and "." in word), None)
