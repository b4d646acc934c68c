"""The commands of execution traces: record, summary, to-config, predict, replay."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmate.frameworks import launched_rank
from benchmate.ops.base import OperatorFailed, OpsError, import_torch, printable, run_command, write_whole
from benchmate.ops.benchmark import format_seconds
from benchmate.ops.device import default_device
from benchmate.ops.options import require_at_least
from benchmate.ops.traces.plan import Obstacle, static_obstacle
from benchmate.ops.traces.progress import Progress
from benchmate.ops.traces.record import VARIABLE, TraceRecording, profile_path, rank_path
from benchmate.ops.traces.replay import Replay
from benchmate.ops.traces.replay_calls import machine_obstacle
from benchmate.ops.traces.replay_report import build_report, format_left_out, format_report, read_profile
from benchmate.ops.traces.schema import read_trace
from benchmate.ops.traces.summary import format_summary, predict_step, summarise_trace, to_configuration

EPILOG = """\
exit code: 0: done, also where a replay leaves out what the trace does not describe, and says so. 1: an operator of a replay
failed, or nothing was recorded. 2: a file or an option is wrong and nothing ran.
"""


def main(argv: Sequence[str]) -> int:
    """Run a command; return the exit code."""
    words = [*argv, "--"]
    end = words.index("--")
    args = _parser().parse_args(words[:end])
    args.program = words[end + 1 : -1]
    return run_command(lambda: COMMANDS[args.command](args))


def record(args: argparse.Namespace) -> int:
    """Run a program and record one of its steps."""
    program: list[str] = args.program
    if not program:
        raise OpsError("no program: trace record [-o FILE] -- python script.py [ARGUMENTS]")
    require_at_least(("--skip", args.skip, 0), ("--timed", args.timed, 0))
    if shutil.which(program[0]) is None:
        raise OpsError(f"{program[0]}: no such program. A command such as python script.py comes after --")
    path = Path(args.path).absolute()
    if not path.parent.is_dir():
        raise OpsError(f"-o {args.path}: no folder {path.parent}")
    if path.exists() and not path.is_file():
        raise OpsError(f"-o {args.path}: exists and is no file. Name another")
    with tempfile.TemporaryDirectory(prefix="trace-") as notes:
        options = {option.name: getattr(args, option.name, None) for option in dataclasses.fields(TraceRecording)}
        options |= {"path": str(path), "notes": notes}
        inject = str(Path(__file__).resolve().parent / "inject")
        # First on the path, so that its sitecustomize is found; that of the user's Python is run by it.
        folders = [inject, *filter(None, [os.environ.get("PYTHONPATH")])]
        environ = {**os.environ, VARIABLE: json.dumps(options), "PYTHONPATH": os.pathsep.join(folders)}
        # In the foreground, with the terminal that we have: it is the user's program, not one to be supervised.
        code = subprocess.run(program, env=environ, check=False).returncode
        processes = [json.loads(note.read_text()) for note in sorted(Path(notes).iterdir())]
    written = sorted(process["path"] for process in processes if process["path"])
    for file in written:
        print(f"recorded {file}")
    if code:
        how = f"exited with code {code}" if code > 0 else f"ended by signal {-code}"
        raise OperatorFailed(f"{program[0]} {how}")
    if not written:
        steps = max((process["steps"] for process in processes), default=0)
        raise OperatorFailed(
            f"nothing recorded: {steps} steps of an optimizer, {args.skip + args.timed + 1} are needed (--skip {args.skip}, "
            f"--timed {args.timed}, and the recorded step). Lower them, or give --whole to record the whole program"
        )
    return 0


def summarise(args: argparse.Namespace) -> int:
    """Print a summary of a trace."""
    summary = summarise_trace(read_trace(args.file))
    print(json.dumps(summary) if args.json else format_summary(summary, args.top))
    return 0


def to_config(args: argparse.Namespace) -> int:
    """Write the configuration of a trace's operators."""
    trace = read_trace(args.file)
    obstacle: Obstacle = static_obstacle
    note = ""
    try:
        import_torch()
        obstacle = machine_obstacle(args.device or default_device())
    except OpsError as error:
        note = f"{error}: operators that it lacks are kept"
    operators, left_out = to_configuration(trace, args.device, obstacle)
    if not operators:
        raise OpsError(f"{args.file}: no operator in it that a configuration can describe")
    if note:
        print(note, file=sys.stderr)
    content = json.dumps(operators, indent=1) + "\n"
    counts = [
        item["count"] for operator in operators.values() for entry in operator["config"] for item in entry["input"]
    ]
    write_whole(args.output, content)
    summary = f"{len(operators)} operators, {len(counts)} inputs, {sum(counts)} calls of a step"
    print(summary + (f" in {args.output}" if args.output else ""), file=sys.stderr)
    for reason, count in left_out.items():
        print(printable(f"left out: {count} x {reason}"), file=sys.stderr)
    return 0


