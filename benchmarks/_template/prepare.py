"""Makes the points to fit, once, into base/data/<benchmark>; the program finds them there."""

import json
import os
import pathlib
import random

import benchmate

COUNT = 8192


def main():
    """Make them unless they are there; a data set is complete or absent, and one that somebody else made stays."""
    folder = pathlib.Path(os.environ["MILABENCH_DIR_DATA"], os.environ["MILABENCH_NAME"])
    benchmate.prepare_file(folder / "points.json", {"seed": 0, "points": COUNT}, write)


def write(file):
    """Write the points, which are the same at each time."""
    draw = random.Random(0)
    points = [(x, 3 * x + 1 + draw.gauss(0, 0.1)) for x in (draw.uniform(-1, 1) for _ in range(COUNT))]
    file.write_text(json.dumps(points))


if __name__ == "__main__":
    main()
