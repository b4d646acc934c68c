"""Uses an accelerator in the way that is named: `busy`, `idle`, `elsewhere`, `crowded`, `sized`. Without one it only waits.

- busy: works on it; idle: holds its memory and works on nothing; elsewhere: works on the host;
- crowded: another program works on it at the same time, which no step has started;
- sized: holds `--batch-size` times 1 GiB, or without an accelerator runs out of memory above `--limit`.
"""

import argparse
import os
import subprocess
import sys
import time

import benchmate

SIMULATED = os.environ.get("GPU_SIMULATED") == "1"
STEP_S = 0.02
LOOP_S = 7.0
"""Longer than the warm-up and the window of the profile `quick`."""
OTHER = """
import torch
a = torch.randn(4096, 4096, device="cuda")
while True:
    a = torch.nn.functional.normalize(a @ a)
    torch.cuda.synchronize()
"""

parser = argparse.ArgumentParser()
parser.add_argument("how", choices=("busy", "idle", "elsewhere", "crowded", "sized"))
parser.add_argument("--batch-size", type=int, default=1)
parser.add_argument("--limit", type=int, default=50)
args = parser.parse_args()
held = []
other = None


def until_over():
    """Yield until the loop has lasted long enough."""
    end = time.monotonic() + LOOP_S
    while time.monotonic() < end:
        yield None


def wait() -> None:
    """Do nothing for a step."""
    time.sleep(STEP_S)


step = wait
if not SIMULATED and args.how != "elsewhere":
    import torch

    if args.how == "sized":
        held = [torch.empty(2**30, dtype=torch.uint8, device="cuda").fill_(1) for _ in range(args.batch_size)]
    held.append(torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16))
    out = torch.empty_like(held[-1])

    def work() -> None:
        """Multiply matrices for about a step."""
        for _ in range(12):
            torch.mm(held[-1], held[-1], out=out)
        torch.cuda.synchronize()

    step = wait if args.how == "idle" else work
elif args.how == "sized" and args.batch_size > args.limit:
    raise MemoryError(f"a batch of {args.batch_size} does not fit")
if args.how == "crowded" and not SIMULATED:
    own = {name: text for name, text in os.environ.items() if not name.startswith("MILABENCH_")}
    command = f"setsid {sys.executable} -c '{OTHER}' >/dev/null 2>&1 & echo $!"
    other = int(subprocess.run(["sh", "-c", command], env=own, capture_output=True, text=True, check=True).stdout)
    time.sleep(15)
try:
    for _ in benchmate.observed(until_over(), units="items/s", batch_size=args.batch_size):
        step()
finally:
    if other is not None:
        os.kill(other, 9)
