"""Which runs of a benchmark are points of its history."""

from __future__ import annotations

import json
from typing import Any

from milabench.analysis.json_codec import to_json_value
from milabench.history.history_command import trend_text
from milabench.history.trend import HistoryRow, trends


def row(place: int, value: float | None = 100.0, **more: Any) -> HistoryRow:
    told: dict[str, Any] = {
        "run": f"r{place}",
        "created": f"2026-01-{place + 1:02d}",
        "host": "box",
        "device": "H100",
        "value": value,
        "units": "items/s",
        "direction": "higher",
        "low": None,
        "high": None,
        "validity": "valid",
        "outcome": "passed",
    }
    return HistoryRow(**{**told, **more})


def test_what_did_not_pass_or_is_invalid_is_no_point_and_what_is_suspect_is_marked() -> None:
    rows = [
        row(0),
        row(1, 50.0, outcome="failed"),
        row(2, 50.0, validity="invalid"),
        row(3, validity="suspect"),
        row(4, None),
    ]
    (trend,) = trends("digits", "rate", rows)
    assert [(point.run, point.validity) for point in trend.points] == [("r0", "valid"), ("r3", "suspect")]


def test_each_size_is_a_series_of_its_own() -> None:
    rows = [row(place, 100.0 if place % 2 else 6400.0, size="device" if place % 2 else "tiny") for place in range(24)]
    found = trends("digits", "rate", rows)
    assert [(one.size, len(one.points), one.changes) for one in found] == [("device", 12, ()), ("tiny", 12, ())]
    assert [to_json_value(one).get("size") for one in (*found, *trends("digits", "rate", [row(0)]))] == [
        "device",
        "tiny",
        None,
    ]


def test_other_arguments_are_a_series_of_their_own_and_the_head_names_them() -> None:
    asked = [json.dumps({"argv.--size": size, "argv.--seed": "1"}) for size in ("1", "2")]
    found = trends("digits", "rate", [row(place, asked=asked[place % 2]) for place in range(4)])
    assert [trend_text(trend, found).splitlines()[0] for trend in found] == [
        "digits: rate in items/s, box, H100, --size 1",
        "digits: rate in items/s, box, H100, --size 2",
    ]
    unknown, known = trends("digits", "rate", [row(0, asked=""), row(1, asked=asked[0])])
    assert trend_text(unknown, (unknown, known)).splitlines()[0].endswith(", arguments not recorded")
