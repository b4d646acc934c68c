"""Make what whisper reads, without a network: a model with random weights, audio by seed, and ffmpeg under its own name."""

from __future__ import annotations

import argparse
import wave
from pathlib import Path

import imageio_ffmpeg
import numpy
import torch
from whisper.model import ModelDimensions, Whisper

import benchmate

SEED = 20260101
RATE = 16000
WINDOW = 30
TONES = (220, 550, 1330)


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("audio", type=Path, nargs="+")
    parser.add_argument("--model", type=Path, required=True)
    args, _ = parser.parse_known_args()
    dims, windows = benchmate.option("dims"), benchmate.option("windows")
    benchmate.prepare_file(args.model, {"seed": SEED, "dims": dims}, lambda path: write_model(path, dims))
    for audio in sorted(set(args.audio)):
        benchmate.prepare_file(audio, {"seed": SEED, "windows": windows}, lambda path: write_audio(path, windows))
    program = imageio_ffmpeg.get_ffmpeg_exe()
    link = args.model.parent / "bin" / "ffmpeg"
    benchmate.prepare_file(link, {"link to": program}, lambda path: path.symlink_to(program))


def write_model(path: Path, dims: dict[str, int]) -> None:
    torch.manual_seed(SEED)
    model = Whisper(ModelDimensions(**dims))
    torch.nn.init.normal_(model.decoder.positional_embedding, std=0.02)  # made without values
    weights = {name: value.half() for name, value in model.state_dict().items()}
    torch.save({"dims": dims, "model_state_dict": weights}, path)


def write_audio(path: Path, windows: int) -> None:
    random = numpy.random.Generator(numpy.random.PCG64(SEED))
    time = numpy.arange(WINDOW * RATE) / RATE
    loudness = numpy.interp(time, numpy.arange(0, WINDOW + 1, 0.25), random.random(4 * (WINDOW + 1)))
    sound = 4000 * loudness * sum(numpy.sin(2 * numpy.pi * tone * time) for tone in TONES)
    samples = (sound + random.normal(0, 50, len(time))).astype("<i2").tobytes()
    with wave.open(str(path), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(RATE)
        for _ in range(windows):
            out.writeframes(samples)


if __name__ == "__main__":
    main()
