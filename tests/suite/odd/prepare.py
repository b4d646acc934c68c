"""Fails when told to, else leaves a file."""

import os
import pathlib
import sys

if "prepare-fails" in sys.argv:
    print("this data set cannot be had")
    sys.exit(7)
folder = pathlib.Path(os.environ["MILABENCH_DIR_DATA"], os.environ["MILABENCH_NAME"])
folder.mkdir(parents=True, exist_ok=True)
with (folder / "prepared").open("a") as file:
    file.write("once\n")
