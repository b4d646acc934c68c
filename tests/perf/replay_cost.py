"""What replaying a recorded step costs: `python tests/perf/replay_cost.py [FILE]`, in a Python with torch and benchmate.

A step of training ResNet-50 is recorded and replayed in this process, in turn with the program's own steps. Prints the ratio of
the time of a replayed step to that of the program's, best of each (promise: at most 2, on two idle cores). A FILE is the trace
of such a step that was recorded elsewhere, such as PARAM's resnet_1gpu_et.json.gz; the program has the batch size of its images.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

try:
    import torch
except ImportError:
    print("skipped: torch is not installed here")
    sys.exit(0)

from benchmate.ops.models import ResNet50
from benchmate.ops.traces.record import execution_trace
from benchmate.ops.traces.replay import Replay
from benchmate.ops.traces.schema import Trace, read_trace, tensor_refs

BATCH, SIDE = 4, 224
ROUNDS, STEPS = 3, 3


def training(batch: int) -> Callable[[], None]:
    """The step of a program."""
    model = ResNet50()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images, labels = torch.randn(batch, 3, SIDE, SIDE), torch.randint(0, 1000, (batch,))

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return step


def seconds(step: Callable[[], None]) -> float:
    begin = time.perf_counter()
    step()
    return time.perf_counter() - begin


def batch_of(trace: Trace) -> int:
    """The number of images that the first convolution gets."""
    first = next(node for node in trace.nodes if node.name == "aten::conv2d")
    return next(tensor_refs(first.inputs)).shape[0]


def main(argv: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        if argv:
            trace = read_trace(argv[0])
        else:
            step = training(BATCH)
            step()
            with execution_trace(Path(folder, "step.json")):
                step()
            trace = read_trace(str(Path(folder, "step.json")))
    step = training(batch_of(trace))
    step()
    program, replay = [], []
    for _ in range(ROUNDS):
        program += [seconds(step) for _ in range(STEPS)]
        replay += Replay(trace, "cpu").run(1, STEPS).steps_s
    ratio = min(replay) / min(program)
    print(f"ResNet-50, {batch_of(trace)} images, {torch.get_num_threads()} threads", end=": ")
    print(f"program {min(program):.3f} s, replay {min(replay):.3f} s a step")
    print(f"RATIO replayed step / program's step: {ratio:.2f} (promise: at most 2)")


if __name__ == "__main__":
    main(sys.argv[1:])
