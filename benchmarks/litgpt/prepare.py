"""Make the tokens that LitGPT trains on, without a network: a stream by seed, in one file.

A token has few successors, so that there is something to learn, and there are few tokens, so that a large model learns something
in a short window too. All models read the same file.
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from pathlib import Path

import numpy

import benchmate

SEED = 20260101
VOCABULARY = 512
LENGTH = 2**24
SUCCESSORS = 4
LIKELY = 0.9  # how often a token is one of the successors of the token before
STREAMS = 1024  # drawn side by side, then laid end to end


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--data.path", dest="path", type=Path, required=True)
    args, _ = parser.parse_known_args()
    recipe = {"seed": SEED, "vocabulary": VOCABULARY, "length": LENGTH, "successors": SUCCESSORS, "likely": LIKELY}
    benchmate.prepare_file(args.path, recipe, write)


def write(file: Path) -> None:
    with file.open("wb") as out:  # of a name, numpy would make its own
        numpy.save(out, tokens(VOCABULARY, LENGTH))


def tokens(vocabulary: int, length: int) -> numpy.ndarray:
    random = numpy.random.Generator(numpy.random.PCG64(SEED))
    successors = random.integers(vocabulary, size=(vocabulary, SUCCESSORS), dtype=numpy.uint16)
    drawn = numpy.empty((-(-length // STREAMS), STREAMS), dtype=numpy.uint16)
    drawn[0] = random.integers(vocabulary, size=STREAMS)
    for before, after in pairwise(drawn):
        known = random.random(STREAMS) < LIKELY
        after[:] = successors[before, random.integers(SUCCESSORS, size=STREAMS)]
        after[~known] = random.integers(vocabulary, size=STREAMS)[~known]
    return drawn.T.reshape(-1)[:length]


if __name__ == "__main__":
    main()
