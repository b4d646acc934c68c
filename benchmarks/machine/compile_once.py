"""One compilation: forward and backward of a module by torch.compile; prints its seconds, and how far its results are off."""

from __future__ import annotations

import argparse
import json
import time

import torch
from timing import the_device

SEED = 1


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


def perceptron(width: int) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--module", choices=["block", "perceptron"], default="block")
    parser.add_argument("--forward", action="store_true", help="without a backward pass")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--layers", type=int, default=1)
    print(json.dumps(compile_once(parser.parse_args())))


def compile_once(args: argparse.Namespace) -> dict[str, float]:
    """Compile a forward and a backward pass; the seconds of their first call, and the largest difference of a result."""
    device = the_device()
    torch.manual_seed(SEED)
    parts = [
        Block(args.width, args.heads) if args.module == "block" else perceptron(args.width) for _ in range(args.layers)
    ]
    model = torch.nn.Sequential(*parts).to(device.device).requires_grad_(not args.forward)
    x = torch.randn(4, 64, args.width).to(device.device)
    plain = results(model, model, x)
    compiled = torch.compile(model)
    device.synchronize()
    since = time.perf_counter()
    first = results(compiled, model, x)
    device.synchronize()
    seconds = time.perf_counter() - since
    differences = [((a - b).abs().max() / b.abs().max()).item() for a, b in zip(first, plain, strict=True)]
    return {"seconds": seconds, "error": max(differences)}


def results(call: torch.nn.Module, model: torch.nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    """The output, and the gradient of every parameter that wants one."""
    model.zero_grad(set_to_none=True)
    output = call(x)
    if output.requires_grad:
        output.square().mean().backward()
    return [output.detach().clone(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]


if __name__ == "__main__":
    main()
