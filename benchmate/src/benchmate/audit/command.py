"""`python -m benchmate.audit`: measures every cell in fresh processes, in shuffled blocks, and tells each as a metric."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import benchmate
from benchmate.audit.cells import CLOCKS, SYNCS, Cell, make_cells, shuffled_blocks
from benchmate.audit.models import BUILT_IN, EXPECTED


def main(argv: Sequence[str]) -> int:
    """Run the audit; 0 when every cell was measured, 1 when one was not, 2 when nothing could be begun."""
    options = _parser().parse_args(argv)
    cells = make_cells(options.batch, options.warmup, options.sync)
    order = shuffled_blocks(cells, options.processes, options.seed if options.shuffle else None)
    failed = 0
    with ExitStack() as stack:
        out = stack.enter_context(Path(options.out).open("a")) if options.out else None
        for done, (block, cell) in enumerate(order, start=1):
            answer = _in_a_process(cell, options)
            _tell(block, cell, answer, options, out)
            if "error" in answer:
                failed += 1
                print(f"{done}/{len(order)} {cell.name}: {answer['error']}", file=sys.stderr, flush=True)
            else:
                print(f"{done}/{len(order)} {cell.name}: {_shown(answer)}", flush=True)
    if failed == len(order):
        print(f"error: none of {len(order)} processes measured anything", file=sys.stderr)
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmate.audit", description=__doc__)
    parser.add_argument("--model", default=BUILT_IN, help=f"{EXPECTED} (default: %(default)s)")
    parser.add_argument("--batch", type=_numbers(1), default=[1, 8], help="items in a call, joined by commas")
    parser.add_argument("--warmup", type=_numbers(0), default=[0, 50], help="calls before the first timed one")
    parser.add_argument("--sync", type=_words(SYNCS), default=list(SYNCS), help=f"of {','.join(SYNCS)}")
    parser.add_argument(
        "--clock", type=_words(CLOCKS), default=list(CLOCKS), help=f"of {','.join(CLOCKS)}; both are recorded"
    )
    parser.add_argument(
        "--processes", type=_count, default=5, help="fresh processes for each cell (default: %(default)s)"
    )
    parser.add_argument(
        "--shuffle", action=argparse.BooleanOptionalAction, default=True, help="random order in each block"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the order (default: %(default)s)")
    parser.add_argument(
        "--calls", type=_count, default=1000, help="timed calls in a process, at most (default: %(default)s)"
    )
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="time for them, at least 30 calls (default: %(default)s)"
    )
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds after which a process is ended")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda", "xpu"))
    parser.add_argument("--threads", type=int, default=0, help="of torch on the host; 0: as torch decides")
    parser.add_argument("--out", metavar="FILE", help="append the results as JSON lines")
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number from 1 on")
    return int(text)


def _numbers(least: int) -> Callable[[str], list[int]]:
    def parse(text: str) -> list[int]:
        try:
            values = list(dict.fromkeys(int(word) for word in text.split(",")))
        except ValueError:
            values = []
        if not values or min(values) < least:
            raise argparse.ArgumentTypeError(f"{text!r}: expected whole numbers from {least} on, joined by commas")
        return values

    return parse


def _words(known: Sequence[str]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        words = list(dict.fromkeys(text.split(",")))
        unknown = [word for word in words if word not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r}: expected some of {', '.join(known)}")
        return words

    return parse


def _in_a_process(cell: Cell, options: argparse.Namespace) -> dict[str, Any]:
    """What a fresh process found; its outputs go where ours do, so that a model may print what it likes."""
    wanted = {
        "cell": cell.as_dict(),
        "model": options.model,
        "device": options.device,
        "threads": options.threads,
        "calls": options.calls,
        "seconds": options.seconds,
    }
    reading, writing = os.pipe()
    with os.fdopen(reading) as pipe:
        command = [sys.executable, "-m", "benchmate.audit.worker", json.dumps(wanted), str(writing)]
        # The child is no part of a measured job: it must not speak for the rank that this process is.
        env = {name: value for name, value in os.environ.items() if name != "MILABENCH_SINK"}
        child = subprocess.Popen(command, pass_fds=[writing], env=env)
        os.close(writing)
        return _answer_of(child, pipe, options.timeout)


def _answer_of(child: subprocess.Popen[bytes], pipe: IO[str], timeout_s: float) -> dict[str, Any]:
    import selectors

    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        try:
            if not selector.select(timeout_s):
                return {"error": f"no result after {timeout_s:g} s"}
            text = pipe.read()
            code = child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return {"error": f"did not end within {timeout_s:g} s of its result"}
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
    if not text:
        ended = f"signal {-code}" if code < 0 else f"code {code}"
        return {"error": f"ended without a result ({ended})"}
    answer: dict[str, Any] = json.loads(text)
    return answer


def _tell(block: int, cell: Cell, answer: dict[str, Any], options: argparse.Namespace, out: IO[str] | None) -> None:
    """One metric a process: the median call on the host's clock, with everything that was measured beside it."""
    record = {"block": block, "cell": cell.as_dict(), "model": options.model, "audit": answer}
    if out is not None:
        print(json.dumps(record), file=out, flush=True)
    if "error" in answer:
        benchmate.message(f"{cell.name}: {answer['error']}")
        return
    params = {"batch": cell.batch, "warmup": cell.warmup, "sync": cell.sync}
    name = "call again" if cell.again else "call"
    # What was measured is recorded also where the clock that was asked for is not there.
    clocks = [clock for clock in options.clock if answer[f"{clock}_ns"]] or ["wall"]
    for clock in clocks:
        value = statistics.median(answer[f"{clock}_ns"]) / 1e9
        more = {**record, "main": not cell.again} if clock == clocks[0] else {}
        benchmate.metric(f"{name} {clock}", value, units="s", direction="lower", params=params, **more)


def _shown(answer: dict[str, Any]) -> str:
    found = f"wall {statistics.median(answer['wall_ns']) / 1e6:.4g} ms"
    if answer["event_ns"]:
        found += f", event {statistics.median(answer['event_ns']) / 1e6:.4g} ms"
    return f"{found}, {len(answer['wall_ns'])} calls"
