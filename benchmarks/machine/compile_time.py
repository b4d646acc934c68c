"""How long torch.compile takes: the first call of a block of a transformer, training, cold and warm, in fresh processes.

Cold has an empty cache of compiled code, of its own; warm, the cache that the cold process left. Neither counts the start
of Python. The compiled block must give what the plain one gives.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from timing import the_device, wrong

import benchmate
from benchmate.session import current

SEED = 1
TOLERANCE = 1e-3


class Block(torch.nn.Module):
    """Attention and a perceptron with residuals, as in a transformer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.first(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attended = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(torch.nn.functional.gelu(self.up(self.second(x))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=1, help="of cold and warm, in turn")
    parser.add_argument("--here", action="store_true", help="compile in this process, and print the seconds as JSON")
    args = parser.parse_args()
    if args.here:
        print(json.dumps(compile_once(args)))
        return
    for _ in range(args.repeats):
        cache = Path(tempfile.mkdtemp(prefix="compile_time."))
        try:
            for case in ("cold", "warm"):
                seconds = in_fresh_process(case, cache)
                benchmate.metric("compile_time", seconds, "s", "lower", case=case, main=case == "cold", clock="host")
                print(f"{case}: {seconds:.2f} s", flush=True)
        finally:
            shutil.rmtree(cache, ignore_errors=True)
    current().finish()


def in_fresh_process(case: str, cache: Path) -> float:
    """The seconds of the first call in a process that keeps compiled code in `cache` alone."""
    env = {name: value for name, value in os.environ.items() if name not in ("MILABENCH_SINK", "DATA_FD")}
    env |= {"TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"), "TRITON_CACHE_DIR": str(cache / "triton")}
    done = subprocess.run(
        [sys.executable, *sys.argv, "--here"], env=env, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"error: compile_time: {case}: the process that compiles ended with {done.returncode}")
    result = json.loads(done.stdout.splitlines()[-1])
    if not result["error"] <= TOLERANCE:
        wrong(f"compile_time: {case}: the compiled block differs from the plain one by {result['error']:.1e}")
    return float(result["seconds"])


def compile_once(args: argparse.Namespace) -> dict[str, float]:
    """Compile a forward and a backward pass; the seconds of their first call, and the largest difference of a result."""
    device = the_device()
    torch.manual_seed(SEED)
    model = torch.nn.Sequential(*(Block(args.width, args.heads) for _ in range(args.layers))).to(device.device)
    x = torch.randn(4, 64, args.width).to(device.device)
    plain = gradients(model, model, x)
    compiled = torch.compile(model)
    device.synchronize()
    since = time.perf_counter()
    first = gradients(compiled, model, x)
    device.synchronize()
    seconds = time.perf_counter() - since
    differences = [((a - b).abs().max() / b.abs().max()).item() for a, b in zip(first, plain, strict=True)]
    return {"seconds": seconds, "error": max(differences)}


def gradients(call: torch.nn.Module, model: torch.nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    """The output, and the gradient of every parameter."""
    model.zero_grad(set_to_none=True)
    output = call(x)
    output.square().mean().backward()
    return [output.detach().clone(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]


if __name__ == "__main__":
    main()
