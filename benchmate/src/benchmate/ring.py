"""The ring of observations: a memory-mapped file that the measured loop writes and that outlives the process.

The layout is a contract with the agent (little-endian, 64-byte slots behind a header of 4096 bytes). A single writer, a
single reader.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import struct
import sys
import time
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MAGIC = b"MBRING02"
HEADER_BYTES = 4096
SLOT_BYTES = 64
META_OFFSET = 512
META_BYTES = 3000

# Header fields, as indices of 8-byte words.
CAPACITY, HEAD, TAIL, LOST, CLOSED, UNIX_MINUS_MONO, WANTED, WINDOW_START, WINDOW_STOP = range(1, 10)
META_LEN = 11
STOP = 12  # written by the agent: the whole group has its observations
STEPS_TAKEN, END_TAKEN = 13, 14  # the reader's: steps, and end of the last, of the entries that it has taken

# Words of a slot that holds an observation; of a slot with PARTS, words 1 to 3 are forward, backward and optimizer.
BATCH_ID, T0_NS, HOST_NS, ITEMS, DEVICE_NS, STEPS, FLAGS, WAIT_NS = range(8)
SLOT_WORDS = SLOT_BYTES // 8

# Flags of an observation, and values of DEVICE_NS that are no duration.
WARM_UP, EPOCH_END, MILLI, PARTS = 1, 2, 4, 8
NO_DEVICE_CLOCK, PENDING = -1, -2

# In place of BATCH_ID and T0_NS: the entry follows the one before, and HOST_NS and WAIT_NS hold when its step ended and when
# its batch was there. So two words differ from step to step, and nothing has to be counted or subtracted in the loop.
CONTINUED = -1

FIRST_SLOT = HEADER_BYTES // 8  # as an index of words

_SLOT = struct.Struct("<8q")
_LOSS = struct.Struct("<qqd40x")

# An mmap object closes its own duplicate of the descriptor when it is collected. A script may have closed all descriptors and
# opened files of its own under the same number, so the objects are kept until the process ends.
_kept_until_exit: list[mmap.mmap] = []


class RingEntry(NamedTuple):
    """An observation as the reader sees it, in the order of a slot's words. Times are monotonic nanoseconds."""

    batch_id: int
    t0_ns: int
    host_ns: int
    n: int
    device_ns: int
    steps: int
    flags: int
    wait_ns: int
    parts_ns: tuple[int, int, int] | None = None
    """Forward, backward, optimizer, -1 where there was none. Read from the previous slot."""

    @property
    def items(self) -> float:
        """Items in the entry. `n` holds thousandths of an item when MILLI is set."""
        return self.n / 1000 if self.flags & MILLI else self.n


