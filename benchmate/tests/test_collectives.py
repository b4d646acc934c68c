"""What torch's flight recorder holds, as columns of the steps of a window."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import pytest

from benchmate.collectives import last_collectives

OFFSET_NS = 10**18
ENDS_NS = [1_000_000, 2_000_000, 4_000_000]


def entry(number, since_ns, group="0", **more):
    values = {"collective_seq_id": number, "time_created_ns": OFFSET_NS + since_ns, "is_p2p": False}
    return {"process_group": [group, "default_pg"], **values, **more}


def columns(monkeypatch, **recorders):
    dumps = {name: lambda *_, own=entries: json.dumps({"entries": own}) for name, entries in recorders.items()}
    torch = SimpleNamespace(_C=SimpleNamespace(_distributed_c10d=SimpleNamespace(**dumps)))
    monkeypatch.setitem(sys.modules, "torch", torch)
    return last_collectives(ENDS_NS, OFFSET_NS)


def test_each_operation_within_the_steps_has_its_step_and_its_time(monkeypatch):
    entries = [
        entry(1, 900_000),
        entry(2, 1_500_000),
        entry(3, 2_000_001),
        entry(4, 4_000_001),
        entry(2, 3_000_000, "tp"),
    ]
    assert columns(monkeypatch, _dump_fr_trace_json=entries) == [
        {
            "group": "0",
            "t0_ns": OFFSET_NS + 1_000_000,
            "step_us": 1500,
            "number": [2, 3],
            "step": [1, 2],
            "entered_us": [500, 1000],
        },
        {
            "group": "tp",
            "t0_ns": OFFSET_NS + 1_000_000,
            "step_us": 1500,
            "number": [2],
            "step": [2],
            "entered_us": [2000],
        },
    ]


def test_a_device_says_how_long_it_was_in_an_operation_where_torch_times_them(monkeypatch):
    entries = [entry(1, 1_500_000, duration_ms=0.25), entry(2, 2_500_000)]
    (found,) = columns(monkeypatch, _dump_nccl_trace_json=entries)
    assert (found["number"], found["lasted_us"]) == ([1], [250])
    assert "entered_us" not in found


def test_messages_between_two_ranks_are_left_out(monkeypatch):
    assert columns(monkeypatch, _dump_fr_trace_json=[entry(1, 1_500_000, is_p2p=True)]) == []


@pytest.mark.parametrize("torch", [None, SimpleNamespace(), SimpleNamespace(_C=SimpleNamespace())])
def test_without_a_recorder_there_is_nothing(monkeypatch, torch):
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert last_collectives(ENDS_NS, OFFSET_NS) == []
