"""Turn slots of a ring into observations, column by column: this runs during a measurement, thousands of times a second.

The layout of a slot: protocol.md, section 10. The columns of a record: section 4.
"""

from __future__ import annotations

import struct
from array import array
from itertools import accumulate
from operator import sub

TYPE_CHECKING = False  # see unpack.py
if TYPE_CHECKING:
    from typing import Any, Iterator

    Columns = dict[str, Any]
    Parts = tuple[int, ...] | None

SLOT = 64  # bytes
LONGEST = 4096  # observations of one record, so that readers hold little at a time
WARMUP, EPOCH_END, MILLI, PARTS = 1, 2, 4, 8
PENDING = -2
PART_NAMES = ("forward_ns", "backward_ns", "optimizer_ns")

# Bytes of a slot that tell what it is: the lowest and the highest of a little-endian word.
_FLAGS, _T0_SIGN, _DEVICE, _DEVICE_SIGN = 48, 15, 32, 39
_NEGATIVE = 0xFF
# Entries of one record are of one kind; each says by itself whether an epoch ends with it.
_KIND_OF_FLAGS = bytes(flags & ~EPOCH_END for flags in range(256))


class SlotDecoder:
    """Decodes the slots of a ring, in order. Keeps the state that an entry needs to continue the previous entry."""

    def __init__(self) -> None:
        self._steps = 0
        self._end_ns = 0

    def decode(self, slots: bytes, final: bool) -> tuple[list[Columns], int]:
        """Return the columns of each run of entries of the same kind, and the number of slots they take.

        An entry is waited for while its time on the device is missing, unless it is `final`: the host's clock counts then.
        """
        slots = slots if final else slots[: _complete(slots) * SLOT]
        entries, parts = _without_parts(slots)
        columns = []
        for first, stop in _runs(entries):
            columns.append(self._columns(entries[first * SLOT : stop * SLOT], parts[first:stop]))
        return columns, len(slots) // SLOT

    def _columns(self, entries: bytes, parts: list[Parts]) -> Columns:
        words = array("q", entries)
        flags, steps = entries[_FLAGS], words[5::8].tolist()
        # Entries that continue others hold the ends of steps and arrivals of batches; they need no look of their own.
        written_out = [index for index, sign in enumerate(entries[_T0_SIGN::SLOT]) if sign != _NEGATIVE]
        t0_ns, ends_ns, arrivals_ns = words[1::8], words[2::8].tolist(), words[7::8].tolist()
        for index in written_out:
            ends_ns[index] += t0_ns[index]
            if arrivals_ns[index] >= 0:
                arrivals_ns[index] += t0_ns[index]
        begins_ns = [self._end_ns, *ends_ns[:-1]]
        for index in written_out:
            begins_ns[index] = t0_ns[index]
        waits_ns: list[int | None] = list(map(sub, arrivals_ns, begins_ns))
        for index in written_out:
            if arrivals_ns[index] < 0:
                waits_ns[index] = None
        on_device = entries[_DEVICE_SIGN] != _NEGATIVE
        columns: Columns = {"observations": len(steps), "clock": "event" if on_device else "host"}
        if flags & WARMUP:
            columns["warmup"] = True
        columns["batch_id"] = self._batch_ids(words[0::8], steps, written_out)
        is_gapless = all(begins_ns[index] == ends_ns[index - 1] for index in written_out if index)
        columns["t0_ns"] = begins_ns[0] if is_gapless else begins_ns
        columns["host_ns"] = list(map(sub, ends_ns, begins_ns))
        if on_device:
            columns["device_ns"] = words[4::8].tolist()
        n = words[3::8].tolist()
        columns["n"] = _once([value / 1000 for value in n] if flags & MILLI else n)
        if steps.count(1) < len(steps):
            columns["steps"] = _once(steps)
        if any(wait is not None for wait in waits_ns):
            columns["wait_ns"] = waits_ns
        columns.update(_part_columns(parts))
        epoch_ends = [index for index, bits in enumerate(entries[_FLAGS::SLOT]) if bits & EPOCH_END]
        if epoch_ends:
            columns["epoch_end"] = epoch_ends
        self._end_ns = ends_ns[-1]
        return columns

    def _batch_ids(self, ids: array[int], steps: list[int], written_out: list[int]) -> Any:
        """Return the number of each entry's first step. The first number is enough where they count on."""
        first = ids[0] if written_out and written_out[0] == 0 else self._steps
        counted = list(accumulate(steps, initial=first))
        self._steps = counted.pop()
        if all(ids[index] == counted[index] for index in written_out):
            return first
        known, numbers = set(written_out), []
        self._steps = first
        for index, count in enumerate(steps):
            numbers.append(ids[index] if index in known else self._steps)
            self._steps = numbers[-1] + count
        return numbers