class Ring:
    """A ring of `capacity` slots, in a file of `folder`, or private to the process without a folder.

    Raise OSError when the file cannot be created. Its blocks are reserved at once, because a sparse file on a full
    file system would kill the process with SIGBUS in the middle of the loop.
    """

    # Attributes in __slots__ are read faster than those in a dictionary.
    __slots__ = ("arrivals", "capacity", "ends", "memory", "meta", "path", "words")

    def __init__(self, meta: dict[str, object], *, folder: Path | None = None, capacity: int = 32768) -> None:
        size = HEADER_BYTES + capacity * SLOT_BYTES
        self.path: Path | None = None
        self.capacity = capacity
        if folder is None:
            self.memory = mmap.mmap(-1, size)
        else:
            # The number alone is not unique: containers with process numbers of their own share the folder.
            self.path = folder / f"{os.getpid()}-{os.urandom(6).hex()}.ring"
            self.memory = _shared_file(self.path, size)
        _kept_until_exit.append(self.memory)
        self.words = memoryview(self.memory).cast("q")
        # What differs between entries that continue each other, with the index that their slot has in `words`.
        self.ends, self.arrivals = self.words[HOST_NS:], self.words[WAIT_NS:]
        self.words[CAPACITY] = capacity
        # Read once: a clock that NTP corrects during the run must not tear the steps apart.
        self.words[UNIX_MINUS_MONO] = time.time_ns() - time.perf_counter_ns()
        self.meta = meta
        """The description of the entries: task, units, rank, clock, kind."""
        self.describe()
        # Last: a reader that sees it sees a complete header.
        self.memory[: len(MAGIC)] = MAGIC

    def describe(self) -> None:
        """Write the description of the entries into the header. The length is published last."""
        text = json.JSONEncoder().encode(self.meta).encode()  # not json.dumps, which a script may have patched
        if len(text) > META_BYTES:
            raise ValueError(f"ring: the description takes {len(text)} bytes, at most {META_BYTES} fit")
        self.memory[META_OFFSET : META_OFFSET + len(text)] = text
        self.words[META_LEN] = len(text)

    @property
    def head(self) -> int:
        """Number of slots written so far."""
        return self.words[HEAD]

    @property
    def free(self) -> int:
        """Number of slots that can be written before the reader would be overtaken."""
        return self.capacity - (self.words[HEAD] - self.words[TAIL])

    def slot(self, number: int) -> int:
        """Return the index in `words` of the first word of the slot that was written as number `number`."""
        return FIRST_SLOT + number % self.capacity * SLOT_WORDS

    def prepare(self, slot: int, count: int, n: int, flags: int) -> None:
        """Write entries that continue each other, but for their times, into `count` free slots from the index `slot` on."""
        entry = array("q", (CONTINUED, CONTINUED, 0, n, NO_DEVICE_CLOCK, 1, flags, 0))
        self.words[slot : slot + count * SLOT_WORDS] = entry * count

    def end_ns(self, number: int) -> int:
        """Return when the entry that was written as number `number` ended."""
        slot = self.slot(number)
        t0_ns, host_ns = self.words[slot + T0_NS], self.words[slot + HOST_NS]
        return host_ns if t0_ns == CONTINUED else t0_ns + host_ns

    def entry(self, number: int) -> RingEntry:
        """Return the entry that was written as number `number`. A slot of parts (PARTS) is no entry of its own."""
        slot = self.slot(number)
        batch_id, t0_ns, host_ns, n, device_ns, steps, flags, wait_ns = self.words[slot : slot + SLOT_WORDS]
        if t0_ns == CONTINUED:
            t0_ns = self.end_ns(number - 1)
            host_ns, wait_ns = host_ns - t0_ns, wait_ns - t0_ns
        return RingEntry(batch_id, t0_ns, host_ns, n, device_ns, steps, flags, wait_ns)

    def write(
        self, batch_id: int, t0_ns: int, host_ns: int, n: float, device_ns: int, steps: int, flags: int, wait_ns: int
    ) -> None:
        """Append an observation. The caller makes sure that there is room: nothing is checked in the measured loop."""
        words = self.words
        head = words[HEAD]
        slot = FIRST_SLOT + head % self.capacity * SLOT_WORDS
        # Word by word: after a training step has emptied the caches, struct's own library costs more than eight stores.
        try:
            words[slot + 3] = n  # type: ignore[call-overload]  # a float raises TypeError
        except (TypeError, ValueError):
            words[slot + 3] = round(n * 1000)
            flags |= MILLI
        words[slot] = batch_id
        words[slot + 1] = t0_ns
        words[slot + 2] = host_ns
        words[slot + 4] = device_ns
        words[slot + 5] = steps
        words[slot + 6] = flags
        words[slot + 7] = wait_ns
        # Publish after the slot is written.
        words[HEAD] = head + 1

    def write_loss(self, batch_id: int, t_ns: int, loss: float) -> None:
        """Append a loss, its float64 bits in the third word. Count it as lost when the ring is full."""
        if self.free <= 0:
            self.words[LOST] += 1
            return
        head = self.words[HEAD]
        _LOSS.pack_into(self.memory, self.slot(head) * 8, batch_id, t_ns, loss)
        self.words[HEAD] = head + 1

    def fill_device_time(self, entry: int, device_ns: int) -> None:
        """Complete the entry written as number `entry`, unless it has been overwritten since."""
        if self.head - entry <= self.capacity:
            self.words[self.slot(entry) + DEVICE_NS] = device_ns

    def close(self) -> None:
        """Tell the reader that no more entries follow."""
        self.words[CLOSED] = 1


def take_entries(memory: mmap.mmap) -> Iterator[RingEntry]:
    """Take the complete entries out of a ring, in order, up to the first whose time on the device is still pending."""
    words = memoryview(memory).cast("q")
    while words[TAIL] < words[HEAD]:
        slot, parts, taken = _SLOT.unpack_from(memory, _offset(words, 0)), None, 1
        if slot[FLAGS] & PARTS:
            # Taken out together with its entry, which is published with it and completed after it.
            slot, parts, taken = _SLOT.unpack_from(memory, _offset(words, 1)), slot[1:4], 2
        if slot[DEVICE_NS] == PENDING:
            return
        batch_id, t0_ns, host_ns, n, device_ns, steps, flags, wait_ns = slot
        if t0_ns == CONTINUED:
            batch_id, t0_ns = words[STEPS_TAKEN], words[END_TAKEN]
            host_ns, wait_ns = host_ns - t0_ns, wait_ns - t0_ns
        # Before the entry is given away: a reader that stops here must not see it again.
        words[TAIL] += taken
        words[STEPS_TAKEN], words[END_TAKEN] = batch_id + steps, t0_ns + host_ns
        yield RingEntry(batch_id, t0_ns, host_ns, n, device_ns, steps, flags, wait_ns, parts)


def take_losses(memory: mmap.mmap) -> Iterator[tuple[int, int, float]]:
    """Take (batch_id, monotonic ns, loss) out of a ring of losses."""
    words = memoryview(memory).cast("q")
    while words[TAIL] < words[HEAD]:
        batch_id, t_ns, loss = _LOSS.unpack_from(memory, _offset(words, 0))
        words[TAIL] += 1
        yield batch_id, t_ns, loss


def _offset(words: memoryview[int], further: int) -> int:
    """Return the offset of the next free slot, or of a slot `further` behind it."""
    return HEADER_BYTES + (words[TAIL] + further) % words[CAPACITY] * SLOT_BYTES


def _shared_file(path: Path, size: int) -> mmap.mmap:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        # Not ftruncate, which would reserve nothing.
        os.posix_fallocate(descriptor, 0, size)
        # Each page that the loop touches first would be a fault there: a microsecond and more, every 64 steps.
        flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
        # Without a duplicate of the descriptor there is none that a script could close or reuse.
        if sys.version_info >= (3, 13):
            return mmap.mmap(descriptor, size, flags=flags, trackfd=False)
        return mmap.mmap(descriptor, size, flags=flags)
    except OSError:
        with contextlib.suppress(OSError):
            path.unlink()
        raise
    finally:
        os.close(descriptor)
