"""Makes the points to fit, once, into base/data/<benchmark>; the program finds them there."""

import json
import os
import pathlib
import random


def main():
    """Write the points to a temporary name first: a data set is complete or absent."""
    folder = pathlib.Path(os.environ["MILABENCH_DIR_DATA"], os.environ["MILABENCH_NAME"])
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(0)
    points = [(x, 3 * x + 1 + draw.gauss(0, 0.1)) for x in (draw.uniform(-1, 1) for _ in range(8192))]
    partial = folder / "points.json.partial"
    partial.write_text(json.dumps(points))
    partial.rename(folder / "points.json")


if __name__ == "__main__":
    main()