def measured_span(columns: Columns) -> list[Any] | None:
    """Return begin, end, items and `is_warmup` of the observations that lasted. None where none did."""
    n, hosts = columns["n"], columns["host_ns"]
    elapsed = columns["device_ns"] if "device_ns" in columns else hosts
    lasted = range(len(hosts)) if min(elapsed) > 0 else [index for index, ns in enumerate(elapsed) if ns > 0]
    if not lasted:
        return None
    items = sum(n[index] for index in lasted) if isinstance(n, list) else n * len(lasted)
    first, last = lasted[0], lasted[-1]
    begins = columns["t0_ns"]
    if not isinstance(begins, list):  # of the first, where each begins as the one before ends
        begins = {first: begins + sum(hosts[:first]), last: begins + sum(hosts[:last])}
    return [begins[first], begins[last] + hosts[last], float(items), int(columns.get("warmup", False))]


def _once(values: list[Any]) -> Any:
    """Return the value that all are, else all of them."""
    return values[0] if values.count(values[0]) == len(values) else values


def _complete(slots: bytes) -> int:
    """Return how many slots come before the first that is not complete."""
    count = len(slots) // SLOT
    for index, low in enumerate(slots[_DEVICE::SLOT]):
        if low == 0xFE and struct.unpack_from("<q", slots, index * SLOT + _DEVICE)[0] == PENDING:
            count = index
            break
    # The parts of an entry are published together with it, but maybe not both were there yet when we looked.
    while count and slots[(count - 1) * SLOT + _FLAGS] & PARTS:
        count -= 1
    return count


def _without_parts(slots: bytes) -> tuple[bytes, list[Parts]]:
    """Return the entries alone, and for each the parts of its step, where any has parts."""
    flags = slots[_FLAGS::SLOT]
    if not any(bits & PARTS for bits in set(flags)):
        return slots, []
    entries, parts, before = [], [], None
    for index, bits in enumerate(flags):
        if bits & PARTS:
            before = struct.unpack_from("<3q", slots, index * SLOT + 8)
            continue
        entries.append(slots[index * SLOT : (index + 1) * SLOT])
        parts.append(before)
        before = None
    return b"".join(entries), parts


def _part_columns(parts: list[Parts]) -> Columns:
    columns = {}
    for index, name in enumerate(PART_NAMES):
        column = [known[index] if known is not None and known[index] >= 0 else None for known in parts]
        if any(value is not None for value in column):
            columns[name] = column
    return columns


def _runs(entries: bytes) -> Iterator[tuple[int, int]]:
    """Yield the begin and end of entries of the same kind and clock."""
    kinds = entries[_FLAGS::SLOT].translate(_KIND_OF_FLAGS)
    clocks = entries[_DEVICE_SIGN::SLOT]
    borders = [len(kinds)]
    if kinds.strip(kinds[:1]) or clocks.strip(clocks[:1]):
        both = list(zip(kinds, clocks))
        borders = [*(index for index in range(1, len(both)) if both[index] != both[index - 1]), len(both)]
    begin = 0
    for border in borders:
        while begin < border:
            stop = min(border, begin + LONGEST)
            yield begin, stop
            begin = stop
