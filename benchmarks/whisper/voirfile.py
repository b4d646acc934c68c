"""Seconds of audio of every window that whisper transcribes, and whether equal windows give equal words."""

from __future__ import annotations

import math

from benchmate import fail, probes

FRAMES_PER_SECOND = 100


def instrument_whisper(ov):
    # The program's own progress bar, which counts frames, moves on at the end of each window.
    probes.calls(
        ov,
        "tqdm.std.tqdm.update",
        units="audio s/s",
        items=lambda _bar, frames=1: frames / FRAMES_PER_SECOND,
        task="inference",
        stop=True,
    )
    probes.result(ov, "whisper.model.Whisper.decode", comparing())


def comparing():
    """The audio is one window of sound, again and again: but for the first, which nothing precedes, the words are equal."""
    decoded = []  # of the first window and the second

    def compare(result):
        if not math.isfinite(result.avg_logprob):
            fail("invalid", f"the mean log probability of a window is {result.avg_logprob}")
        if len(decoded) < 2:
            decoded.append(result.tokens)
        elif result.tokens != decoded[1]:
            fail("invalid", "a window that sounds like the second one was transcribed differently")

    return compare
