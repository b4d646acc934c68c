"""Solve Poisson's equation for random smooth sources on a periodic square, exactly, by Fourier transforms."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

import benchmate

SEED = 20260101


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--data", type=Path, required=True)
    args, _ = parser.parse_known_args()
    size = {"count": benchmate.option("problems"), "points": benchmate.option("points")}
    benchmate.prepare_file(args.data, {"seed": SEED, **size}, lambda file: torch.save(problems(**size), file))


def problems(count: int, points: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(SEED)
    wave = 2 * torch.pi * torch.fft.fftfreq(points, 1 / points)
    square = wave[:, None] ** 2 + wave**2
    spectrum = torch.fft.fft2(torch.randn(count, points, points, generator=generator)) * torch.exp(-square / 800)
    spectrum[:, 0, 0] = 0  # a source without a mean, which a periodic square needs
    source = torch.fft.ifft2(spectrum).real
    square[0, 0] = 1
    potential = torch.fft.ifft2(spectrum / square).real
    return {name: (field / field.std()).unsqueeze(1) for name, field in (("source", source), ("potential", potential))}


if __name__ == "__main__":
    main()
