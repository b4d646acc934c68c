"""Passes captured in CUDA graphs: a call is then a replay, without the launches of the host."""

from __future__ import annotations

from benchmate.ops.errors import OperatorFailed
from benchmate.ops.interface import Passes
from benchmate.ops.types import Call

WARM_UP_CALLS = 3  # calls before a capture, which choose algorithms and fill the allocator


def capture_passes(passes: Passes, has_backward: bool) -> Passes:
    """Return the same passes as replays of graphs. Raises OperatorFailed where a pass cannot be captured."""
    replay, output = _captured(passes.forward)
    replay_backward: Call | None = None
    reason = None
    if has_backward:
        again = passes.backward_again(output) if passes.backward_again is not None else None
        if again is None:
            reason = passes.make_gradient(output) or "its backward pass cannot be repeated, so it cannot be captured"
        else:
            replay_backward, _ = _captured(again)

    return Passes(
        forward=replay,
        make_gradient=lambda _: reason,
        backward=replay_backward or (lambda: None),
        backward_again=lambda _: replay_backward,
        moved_bytes=passes.moved_bytes,
    )


def _captured(call: Call) -> tuple[Call, object]:
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.stream(side):
            for _ in range(WARM_UP_CALLS):
                call()
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(graph):
            output = call()
    except RuntimeError as error:
        raise OperatorFailed(f"cannot be captured in a CUDA graph: {str(error).splitlines()[0]}") from error
    return graph.replay, output
