"""The ring: what is written is read back, in order, and nothing is lost silently."""

from __future__ import annotations

import json
import mmap
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmate.ring import (
    EPOCH_END,
    HEAD,
    HEADER_BYTES,
    LOST,
    META_LEN,
    META_OFFSET,
    MILLI,
    PENDING,
    WARM_UP,
    Ring,
    RingEntry,
    take_entries,
    take_losses,
)

META = {"task": "train", "units": "items/s", "rank": 0, "clock": "host", "kind": "rate"}

words = st.integers(min_value=0, max_value=2**62)
moments = st.integers(min_value=0, max_value=2**61)  # 73 years: the reader keeps when an entry ended in one word
entries = st.builds(
    RingEntry,
    batch_id=words,
    t0_ns=moments,
    host_ns=moments,
    n=words,
    device_ns=st.integers(min_value=-1, max_value=2**62),
    steps=st.integers(min_value=1, max_value=2**20),
    flags=st.integers(min_value=0, max_value=7),
    wait_ns=st.integers(min_value=-1, max_value=2**62),
    parts_ns=st.none(),
)


def write(ring: Ring, entry: RingEntry) -> None:
    ring.write(**{name: getattr(entry, name) for name in RingEntry._fields if name != "parts_ns"})


def entry(batch_id: int = 0, **changes) -> RingEntry:
    values = {"t0_ns": 1, "host_ns": 2, "n": 3, "device_ns": -1, "steps": 1, "flags": 0, "wait_ns": -1, **changes}
    return RingEntry(batch_id=batch_id, **values)


@pytest.mark.slow
@given(st.lists(st.lists(entries, max_size=8), max_size=8))
def test_what_is_written_is_read_back_in_order(batches):
    ring = Ring(META, capacity=8)
    for batch in batches:
        for item in batch:
            write(ring, item)
        assert list(take_entries(ring.memory)) == batch


@given(st.lists(st.booleans(), max_size=40))
def test_every_loss_is_read_or_counted_as_lost(actions):
    ring = Ring({**META, "kind": "loss"}, capacity=4)
    written, read = 0, []
    for reads in actions:
        if reads:
            read += [batch_id for batch_id, _, _ in take_losses(ring.memory)]
        else:
            ring.write_loss(written, 0, 0.5)
            written += 1
    read += [batch_id for batch_id, _, _ in take_losses(ring.memory)]
    assert len(read) + ring.words[LOST] == written
    assert read == sorted(read)


@given(st.lists(st.floats(allow_nan=False), max_size=8))
def test_losses_come_back_bit_for_bit(values):
    ring = Ring({**META, "kind": "loss"}, capacity=8)
    for index, value in enumerate(values):
        ring.write_loss(index, index * 10, value)
    assert list(take_losses(ring.memory)) == [(index, index * 10, value) for index, value in enumerate(values)]


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 10**12), st.integers(0, 10**12)), min_size=1, max_size=30))
def test_entries_that_continue_each_other_are_read_as_if_written_out(steps):
    ring, expected, t0_ns = Ring(META, capacity=64), [], 10**15
    for number, (is_written_out, wait_ns, work_ns) in enumerate(steps):
        host_ns = wait_ns + work_ns
        if is_written_out or number == 0:
            t0_ns += 10**6
            write(ring, entry(number, t0_ns=t0_ns, host_ns=host_ns, n=9, wait_ns=wait_ns))
        else:
            slot = ring.slot(ring.head)
            ring.prepare(slot, 1, 9, 0)
            ring.ends[slot], ring.arrivals[slot] = t0_ns + host_ns, t0_ns + wait_ns
            ring.words[HEAD] += 1
        expected.append(entry(number, t0_ns=t0_ns, host_ns=host_ns, n=9, wait_ns=wait_ns))
        t0_ns += host_ns
        assert ring.end_ns(number) == t0_ns
    assert list(take_entries(ring.memory)) == expected


def test_another_process_reads_the_file_in_the_folder(tmp_path: Path):
    ring = Ring(META, folder=tmp_path, capacity=16)
    write(ring, entry(7))
    with ring.path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        (length,) = struct.unpack_from("<q", memory, 8 * META_LEN)
        assert json.loads(memory[META_OFFSET : META_OFFSET + length]) == META
        # The agent reads it with a reader of its own; the layout is what the two share.
        assert struct.unpack_from("<8q", memory, HEADER_BYTES)[0] == 7
    assert ring.path.stat().st_mode & 0o777 == 0o600


def test_the_layout_is_that_of_the_protocol():
    ring = Ring(META, capacity=4)
    ring.write(batch_id=1, t0_ns=2, host_ns=3, n=4, device_ns=5, steps=6, flags=7, wait_ns=8)
    assert ring.memory[:8] == b"MBRING02"
    assert struct.unpack_from("<2q", ring.memory, 8) == (4, 1)
    assert struct.unpack_from("<8q", ring.memory, HEADER_BYTES) == (1, 2, 3, 4, 5, 6, 7, 8)
    assert (WARM_UP, EPOCH_END, MILLI, PENDING) == (1, 2, 4, -2)


def test_an_entry_waits_for_its_device_time():
    ring = Ring(META, capacity=8)
    for index, device_ns in enumerate((5, PENDING, 6)):
        write(ring, entry(index, device_ns=device_ns))
    assert [item.batch_id for item in take_entries(ring.memory)] == [0]
    ring.fill_device_time(1, 9)
    assert [(item.batch_id, item.device_ns) for item in take_entries(ring.memory)] == [(1, 9), (2, 6)]


def test_a_missing_folder_is_an_oserror(tmp_path: Path):
    with pytest.raises(OSError, match="No such file"):
        Ring(META, folder=tmp_path / "nope")
