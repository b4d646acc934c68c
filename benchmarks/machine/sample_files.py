"""The files that prepare.py makes and sample_reads.py reads: names, contents by seed, how one is read."""

from __future__ import annotations

import io
import os
import random
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FORMATS = ("raw", "npz")
SEED = 1


@dataclass(frozen=True)
class Recipe:
    """How many files, of how many bytes of data each, in which format."""

    files: int
    bytes: int
    format: str

    @property
    def folder(self) -> Path:
        """Below the data of all benchmarks, named after what is in it."""
        return Path(os.environ["MILABENCH_DIR_DATA"]) / f"samples-{self.files}x{self.bytes}-{self.format}"

    def path(self, number: int) -> Path:
        return self.folder / f"{number % 100:02d}" / f"{number:07d}.{self.format}"

    def data(self, number: int) -> bytes:
        """The contents of a sample: random, so that no file system stores it smaller."""
        return random.Random(f"{SEED} {number}").randbytes(self.bytes)

    def _encoded(self, data: bytes) -> bytes:
        if self.format == "raw":
            return data
        import numpy as np  # raw files need none

        file = io.BytesIO()
        np.savez(file, x=np.frombuffer(data, dtype=np.uint8))
        return file.getvalue()

    @property
    def index(self) -> Path:
        return self.folder / "checksums.txt"

    def checksums(self) -> dict[int, int]:
        """The checksum of every file that was made, by its number; a line that an interruption left short is none."""
        if not self.index.is_file():
            return {}
        lines = [line.split() for line in self.index.read_text().splitlines(keepends=True) if line.endswith("\n")]
        return {int(words[0]): int(words[1]) for words in lines if len(words) == 2}

    def make(self, number: int) -> None:
        """Write a file and its checksum. It appears complete or not at all."""
        path, data = self.path(number), self.data(number)
        path.parent.mkdir(exist_ok=True)
        fresh = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            fresh.write_bytes(self._encoded(data))
            fresh.rename(path)
        finally:
            fresh.unlink(missing_ok=True)
        with self.index.open("a") as file:
            file.write(f"{number} {zlib.crc32(data)}\n")


def recipe(options: Mapping[str, object]) -> Recipe:
    """The recipe that the suite gives under `samples`. Raises ValueError for what is none."""
    files, size, kind = options["files"], options["bytes"], options["format"]
    for name, value in {"files": files, "bytes": size}.items():
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"samples.{name}: {value!r} is not a whole number above zero")
    if kind not in FORMATS:
        raise ValueError(f"samples.format: {kind!r} is none of {', '.join(FORMATS)}")
    return Recipe(int(str(files)), int(str(size)), str(kind))


def read(path: Path, kind: str, is_cold: bool) -> bytes:
    """The data of a sample; cold: this machine's cache of the file's pages is emptied first."""
    with path.open("rb") as file:
        if is_cold:
            # Only clean pages of this file go, and only from this machine's memory: a storage server's cache and a disk's remain.
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        if kind == "raw":
            return file.read()
        import numpy as np

        with np.load(file) as arrays:
            return bytes(arrays["x"].tobytes())
