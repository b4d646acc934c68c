"""The command line of the operator benchmark: the original's options with their meaning, and ours."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import io
import json
import logging
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

import benchmate
from benchmate.frameworks import launched_rank
from benchmate.ops import collectives, exec_modes, records, registry, sampling
from benchmate.ops.arguments import FILLS, LISTS
from benchmate.ops.base import JsonMapping, OpsError, import_torch, printable, quiet_torch, run_command
from benchmate.ops.benchmark import Benchmark, BenchmarkConfig, check_resume_ids, resolved
from benchmate.ops.builtin import is_plausible
from benchmate.ops.config_file import OperatorSpec, iterate_inputs, read_operators
from benchmate.ops.device import torch_device
from benchmate.ops.options import FORMATS, ExecutionPass, Options, ProfilerOptions, parse_modes, require_at_least
from benchmate.ops.statistics import StopRule
from benchmate.ops.traces.record import execution_trace

logger = logging.getLogger("benchmate.ops")

EPILOG = """\
exit code: 0 all inputs passed or were skipped, 1 an input failed (its record says why) or the name of an operator is unknown
(it was skipped), 2 the configuration or an option is wrong, or no operator is known, and nothing ran.
Also: python -m benchmate.ops run_batch ..., nsys_analysis ..., trace ... (each has its --help), alias.
"""


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    parser = _parser()
    args = parser.parse_args(argv)
    return run_command(lambda: _execute(args, parser))


def _execute(args: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    _log_to_stderr(args.log_level if launched_rank()[0] == 0 else "ERROR")
    if args.version:
        print(benchmate.__version__)
        return 0
    quiet_torch()
    _plug_in(args.imports)
    if args.list_ops:
        return _list_ops()
    if args.config is None:
        parser.print_usage(sys.stderr)
        raise OpsError("no configuration: give it with -c FILE, or use --list-ops")
    options = options_from_args(args)
    specs = read_operators(args.config)
    _check_names(specs)
    if args.expand:
        return _expand(specs, options)
    return _run(args, specs, options)


def _run(args: argparse.Namespace, specs: tuple[OperatorSpec, ...], options: Options) -> int:
    check_resume_ids(specs, options)
    if options.cuda_graph and not options.device.startswith("cuda"):
        logger.warning("--cuda-graph: there are none on %s. Timed without", options.device)
    import_torch()
    torch_device(options.device)
    resolved(specs)
    path = records.output_path(options.out_file_prefix, args.append)
    try:
        # Of several ranks only the first one writes; the others' records are the same.
        stream: TextIO = records.open_output(path, args.append) if launched_rank()[0] == 0 else io.StringIO()
    except OSError as error:
        raise OpsError(f"-o {options.out_file_prefix}: {error.strerror}") from error
    with stream:
        config = BenchmarkConfig(dataclasses.replace(options, out_stream=stream))
        config.bench_config = specs
        benchmark = Benchmark(config)
        with torch_profilers(args, path, options.device, stream):
            counts = benchmark.run()
    collectives.leave()
    if launched_rank()[0] == 0:
        summary = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
        unknown = f"; unknown: {', '.join(benchmark.unknown)}" if benchmark.unknown else ""
        print(f"{summary or 'nothing to run'}{unknown}. Records: {path}")
    return 1 if counts["failed"] or benchmark.unknown else 0


def options_from_args(args: argparse.Namespace) -> Options:
    """Return the options of a command line. Raises OpsError for contradicting options."""
    modes = parse_modes(args.exec_mode or "discrete")
    is_sampled = modes[0] in sampling.NAMES
    require_at_least(("-w", args.warmup, 0), ("-i", args.iteration, 0))
    require_at_least(("--run-batch-size", args.run_batch_size, 1), ("--threads", args.threads, 1))
    given = vars(args)
    same = ["device", "warmup", "iteration", "seed", "threads", "run_batch_size", "batch_cuda_device", "batch_cmd"]
    same += ["pt2_model", "cuda_graph"]
    return Options(
        **{name: given[name] for name in same},
        pass_type=ExecutionPass.BACKWARD if args.backward else ExecutionPass.FORWARD,
        modes=modes,
        cuda_l2_cache=args.cuda_l2_cache == "on",
        format=args.format or ("rich" if is_sampled else "original"),
        # A product of zeros or of positive numbers needs less power than one of normal numbers, and runs faster.
        data=args.data or ("normal" if is_sampled else "uniform"),
        rule=StopRule(precision=args.precision, seconds=min(args.min_time, args.max_time), longest_s=args.max_time),
        has_peaks=not args.no_peaks,
        resume_op_run_id=args.resume_id,
        stop_op_run_id=args.stop_id,
        out_file_prefix=args.output_prefix,
        run_ncu=_profiler_options(given, "ncu"),
        run_nsys=_profiler_options(given, "nsys"),
        cmd_args=given,
    )


def _profiler_options(given: JsonMapping, name: str) -> ProfilerOptions:
    same = {option: given[f"{name}_{option}"] for option in ("args_file", "warmup", "iteration")}
    return ProfilerOptions(is_on=given[name], program=given[f"{name}_bin"], **same)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmate.ops",
        description="Times PyTorch operators with the inputs of a JSON configuration.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    flag = functools.partial(add, action="store_true")
    number = functools.partial(add, type=int, metavar="N")
    add("-c", "--config", metavar="FILE", help="the configuration")
    number("-w", "--warmup", default=1, help="warm-up calls of each input (1)")
    number("-i", "--iteration", default=1, help="measured calls of each input, in the original's modes (1)")
    flag("-b", "--backward", help="time the backward pass too")
    add("-d", "--device", default="cpu", help="cpu, cuda, cuda:1, xpu, ... (cpu)")
    prefix = "benchmark_result"
    add("-o", "--output-prefix", default=prefix, metavar="PREFIX", help="records go to PREFIX_<pid>_<time>.json")
    add("-r", "--resume-id", metavar="ID", help="start with the input of this id (op|config|build|input) or hash")
    add("-s", "--stop_id", "--stop-id", metavar="ID", help="stop before the input of this id or hash")
    flag("-a", "--append", help="append to PREFIX.json")
    cache = "off: empty the cache before each call in mode discrete, on any device (on)"
    add("--cuda-l2-cache", nargs="?", choices=("on", "off"), default="on", const="off", help=cache)
    for name, full, runs in (("ncu", "NSight Compute", 1), ("nsys", "NSight Systems", 10)):
        flag(f"--{name}", help=f"run every input again under {full}")
        add(f"--{name}-bin", default=name, metavar="PATH", help=f"the program ({name})")
        add(f"--{name}-args-file", default="", metavar="FILE", help=f"more options for {full}")
        number(f"--{name}-warmup", default=5, help=f"warm-up calls under {full} (5)")
        number(f"--{name}-iteration", default=runs, help=f"measured calls under {full} ({runs})")
    number("--run-batch-size", default=50, help="inputs for each run of ncu or nsys (50)")
    number("--batch-cuda-device", default=1, help="GPU of the batches (1)")
    batch = "command that ncu or nsys starts (this Python with benchmate.ops run_batch)"
    add("--batch-cmd", default="", metavar="COMMAND", help=batch)
    original, own = ", ".join(exec_modes.NAMES), ", ".join(sampling.NAMES)
    modes = f"one of {original} (discrete), or any of {own} joined by commas"
    add("--exec-mode", nargs="?", const="discrete", metavar="MODE", help=modes)
    flag("-p", "--profile", help="record a trace of the whole run with torch's profiler")
    flag("--cupti-profiler", help="record CUPTI counters in the trace")
    counters = "kineto__cuda_core_flops"
    add("--cupti-profiler-metrics", default=counters, metavar="NAMES", help="counters, joined by commas")
    flag("--cupti-profiler-measure-per-kernel", help="count for each kernel")
    flag("--et", help="record an execution trace of the whole run")
    flag("--pt2-model", help="compile each operator with torch.compile")
    flag("--cuda-graph", help="replay each operator from a CUDA graph")
    add("-l", "--log-level", default="INFO", metavar="LEVEL", help="DEBUG, INFO, WARNING, ERROR (INFO)")
    flag("--version", help="print the version")
    _add_own_options(parser.add_argument_group("beyond the original"))
    return parser


def _add_own_options(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    flag = functools.partial(add, action="store_true")
    number = functools.partial(add, type=int, metavar="N")
    seconds = functools.partial(add, type=float, metavar="S")
    flag("--list-ops", help="print the operators, iterators and generators that are registered")
    flag("--expand", help="print every input that would run, with id and hash, and their number")
    add("--format", choices=FORMATS, help="format of the records (original, in our modes rich)")
    number("--threads", help="threads of an operator on the CPU (1, or torch's own choice in the format rich)")
    number("--seed", default=0, help="seed of everything drawn at random (0)")
    add("--data", choices=FILLS, help="how floating-point inputs are filled (uniform, in our modes normal)")
    precision = "half width of the confidence interval to stop at (0.005)"
    add("--precision", type=float, default=0.005, metavar="SHARE", help=precision)
    seconds("--min-time", default=0.5, help="minimum duration of each measurement in seconds (0.5)")
    seconds("--max-time", default=15.0, help="seconds after which a measurement is unconverged (15)")
    flag("--no-peaks", help="do not measure the machine's peaks")
    imports = "a module that registers operators"
    add("--import", dest="imports", action="append", default=[], metavar="MODULE", help=imports)


def _plug_in(modules: Sequence[str]) -> None:
    # A console script does not look into the working directory, where one's own module usually stands.
    if modules and "" not in sys.path:
        sys.path.insert(0, "")
    registry.import_modules(modules)
    for failure in registry.import_entry_points():
        logger.warning("%s. Its operators are left out", failure)


def _check_names(specs: tuple[OperatorSpec, ...]) -> None:
    """Raise OpsError where no name can be an operator's, before torch is imported."""
    if specs and not any(is_plausible(spec.name) for spec in specs):
        name = specs[0].name
        hint = registry.spelling_hint(name, registry.op_map) or ". --list-ops names those that are registered"
        raise OpsError(f"unknown operator '{name}'{hint}")


