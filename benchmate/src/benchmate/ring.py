"""The ring of observations: a file in memory that the measured loop writes into and that outlives the process.

The layout is a contract with the agent (little-endian, 64-byte slots behind a header of 4096 bytes); one writer, one reader.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import secrets
import struct
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MAGIC = b"MBRING01"
HEADER_BYTES = 4096
SLOT_BYTES = 64
META_OFFSET = 512
META_BYTES = 3000

# Header fields, as indices of 8-byte words.
CAPACITY, HEAD, TAIL, LOST, CLOSED, UNIX_MINUS_MONO, WANTED, WINDOW_START, WINDOW_STOP, OBSERVED, META_LEN = range(
    1, 12
)
STOP = 12  # written by the agent: the whole group has its observations
SPARE = 13  # what the loop counts during warm-up, in the place of OBSERVED

WARM_UP, EPOCH_END, MILLI, PARTS = 1, 2, 4, 8
NO_DEVICE_CLOCK, PENDING = -1, -2

_SLOT = struct.Struct("<8q")
_LOSS = struct.Struct("<qqd5q")

# An mmap object closes its own duplicate of the descriptor when it goes. A script may have closed all descriptors and opened
# files of its own under the same number, so the objects are kept until the process ends.
_kept_for_ever: list[mmap.mmap] = []


@dataclass(frozen=True, kw_only=True)
class RingEntry:
    """One slot as the reader sees it; times are monotonic nanoseconds."""

    batch_id: int
    t0_ns: int
    host_ns: int
    n: int
    device_ns: int
    steps: int
    flags: int
    wait_ns: int
    parts_ns: tuple[int, int, int] | None = None
    """Forward, backward, optimizer, -1 where there was none; from the slot before this one."""

    @property
    def items(self) -> float:
        """Items in the entry, whichever way they were stored."""
        return self.n / 1000 if self.flags & MILLI else self.n


class Ring:
    """A ring of `capacity` slots, in a file of `folder`, or private to the process when there is none.

    Raises OSError when the file cannot be made; its blocks are reserved at once, because a sparse file on a full
    file system would kill the process with SIGBUS in the middle of the loop.
    """

    def __init__(self, meta: dict[str, object], *, folder: Path | None = None, capacity: int = 32768) -> None:
        size = HEADER_BYTES + capacity * SLOT_BYTES
        self.path: Path | None = None
        self.capacity = capacity
        if folder is None:
            self.memory = mmap.mmap(-1, size)
        else:
            self.path = folder / f"{os.getpid()}-{secrets.token_hex(6)}.ring"
            self.memory = _shared_file(self.path, size)
        _kept_for_ever.append(self.memory)
        self.words = memoryview(self.memory).cast("q")
        self.words[CAPACITY] = capacity
        self.words[UNIX_MINUS_MONO] = time.time_ns() - time.perf_counter_ns()
        self.describe(meta)
        self.memory[: len(MAGIC)] = MAGIC

    def describe(self, meta: dict[str, object]) -> None:
        """Write what the entries are into the header; the length is published last."""
        text = json.JSONEncoder().encode(meta).encode()
        if len(text) > META_BYTES:
            raise ValueError(f"ring: the description takes {len(text)} bytes, at most {META_BYTES} fit")
        self.memory[META_OFFSET : META_OFFSET + len(text)] = text
        self.words[META_LEN] = len(text)

    @property
    def head(self) -> int:
        """Entries written in all."""
        return self.words[HEAD]

    @property
    def free(self) -> int:
        """Slots that can be written before the reader would be overtaken."""
        return self.capacity - (self.words[HEAD] - self.words[TAIL])

    def write(
        self,
        *,
        batch_id: int,
        t0_ns: int,
        host_ns: int,
        n: int,
        device_ns: int = NO_DEVICE_CLOCK,
        steps: int = 1,
        flags: int = 0,
        wait_ns: int = -1,
    ) -> bool:
        """Append one entry; False (and counted as lost) when the ring is full."""
        head = self.words[HEAD]
        if head - self.words[TAIL] >= self.capacity:
            self.words[LOST] += 1
            return False
        offset = HEADER_BYTES + head % self.capacity * SLOT_BYTES
        _SLOT.pack_into(self.memory, offset, batch_id, t0_ns, host_ns, n, device_ns, steps, flags, wait_ns)
        self.words[HEAD] = head + 1
        return True

    def write_loss(self, batch_id: int, t_ns: int, loss: float) -> bool:
        """Append one loss, its float64 bits in the third word; False when the ring is full."""
        head = self.words[HEAD]
        if head - self.words[TAIL] >= self.capacity:
            self.words[LOST] += 1
            return False
        offset = HEADER_BYTES + head % self.capacity * SLOT_BYTES
        _LOSS.pack_into(self.memory, offset, batch_id, t_ns, loss, 0, 0, 0, 0, 0)
        self.words[HEAD] = head + 1
        return True

    def fill_device_time(self, entry: int, device_ns: int) -> None:
        """Complete the entry written as number `entry`, unless it has been overwritten since."""
        if self.words[HEAD] - entry <= self.capacity:
            self.words[(HEADER_BYTES + entry % self.capacity * SLOT_BYTES) // 8 + 4] = device_ns

    def close(self) -> None:
        """Tell the reader that nothing more comes."""
        self.words[CLOSED] = 1


class RingReader:
    """The other end: takes entries out in order, up to the first whose device time is still to come."""

    def __init__(self, memory: mmap.mmap | bytearray) -> None:
        if bytes(memory[: len(MAGIC)]) != MAGIC:
            raise ValueError("ring: not a ring file, or one that its writer has not finished making")
        self.memory = memory
        self.words = memoryview(memory).cast("q")

    @classmethod
    def of(cls, path: Path) -> RingReader:
        """Open the ring at `path`."""
        with path.open("r+b") as file:
            memory = mmap.mmap(file.fileno(), 0)
        return cls(memory)

    @property
    def meta(self) -> dict[str, object]:
        """What the entries are: task, units, rank, clock, kind."""
        length = self.words[META_LEN]
        return json.loads(bytes(self.memory[META_OFFSET : META_OFFSET + length]))

    def entries(self, *, writer_is_dead: bool = False) -> Iterator[RingEntry]:
        """Take out what is complete; from a dead writer also what never will be."""
        capacity = self.words[CAPACITY]
        parts: tuple[int, tuple[int, int, int]] | None = None
        while self.words[TAIL] < self.words[HEAD]:
            offset = HEADER_BYTES + self.words[TAIL] % capacity * SLOT_BYTES
            batch_id, t0_ns, host_ns, n, device_ns, steps, flags, wait_ns = _SLOT.unpack_from(self.memory, offset)
            if device_ns == PENDING and not writer_is_dead:
                return
            self.words[TAIL] += 1
            if flags & PARTS:
                # Taken together with its entry, which is published with it and completed after it.
                if not self._entry_is_complete(writer_is_dead):
                    self.words[TAIL] -= 1
                    return
                parts = batch_id, (t0_ns, host_ns, n)
                continue
            yield RingEntry(
                parts_ns=parts[1] if parts is not None and parts[0] == batch_id else None,
                batch_id=batch_id,
                t0_ns=t0_ns,
                host_ns=host_ns,
                n=n,
                device_ns=device_ns,
                steps=steps,
                flags=flags,
                wait_ns=wait_ns,
            )

    def _entry_is_complete(self, writer_is_dead: bool) -> bool:
        place = self.words[TAIL]
        slot = (HEADER_BYTES + place % self.words[CAPACITY] * SLOT_BYTES) // 8
        return writer_is_dead or (place < self.words[HEAD] and self.words[slot + 4] != PENDING)

    def losses(self) -> Iterator[tuple[int, int, float]]:
        """Take out (batch_id, monotonic ns, loss) of a ring of losses."""
        capacity = self.words[CAPACITY]
        while self.words[TAIL] < self.words[HEAD]:
            offset = HEADER_BYTES + self.words[TAIL] % capacity * SLOT_BYTES
            batch_id, t_ns, loss, *_ = _LOSS.unpack_from(self.memory, offset)
            self.words[TAIL] += 1
            yield batch_id, t_ns, loss


def _shared_file(path: Path, size: int) -> mmap.mmap:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, size)
        if sys.version_info >= (3, 13):
            return mmap.mmap(descriptor, size, trackfd=False)
        return mmap.mmap(descriptor, size)
    except OSError:
        with contextlib.suppress(OSError):
            path.unlink()
        raise
    finally:
        os.close(descriptor)
