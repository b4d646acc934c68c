"""Solve Poisson's equation for random smooth sources on a periodic square, exactly, by Fourier transforms."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import torch

SEED = 20260101


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--data", type=Path, required=True)
    args, _ = parser.parse_known_args()
    options = json.loads(Path(os.environ["MILABENCH_BENCH_CONFIG"]).read_text())["options"]
    if args.data.is_file():
        print(f"{args.data}: already there")
        return
    args.data.parent.mkdir(parents=True, exist_ok=True)
    partial = args.data.with_suffix(".partial")
    torch.save(problems(options["problems"], options["points"]), partial)
    partial.rename(args.data)
    print(f"{args.data}: {options['problems']} problems of {options['points']} x {options['points']} points")


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