def predict(args: argparse.Namespace) -> int:
    """Add up the records of a converted configuration."""
    prediction = predict_step(args.file)
    if args.trace is not None:
        prediction["recorded_step_s"] = read_trace(args.trace).about.get("step_s")
    if args.json:
        print(json.dumps(prediction))
        return 0
    print(
        f"a step of {prediction['calls']} calls, {prediction['inputs']} inputs: {format_seconds(prediction['seconds'])}"
    )
    if prediction["missing"]:
        print(f"without {prediction['missing']} calls whose input was not measured")
    if prediction.get("recorded_step_s"):
        recorded = prediction["recorded_step_s"]
        print(f"recorded: {format_seconds(recorded)}, predicted to recorded {prediction['seconds'] / recorded:.3g}")
    return 0


def replay(args: argparse.Namespace) -> int:
    """Replay a trace and print the report."""
    require_at_least(("-w", args.warmup, 0), ("-i", args.iteration, 1), ("--threads", args.threads, 1))
    is_first = launched_rank()[0] == 0
    with Progress(sys.stderr, "replay") if is_first else contextlib.nullcontext() as progress:
        say = progress.say if progress is not None else str
        path = rank_file(args.file)
        say(f"reading {path}")
        trace = read_trace(path)
        beside = profile_path(Path(path))
        profile = rank_file(args.profile) if args.profile is not None else str(beside) if beside.is_file() else None
        events = read_profile(profile) if profile is not None else None
        say("importing torch")
        import_torch()
        import torch

        if args.threads is not None:
            torch.set_num_threads(args.threads)
        result = Replay(trace, args.device, args.seed, say).run(args.warmup, args.iteration)
    report = build_report(trace, result, events, args.device)
    # One report for all ranks, unless another one has a failure to tell.
    if is_first or result.failed:
        print(json.dumps(report) if args.json else format_report(report, args.top), flush=True)
        if text := format_left_out(report["coverage"]):
            print(text, file=sys.stderr)
    return 1 if result.failed else 0


def rank_file(path: str) -> str:
    """Return the file of this process's rank: `{rank}` filled in, rank-N.json of a folder, or the name itself."""
    rank, ranks = launched_rank()
    if Path(path).is_dir():
        for ending in (".json", ".json.gz"):
            if (Path(path) / f"rank-{rank}{ending}").is_file():
                return str(Path(path) / f"rank-{rank}{ending}")
        raise OpsError(f"{path}: no rank-{rank}.json or rank-{rank}.json.gz in this folder")
    own = rank_path(path, rank, ranks)
    return str(own) if "{rank}" in path or own.is_file() else path


COMMANDS = {"record": record, "summary": summarise, "to-config": to_config, "predict": predict, "replay": replay}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmate.ops trace",
        description="Records PyTorch execution traces, summarises them, makes configurations of them, replays them.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, text: str, usage: str | None = None) -> Callable[..., argparse.Action]:
        return commands.add_parser(name, help=text, description=text, usage=usage).add_argument

    usage = "%(prog)s [OPTIONS] -- PROGRAM [ARGUMENTS]"
    add = command("record", "Run a program and record one of its steps.", usage=usage)
    number = functools.partial(add, type=int, metavar="N")
    flag = functools.partial(add, action="store_true")
    trace_file = "the trace, .json or .json.gz (trace.json)"
    add("-o", "--output", dest="path", default=TraceRecording.path, metavar="FILE", help=trace_file)
    number("--skip", default=TraceRecording.skip, help="steps of the optimizer before (3)")
    number("--timed", default=TraceRecording.timed, help="steps that are only timed, before the recorded step (5)")
    flag("--whole", dest="is_whole", help="record the whole program, if it has no optimizer")
    flag("--profile", dest="has_profile", help="also the profiler's trace of the step, FILE.profile.json")
    flag("--stop", dest="is_last", help="end the program after the step")
    add = command("summary", "Print a summary of a trace.")
    add("file", metavar="FILE")
    add("--top", type=int, default=20, metavar="N", help="rows of operators (20)")
    add("--json", action="store_true", help="as JSON")
    add = command("to-config", "Make a configuration of a trace's operators, each with how often it was called.")
    add("file", metavar="FILE")
    add("-o", "--output", metavar="FILE", help="the configuration (standard output)")
    add("-d", "--device", help="device of the arguments (default: the device of the run)")
    add = command("predict", "Predict the time of a step from the records of such a configuration.")
    add("file", metavar="RECORDS")
    add("--trace", metavar="FILE", help="the trace, to compare with its step")
    add("--json", action="store_true", help="as JSON")
    add = command("replay", "Replay a trace and time it, whole and by operator.")
    number = functools.partial(add, type=int, metavar="N")
    add("file", metavar="FILE", help="a trace, of ranks with {rank} in the name, or a folder of rank-N.json")
    add("-d", "--device", default="cpu", help="cpu, cuda, cuda:1, xpu (cpu)")
    number("-w", "--warmup", default=3, help="steps before (3)")
    number("-i", "--iteration", default=10, help="timed steps, and as many timed by operator (10)")
    add(
        "--profile",
        metavar="FILE",
        help="the profiler's trace of the step (by default the trace of `record --profile`, if it exists)",
    )
    number("--threads", help="threads of an operator on the CPU (torch's own choice)")
    number("--seed", default=0, help="seed of made-up data (0)")
    number("--top", default=20, help="rows of operators (20)")
    add("--json", action="store_true", help="as JSON")
    return parser
