"""The process of one cell: reads what to measure from its argument, writes the result as JSON to the descriptor it was given."""

from __future__ import annotations

import json
import os
import sys
from time import perf_counter_ns
from typing import Any


def main(argv: list[str]) -> int:
    """Measure; the result, or the one line that says why there is none, goes to descriptor `argv[1]`."""
    wanted: dict[str, Any] = json.loads(argv[0])
    try:
        answer = _measured(wanted)
    except Exception as error:  # whatever a model may raise is this cell's result
        answer = {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"}
    with os.fdopen(int(argv[1]), "w") as pipe:
        json.dump(answer, pipe)
    return 1 if "error" in answer else 0


def _measured(wanted: dict[str, Any]) -> dict[str, Any]:
    from benchmate.audit.cells import Cell
    from benchmate.audit.measure import best_device, measure_cell
    from benchmate.audit.models import make_call

    if wanted.get("threads"):
        import torch

        torch.set_num_threads(wanted["threads"])
    cell = Cell(**wanted["cell"])
    device = wanted["device"] if wanted["device"] != "auto" else best_device()
    # A graph in ONNX runs on streams of its own, where torch's events see nothing.
    clock = "cpu" if wanted["model"].startswith("onnx:") else device
    begin = perf_counter_ns()
    call = make_call(wanted["model"], cell.batch, device)
    made_ns = perf_counter_ns() - begin
    found = measure_cell(call, cell, device=clock, calls=wanted["calls"], seconds=wanted["seconds"])
    found.device = device
    return {**found.as_dict(), "made_ns": made_ns}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
