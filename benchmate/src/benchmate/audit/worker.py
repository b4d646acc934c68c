"""The process of one cell: reads what to measure from its argument and sends the result over its private pipe."""

from __future__ import annotations

import json
import sys
from time import perf_counter_ns

from benchmate.audit.cells import Cell, CellRequest
from benchmate.result_channel import ResultChannel, die_with_supervisor


def main(argv: list[str]) -> int:
    """Measure; send the result, or the one line that says why there is none, to descriptor `argv[1]`."""
    die_with_supervisor()
    channel = ResultChannel(int(argv[1]))
    try:
        answer = _measure(CellRequest(**json.loads(argv[0])))
    except Exception as error:  # whatever a model may raise is this cell's result
        answer = {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"}
    channel.send(answer)
    return 1 if "error" in answer else 0


def _measure(request: CellRequest) -> dict[str, object]:
    from benchmate.audit.measure import measure_cell
    from benchmate.audit.models import make_call
    from benchmate.ops.device import default_device

    if request.threads:
        import torch

        torch.set_num_threads(request.threads)
    cell = Cell(**request.cell)
    device = request.device if request.device != "auto" else default_device()
    # A graph in ONNX runs on streams of its own, where torch's events see nothing.
    clock = "cpu" if request.model.startswith("onnx:") else device
    begin = perf_counter_ns()
    call = make_call(request.model, cell.batch, device)
    made_ns = perf_counter_ns() - begin
    times = measure_cell(call, cell, device=clock, calls=request.calls, seconds=request.seconds)
    times.device = device
    return {**times.as_dict(), "made_ns": made_ns}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
