"""GELU as it is, and with its derivative kept in a few bits: one training step of a layer for each, by batch size.

Keeping 4 bits in place of the input is what the few-bit library is about: a little more time for a lot less memory
between forward and backward. What each case keeps is its counter `kept_bytes`, on an accelerator also its memory peaks.
"""

from __future__ import annotations

from typing import Any

import torch

import benchmate.cases as benchmark

WIDTH = 512
LEVELS = 16
REACH = 4.0  # beyond it the derivative of GELU is 0 or 1 to a thousandth


class FewBitGELU(torch.autograd.Function):
    """GELU whose backward knows its derivative by one of LEVELS values, two of them to a byte."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        index = ((x + REACH) * (LEVELS / (2 * REACH))).clamp_(0, LEVELS - 1).to(torch.uint8)
        pairs = index.view(-1, 2)
        ctx.save_for_backward(pairs[:, 0] | (pairs[:, 1] << 4))
        return torch.nn.functional.gelu(x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        (packed,) = ctx.saved_tensors
        index = torch.stack([packed & 15, packed >> 4], dim=1)
        return gradients[0] * levels(packed.device)[index.long()].view_as(gradients[0])


def levels(device: torch.device) -> torch.Tensor:
    """The derivative in the middle of each level."""
    step = 2 * REACH / LEVELS
    middle = torch.arange(LEVELS, device=device) * step - REACH + step / 2
    density = torch.exp(-(middle**2) / 2) / (2 * torch.pi) ** 0.5
    return torch.special.ndtr(middle) + middle * density


class BenchGELU:
    """A linear layer, the activation, and its backward pass; `batch` rows of WIDTH numbers."""

    batch: int

    def setup(self) -> None:
        torch.manual_seed(0)
        has_accelerator = torch.accelerator.is_available()
        self.device = torch.accelerator.current_accelerator() if has_accelerator else torch.device("cpu")
        self.layer = torch.nn.Linear(WIDTH, WIDTH, device=self.device)
        self.rows = torch.randn(self.batch, WIDTH, device=self.device)

    def run(self, state: benchmark.State) -> None:
        hidden = self.layer(self.rows)
        kept: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: (kept.append(t.nbytes), t)[1], lambda t: t):
            output = self.activation(hidden)
        output.sum().backward()
        state.items = self.batch
        state.counters["kept_bytes"] = sum(kept)

    def teardown(self) -> None:
        del self.layer, self.rows


@benchmark.register(name="GELU/Exact/{batch}", batch=[64, 512])
class BenchExactGELU(BenchGELU):
    """torch's own, which keeps its input."""

    activation = staticmethod(torch.nn.functional.gelu)


@benchmark.register(name="GELU/FewBit/{batch}", batch=[64, 512])
class BenchFewBitGELU(BenchGELU):
    """Ours, which keeps 4 bits of every number."""

    activation = staticmethod(FewBitGELU.apply)


if __name__ == "__main__":
    benchmark.main()
