"""Operations and bytes of the node's disks."""

from __future__ import annotations

import os
from pathlib import Path

from benchmate.monitors.process_tree import read_kernel_file

SECTOR = 512
LAYERS = ("loop", "ram", "dm-", "md", "zram", "sr")
"""Block devices that are no disk, or are above one."""


class Disks:
    """Sums over whole disks since the first reading; partitions and layers above them would count twice."""

    def __init__(self, proc: str = "/proc", block: str = "/sys/block") -> None:
        self._path = f"{proc}/diskstats"
        names = (path.name for path in Path(block).glob("*"))
        self._names = {os.fsencode(name) for name in names if not name.startswith(LAYERS)}
        self._start = self._sums()

    def data(self) -> dict[str, int] | None:
        """Return `iodata`: counts and bytes; None on a machine without a disk."""
        if not self._names:
            return None
        now = self._sums()
        keys = ("read_count", "read_bytes", "write_count", "write_bytes")
        return {key: after - before for key, after, before in zip(keys, now, self._start, strict=True)}

    def _sums(self) -> tuple[int, int, int, int]:
        sums = [0, 0, 0, 0]
        for line in read_kernel_file(self._path).splitlines():
            fields = line.split()
            if len(fields) > 9 and fields[2] in self._names:
                for index, (field, size) in enumerate(((3, 1), (5, SECTOR), (7, 1), (9, SECTOR))):
                    sums[index] += int(fields[field]) * size
        return (sums[0], sums[1], sums[2], sums[3])