def _list_ops() -> int:
    iterators, generators = registry.config_iterator_map, registry.data_generator_map
    tables: dict[str, JsonMapping] = {
        "operators": registry.op_map,
        "config iterators": iterators,
        "data generators": generators,
    }
    for title, table in tables.items():
        print(f"{title}:", *sorted(table), sep="\n  ")
    print("and any function, module or optimizer as torch.<name>, any operator as <namespace>::<name>[.<overload>]")
    return 0


def _expand(specs: tuple[OperatorSpec, ...], options: Options) -> int:
    count = 0
    for spec in specs:
        for item in iterate_inputs(spec, options.device):
            count += 1
            build = "" if item.build is None else f"{_format_arguments(item.build)} : "
            # Not by print, which would take most of the time of millions of lines.
            sys.stdout.write(printable(f"{item.run_id}  {item.hash}  {build}{_format_arguments(item.input)}") + "\n")
    print(f"{count} inputs")
    return 0


def _format_arguments(spec: object) -> str:
    """Return an argument list as a person would write it."""
    if not isinstance(spec, dict) or not spec.keys() & {"args", "kwargs"}:
        return json.dumps(spec)
    words = [_format_argument(argument) for argument in spec.get("args") or ()]
    words += [f"{name}={_format_argument(argument)}" for name, argument in (spec.get("kwargs") or {}).items()]
    return f"({', '.join(words)})"


def _format_argument(spec: JsonMapping) -> str:
    kind: str = spec["type"]
    if kind == "tensor":
        return f"{spec['dtype']}[{','.join(map(str, spec['shape']))}]"
    if kind in LISTS:
        return f"[{', '.join(map(_format_argument, spec['value']))}]"
    if "value" in spec:
        return str(spec["value"])
    return f"{kind}{spec['value_range']}" if "value_range" in spec else kind


def _log_to_stderr(level: str) -> None:
    number = logging.getLevelName(level.upper())
    if not isinstance(number, int):
        raise OpsError(f"-l {level}: expected DEBUG, INFO, WARNING or ERROR")
    text = "%(message)s" if number > logging.DEBUG else "%(filename)s:%(lineno)d: %(message)s"
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(text))
    logger.handlers[:] = [handler]
    logger.setLevel(number)
    logger.propagate = False


@contextlib.contextmanager
def torch_profilers(args: argparse.Namespace, output: Path, device: str, stream: TextIO) -> Iterator[None]:
    """Profile the work inside as `-p`, `--cupti-profiler` and `--et` ask. Each trace is written next to the records."""
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
        logger.warning("--cupti-profiler: there is no CUPTI on %s. Recorded without", device)
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
