"""Training on the accelerator for the programs of part 1: a real one with torch, or as many launches of the simulated one.

tests/gpu/instruments.py has put that in place of torch where there is none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

import benchmate
from tests.gpu.outcome import is_simulated
from tests.gpu.simulated_torch import Tensor


class Training:
    """A model and how it learns. `step` queues one step and returns its loss, on the device."""

    def loader(self, steps: int) -> Iterator[Any]:
        raise NotImplementedError

    def step(self, batch: Any) -> Any:
        raise NotImplementedError

    def train(self, loader: Iterable[Any], observe_loss: bool = False) -> None:
        """Train on each batch."""
        for batch in loader:
            loss = self.step(batch)
            if observe_loss:
                benchmate.observe_loss(loss)


class SimulatedTraining(Training):
    """`launches` kernels of `kernel_s` seconds a step, each after `host_s` seconds of the host's own work."""

    def __init__(self, launches: int, kernel_s: float, host_s: float) -> None:
        self.launches, self.kernel_s, self.host_s = launches, kernel_s, host_s

    def loader(self, steps: int) -> Iterator[Any]:
        return iter(range(steps))

    def step(self, batch: Any) -> Any:
        for _ in range(self.launches):
            end = time.perf_counter() + self.host_s
            while time.perf_counter() < end:
                pass
            torch.cuda.launch(self.kernel_s)
        return Tensor(torch.cuda, [1.0 / (1 + batch)])


def device_bound() -> Training:
    """Return training of which a step takes about 25 ms of the device, and a few of the host."""
    if is_simulated():
        return SimulatedTraining(launches=100, kernel_s=100e-6, host_s=0)
    return _language_model()(layers=12, width=1024, rows=16, length=512)


def launch_bound() -> Training:
    """Return training of which a step takes about 1 ms of the host, and less of the device: an embedding and a projection."""
    if is_simulated():
        return SimulatedTraining(launches=25, kernel_s=5e-6, host_s=30e-6)
    return _language_model()(layers=0, width=128, rows=4, length=64, words=512)


def _language_model() -> Callable[..., Training]:
    nn = torch.nn

    class Block(nn.Module):
        """One layer of a transformer."""

        def __init__(self, width: int, heads: int) -> None:
            super().__init__()
            self.heads = heads
            self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2)])
            self.attend, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x: Any) -> Any:
            batch, length, width = x.shape
            q, k, v = (
                part.view(batch, length, self.heads, -1).transpose(1, 2)
                for part in self.attend(self.norms[0](x)).split(width, dim=2)
            )
            seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.project(seen.transpose(1, 2).reshape(batch, length, width))
            return x + self.mlp(self.norms[1](x))

    class LanguageModel(Training):
        """`layers` of `width`, a batch of (rows, length) tokens, bfloat16 where it may."""

        def __init__(self, layers: int, width: int, rows: int, length: int, words: int = 8192) -> None:
            torch.manual_seed(0)
            self.model = nn.Sequential(
                nn.Embedding(words, width), *(Block(width, width // 64) for _ in range(layers)), nn.Linear(width, words)
            ).cuda()
            self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
            self.batches = [torch.randint(0, words, (rows, length + 1), device="cuda") for _ in range(4)]

        def loader(self, steps: int) -> Iterator[Any]:
            return (self.batches[step % len(self.batches)] for step in range(steps))

        def step(self, tokens: Any) -> Any:
            with torch.autocast("cuda", torch.bfloat16):
                logits = self.model(tokens[:, :-1])
            loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            return loss

    return LanguageModel
