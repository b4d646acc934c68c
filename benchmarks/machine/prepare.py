"""Make the files that sample_reads.py reads; the other programs need nothing prepared."""

from __future__ import annotations

import errno
import os
import shutil
import sys

from sample_files import Recipe, recipe

import benchmate


def main() -> None:
    if benchmate.option("program") != "sample_reads":
        print(f"{benchmate.option('program')}: nothing to prepare")
        return
    try:
        make(recipe(benchmate.option("samples")))
    except ValueError as error:
        sys.exit(f"error: {error}")
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        sys.exit(
            f"error: {error.filename or 'prepare'}: {error.strerror}; prepare again when there is room: it continues"
        )


def make(wanted: Recipe) -> None:
    """Make what is not there yet. An interrupted prepare continues."""
    if wanted.folder.is_dir() and any(wanted.folder.iterdir()) and not wanted.index.is_file():
        sys.exit(f"error: {wanted.folder}: was not made by milabench, so it stays. Move it away")
    known = wanted.checksums()
    missing = [number for number in range(wanted.files) if number not in known or not wanted.path(number).is_file()]
    bytes_needed = len(missing) * wanted.bytes
    wanted.folder.mkdir(parents=True, exist_ok=True)
    wanted.index.touch()  # before the first file: with it the folder is ours
    free = shutil.disk_usage(wanted.folder).free
    if bytes_needed > free:
        sys.exit(f"error: {wanted.folder}: {bytes_needed} bytes are to be written, and {free} are free")
    for number in missing:
        wanted.make(number)
    # Pages that are not on the disk yet cannot be dropped from the cache: a read of them is never cold.
    os.sync()
    print(f"{wanted.folder}: {len(missing)} of {wanted.files} files made")


if __name__ == "__main__":
    main()
