"""`python -m benchmate.audit`: measure every cell in fresh processes, in shuffled blocks, and record each as a metric."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TextIO, TypeVar

import benchmate
from benchmate.audit.models import BUILT_IN, EXPECTED, ModelError, find_model
from benchmate.audit.worker import Cell
from benchmate.supervisor import SupervisedProcess, spawn, supervise

SYNCS = ("none", "each", "end")
CLOCKS = ("wall", "event")
T = TypeVar("T")
Answer = dict[str, Any]
"""The message of a worker process: the fields of CellTimes, or why it failed under `error`."""


def main(argv: Sequence[str]) -> int:
    """Run the audit. 0 when every cell was measured, 1 when any was not, 2 when nothing could start."""
    options = _parser().parse_args(argv)
    options.folder = str(Path(options.folder).resolve())
    try:
        # Before the first process: what is wrong with it is wrong in all of them.
        find_model(options.model, Path(options.folder))
    except ModelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if options.check:
        return 0
    cells = make_cells(options.batch, options.warmup, options.sync)
    order = shuffled_blocks(cells, options.processes, options.seed if options.shuffle else None)
    failed = 0
    with ExitStack() as stack:
        out = stack.enter_context(Path(options.out).open("a")) if options.out else None
        for done, (block, cell) in enumerate(order, start=1):
            answer = _measure_in_process(cell, options)
            _record(block, cell, answer, options, out)
            if "error" in answer:
                failed += 1
                print(f"{done}/{len(order)} {cell.name}: {answer['error']}", file=sys.stderr, flush=True)
            else:
                print(f"{done}/{len(order)} {cell.name}: {_describe(answer)}", flush=True)
    if failed == len(order):
        print(f"error: none of {len(order)} processes measured anything", file=sys.stderr)
    return 1 if failed else 0


def make_cells(batches: Sequence[int], warmups: Sequence[int], syncs: Sequence[str]) -> tuple[Cell, ...]:
    """Return every combination, and for each batch its last cell once more."""
    cells = []
    for batch in batches:
        of_batch = [Cell(batch=batch, warmup=warmup, sync=sync) for warmup, sync in itertools.product(warmups, syncs)]
        cells += [*of_batch, replace(of_batch[-1], again=True)]
    return tuple(cells)


def shuffled_blocks(cells: Sequence[Cell], processes: int, seed: int | None) -> tuple[tuple[int, Cell], ...]:
    """Return every cell once in each of `processes` blocks. Shuffled within a block with `seed`, None keeps the order."""
    generator = random.Random(seed)
    order = []
    for block in range(processes):
        of_block = list(cells)
        if seed is not None:
            generator.shuffle(of_block)
        order += [(block, cell) for cell in of_block]
    return tuple(order)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmate.audit", description=__doc__)
    add = parser.add_argument
    add("--model", default=BUILT_IN, help=f"{EXPECTED} (default: %(default)s)")
    add("--folder", default=".", help="where MODULE and FILE are looked for (default: here)")
    add("--check", action="store_true", help="find and import the model, measure nothing")
    add("--batch", type=_numbers(1), default=[1, 8], help="items in a call, joined by commas")
    add("--warmup", type=_numbers(0), default=[0, 50], help="calls before the first timed call")
    add("--sync", type=_words(SYNCS), default=list(SYNCS), help=f"of {','.join(SYNCS)}")
    add("--clock", type=_words(CLOCKS), default=list(CLOCKS), help=f"of {','.join(CLOCKS)}. Both are recorded")
    add("--processes", type=_count, default=5, help="fresh processes for each cell (default: %(default)s)")
    add("--shuffle", action=argparse.BooleanOptionalAction, default=True, help="random order in each block")
    add("--seed", type=int, default=1, help="of the order (default: %(default)s)")
    add("--calls", type=_count, default=1000, help="timed calls in a process, at most (default: %(default)s)")
    add("--seconds", type=float, default=1.0, help="time for them, at least 30 calls (default: %(default)s)")
    add("--timeout", type=float, default=300.0, help="seconds after which a process is killed")
    add("--device", default="auto", choices=("auto", "cpu", "cuda", "xpu"))
    add("--threads", type=int, default=0, help="of torch on the host (0: as torch decides)")
    add("--out", metavar="FILE", help="append the results as JSON lines")
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number from 1 on")
    return int(text)


def _several(read: Callable[[str], T], is_right: Callable[[T], bool], expected: str) -> Callable[[str], list[T]]:
    """Return the reader of several values, joined by commas. Each counts once."""

    def parse(text: str) -> list[T]:
        with suppress(ValueError):
            values = list(dict.fromkeys(map(read, text.split(","))))
            if all(map(is_right, values)):
                return values
        raise argparse.ArgumentTypeError(f"{text!r}: expected {expected}, joined by commas")

    return parse


def _numbers(least: int) -> Callable[[str], list[int]]:
    return _several(int, lambda number: number >= least, f"whole numbers from {least} on")


def _words(known: Sequence[str]) -> Callable[[str], list[str]]:
    return _several(str, known.__contains__, f"some of {', '.join(known)}")


def _measure_in_process(cell: Cell, options: argparse.Namespace) -> Answer:
    """Return the measurement of a fresh process. Its outputs go where ours do, so that a model may print anything."""
    names = ("model", "folder", "device", "threads", "calls", "seconds")
    request = {"cell": asdict(cell), **{name: getattr(options, name) for name in names}}
    # The worker is no part of a measured job: it must not speak for the rank that this process is.
    env = {name: value for name, value in os.environ.items() if name != "MILABENCH_SINK"}

    def start(result: int, _output: int) -> SupervisedProcess:
        words = [json.dumps(request), str(result)]
        return spawn([sys.executable, "-m", "benchmate.audit.worker", *words], pass_fds=(result,), env=env)

    timeout_s = options.timeout
    ended = supervise(start, lambda _: None, timeout_s=timeout_s, leaving_s=timeout_s)
    if not ended.result:
        late = f"no result after {timeout_s:g} s"
        return {"error": late if ended.is_late else f"ended without a result ({ended.how})"}
    if ended.is_late:
        return {"error": f"did not end within {timeout_s:g} s of its result"}
    answer: Answer = json.loads(ended.result)
    return answer


def _record(block: int, cell: Cell, answer: Answer, options: argparse.Namespace, out: TextIO | None) -> None:
    """Record a metric for each process: the median call on the host's clock, with all other measurements."""
    record = {"block": block, "cell": asdict(cell), "model": options.model, "audit": answer}
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
        details = {**record, "main": not cell.again} if clock == clocks[0] else {}
        benchmate.metric(f"{name} {clock}", value, units="s", direction="lower", params=params, **details)


def _describe(answer: Answer) -> str:
    text = f"wall {statistics.median(answer['wall_ns']) / 1e6:.4g} ms"
    if answer["event_ns"]:
        text += f", event {statistics.median(answer['event_ns']) / 1e6:.4g} ms"
    return f"{text}, {len(answer['wall_ns'])} calls"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
