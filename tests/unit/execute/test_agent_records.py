"""Records on the sink are stamped and noted the same, however many come at a time and wherever they are cut."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from milabench.execute.agent.event_loop import EventLoop
from milabench.execute.agent.outcome import StepLedger
from milabench.execute.agent.protocol import Outbox, StepFrames
from milabench.execute.agent.streams import ObservationConnection
from milabench.redaction import Masker

STAMP = re.compile(rb',"t":[0-9.]+\}\n')
RATE = b'{"event":"data","data":{"task":"train","rate":2.5,"units":"items/s","time":3.0},"pipe":"data"}'
LINES = (
    *(RATE, RATE.replace(b"2.5", b"null"), RATE.replace(b":", b": ")),
    b'{"event":"data","data":{"task":"train","loss":0.5},"pipe":"data"}',
    b'{"event":"data","data":{"task":"train","loss":0.5,"text":"\\"error\\": \\"overhead\\": }"},"pipe":"data"}',
    b'{"event":"data","data":{"metric":"first_step","value":1},"pipe":"data"}',
    b'{"event":"data","data":{"metric":"accuracy","value":1},"pipe":"data"}',
    b'{"event":"data","data":{"request":1,"error":""},"pipe":"data"}',
    b'{"event":"data","data":{"request":1,"error":"refused"},"pipe":"data"}',
    b'{"event":"data","data":{"overhead":{"host_s":1}},"pipe":"data"}',
    b'{"event":"error","data":{"type":"ValueError","message":"one"},"pipe":"data"}',
    b'{"event": "error", "data": {"type": "KeyError", "message": "two"}, "pipe": "data"}',
    b'{"event":"error","data":"no object"}',
    b'{"event":"message","data":{"message":"hi"},"pipe":"data"}',
    b'{"event":}',
    b'{"event":"data","data":{"task":',  # without its brace
    b'{"fail":{"why":"probe","detail":"none fired"}}',
    b'{"hello":{"pid":1,"role":"rank","rank":0,"local_rank":0,"world_size":1}}',
    b'{"ready":true}',
    b"no record",
    b"",
)


class Owner:
    """A step as far as its connections know it."""

    is_ending = False

    def __init__(self) -> None:
        self.loop = EventLoop()
        self.ledger = StepLedger(needs_data=True)
        self.connections: list[ObservationConnection] = []
        self.frames = StepFrames(Outbox(-1), "s", Masker(), lambda: None)
        self.forwarded: list[bytes] = []
        self.sizes: list[int] = []
        self.frames.emit = lambda _, payload, **__: self.forwarded.append(payload)  # type: ignore[method-assign]

    def note_read(self, size: int, is_heartbeat: bool) -> None:
        self.sizes.append(size)

    def scan_output(self, pipe: str, data: bytes) -> None: ...

    def open_ring(self, name: str, world_size: int) -> None: ...

    def note_at_barrier(self) -> None: ...

    def note_complete(self) -> None: ...


def noted(pieces: Iterable[bytes]) -> tuple[list[bytes], dict[str, Any]]:
    """What is forwarded of a connection, its stamps made equal and what the agent says of it first, and what is noted."""
    owner, (ours, theirs) = Owner(), socket.socketpair()
    connection = ObservationConnection(owner, ours)
    with theirs:
        for piece in pieces:
            connection.take(piece)
        connection.close()
    ledger = owner.ledger
    about = {name: getattr(ledger, name) for name in ("error", "failure", "finished", "ranks")}
    forwarded = STAMP.sub(b',"t":0}\n', b"".join(owner.forwarded)).splitlines()
    return sorted(forwarded, key=lambda record: b'"pipe":null' not in record), {
        **about,
        "has_measured": ledger.measurements > 0,
    }


@given(st.lists(st.sampled_from(LINES), max_size=12), st.lists(st.integers(0, 1500), max_size=4))
def test_records_are_noted_the_same_wherever_they_are_cut(lines: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    bounds = [0, *sorted(cuts), len(stream)]
    pieces = [stream[start:end] for start, end in pairwise(bounds)]
    assert noted(pieces) == noted(line + b"\n" for line in lines)


def test_every_record_of_a_piece_has_the_stamp_in_the_place_of_its_last_brace() -> None:
    assert noted([(RATE + b"\n") * 3])[0] == [RATE[:-1] + b',"t":0}'] * 3


def test_the_final_record_and_an_error_are_noted_among_many_observations() -> None:
    lines = [RATE] * 50
    lines[20:20] = [line for line in LINES if b'"overhead":{' in line or b"ValueError" in line]
    _, about = noted([b"".join(line + b"\n" for line in lines)])
    assert about["finished"] == 1
    assert about["error"] == ("ValueError", "one")


def readings_in_two_turns(written: bytes) -> list[int]:
    """The sizes of what is read in two turns of the loop from one that writes so much in a go, and again."""
    owner, (ours, theirs) = Owner(), socket.socketpair()
    with theirs:
        connection = ObservationConnection(owner, ours)
        for _ in range(2):
            theirs.sendall(written)
            owner.loop.turn()
        connection.close()
    return owner.sizes


def test_a_writer_that_fills_its_socket_is_read_again_at_once_and_one_that_does_not_later() -> None:
    assert len(readings_in_two_turns((RATE + b"\n") * 400)) == 2
    assert len(readings_in_two_turns((RATE + b"\n") * 50)) == 1


@given(st.lists(st.binary(min_size=1, max_size=20), min_size=1, max_size=20), st.sampled_from(["rec", "line"]))
def test_a_frame_holds_its_pieces_in_order_and_ends_a_line(pieces: list[bytes], kind: str) -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as pipe:
        outbox = Outbox(writing)
        outbox.send(kind, *pieces, step="s")
        outbox.flush()
        os.close(writing)
        header = json.loads(pipe.readline())
        payload = pipe.read()
    whole = b"".join(pieces)
    assert payload == whole if whole.endswith(b"\n") else payload == whole + b"\n"
    assert header == {"k": kind, "n": len(payload), "step": "s"}
    assert outbox.size == 0
