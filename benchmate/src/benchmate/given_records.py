"""A program's own measurements, given in a mapping, as in milabench 1.3 and voir."""

from __future__ import annotations

from collections.abc import Mapping

from benchmate.program_rates import OBSERVATION_KEYS
from benchmate.records import as_number
from benchmate.session import Session

_ABOUT = OBSERVATION_KEYS | {"task", "units", "time", "batch_id", "schedule_time", "rate", "loss"}
"""Keys that describe a measurement, or are recorded unchanged."""


def record_given(session: Session, data: Mapping[str, object]) -> None:
    """Record the values that a program gives in a mapping: a `rate`, a `loss`, and every other number as a metric of its name.

    Other values than numbers (the state of devices, a progress) are recorded unchanged, and so is a metric with its own name.
    """
    if "metric" in data and as_number(data.get("value")) is not None:
        session.record("data", data)
        return
    context = {key: data[key] for key in ("task", "time") if key in data}
    if "rate" in data:
        session.program_rate(data)
    if "loss" in data:
        session.record("data", {**context, "loss": data["loss"]})
    others = {key: value for key, value in data.items() if key not in _ABOUT}
    numbers = {key: number for key, value in others.items() if (number := as_number(value)) is not None}
    for name, number in numbers.items():
        session.metric(name, number, "" if "rate" in data else str(data.get("units", "")))
    rest = {key: value for key, value in others.items() if key not in numbers}
    # The window is that of the profile, and says itself how much of it there is.
    if rest and data.get("task") != "early_stop":
        session.record("data", {**context, **rest})
