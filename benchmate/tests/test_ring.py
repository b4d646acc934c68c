"""The ring: what is written is read back, in order, and nothing is lost silently."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmate.ring import EPOCH_END, HEADER_BYTES, LOST, MILLI, PENDING, WARM_UP, Ring, RingEntry, RingReader

META = {"task": "train", "units": "items/s", "rank": 0, "clock": "host", "kind": "rate"}

words = st.integers(min_value=0, max_value=2**62)
entries = st.builds(
    RingEntry,
    batch_id=words,
    t0_ns=words,
    host_ns=words,
    n=words,
    device_ns=st.integers(min_value=-1, max_value=2**62),
    steps=st.integers(min_value=1, max_value=2**20),
    flags=st.integers(min_value=0, max_value=7),
    wait_ns=st.integers(min_value=-1, max_value=2**62),
)


def write(ring: Ring, entry: RingEntry) -> None:
    ring.write(**{name: getattr(entry, name) for name in RingEntry.__dataclass_fields__ if name != "parts_ns"})


def entry(batch_id: int = 0, **changes) -> RingEntry:
    values = {"t0_ns": 1, "host_ns": 2, "n": 3, "device_ns": -1, "steps": 1, "flags": 0, "wait_ns": -1, **changes}
    return RingEntry(batch_id=batch_id, **values)


@pytest.mark.slow
@given(st.lists(st.lists(entries, max_size=8), max_size=8))
def test_what_is_written_is_read_back_in_order(batches):
    ring = Ring(META, capacity=8)
    reader = RingReader(ring.memory)
    for batch in batches:
        for item in batch:
            write(ring, item)
        assert list(reader.entries()) == batch


@given(st.lists(st.booleans(), max_size=40))
def test_every_loss_is_read_or_counted_as_lost(actions):
    ring = Ring({**META, "kind": "loss"}, capacity=4)
    reader, written, read = RingReader(ring.memory), 0, []
    for reads in actions:
        if reads:
            read += [batch_id for batch_id, _, _ in reader.losses()]
        else:
            ring.write_loss(written, 0, 0.5)
            written += 1
    read += [batch_id for batch_id, _, _ in reader.losses()]
    assert len(read) + ring.words[LOST] == written
    assert read == sorted(read)


@given(st.lists(st.floats(allow_nan=False), max_size=8))
def test_losses_come_back_bit_for_bit(values):
    ring = Ring({**META, "kind": "loss"}, capacity=8)
    for index, value in enumerate(values):
        ring.write_loss(index, index * 10, value)
    assert list(RingReader(ring.memory).losses()) == [(index, index * 10, value) for index, value in enumerate(values)]


def test_another_process_reads_the_file_in_the_folder(tmp_path: Path):
    ring = Ring(META, folder=tmp_path, capacity=16)
    write(ring, entry(7))
    reader = RingReader.of(ring.path)
    assert reader.meta == META
    assert [item.batch_id for item in reader.entries()] == [7]
    assert ring.path.stat().st_mode & 0o777 == 0o600


def test_the_layout_is_that_of_the_protocol():
    ring = Ring(META, capacity=4)
    ring.write(batch_id=1, t0_ns=2, host_ns=3, n=4, device_ns=5, steps=6, flags=7, wait_ns=8)
    assert ring.memory[:8] == b"MBRING01"
    assert struct.unpack_from("<2q", ring.memory, 8) == (4, 1)
    assert struct.unpack_from("<8q", ring.memory, HEADER_BYTES) == (1, 2, 3, 4, 5, 6, 7, 8)
    assert (WARM_UP, EPOCH_END, MILLI, PENDING) == (1, 2, 4, -2)


def test_a_reader_waits_for_a_device_time_unless_the_writer_is_dead():
    ring = Ring(META, capacity=8)
    for index, device_ns in enumerate((5, PENDING, 6)):
        write(ring, entry(index, device_ns=device_ns))
    reader = RingReader(ring.memory)
    assert [item.batch_id for item in reader.entries()] == [0]
    ring.fill_device_time(1, 9)
    assert [(item.batch_id, item.device_ns) for item in reader.entries()] == [(1, 9), (2, 6)]
    write(ring, entry(3, device_ns=PENDING))
    assert [item.batch_id for item in reader.entries(writer_is_dead=True)] == [3]


def test_a_missing_folder_is_an_oserror(tmp_path: Path):
    with pytest.raises(OSError, match="No such file"):
        Ring(META, folder=tmp_path / "nope")
