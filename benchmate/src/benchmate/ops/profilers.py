"""Torch's own profilers around a whole run: a Chrome trace, CUPTI counters, an execution trace."""

from __future__ import annotations

import argparse
import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from benchmate.ops import records
from benchmate.ops.traces.record import execution_trace

logger = logging.getLogger("benchmate.ops")


@contextlib.contextmanager
def torch_profilers(args: argparse.Namespace, output: Path, device: str, stream: TextIO) -> Iterator[None]:
    """Profile what runs inside as `-p`, `--cupti-profiler` and `--et` ask; each trace is written beside the records."""
    et_path = output.with_name(f"{output.stem}_et.json")
    with contextlib.ExitStack() as stack:
        if args.et:
            stack.enter_context(execution_trace(et_path))
        if args.profile or args.cupti_profiler:
            stack.enter_context(_trace(args, output.with_name(f"{output.stem}_trace.json"), device, stream))
        yield
    if args.et:
        records.write_record(stream, {"et_file": str(et_path)})


@contextlib.contextmanager
def _trace(args: argparse.Namespace, path: Path, device: str, stream: TextIO) -> Iterator[None]:
    from torch.profiler import ProfilerActivity, profile

    counters: dict[str, object] = {}
    is_cuda = device.startswith("cuda")
    if args.cupti_profiler and not is_cuda:
        logger.warning("--cupti-profiler: there is no CUPTI on %s; recorded without", device)
    elif args.cupti_profiler:
        from torch._C._profiler import _ExperimentalConfig

        counters["experimental_config"] = _ExperimentalConfig(
            profiler_metrics=args.cupti_profiler_metrics.split(","),
            profiler_measure_per_kernel=args.cupti_profiler_measure_per_kernel,
        )
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if is_cuda else [])]
    with profile(activities=activities, record_shapes=True, **counters) as profiler:
        yield
    profiler.export_chrome_trace(str(path))
    records.write_record(stream, {"trace_file": str(path)})
