"""The cases of a number: geometric means over different cases cannot be compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from milabench.events.values import as_mapping, one_line
from milabench.shown import some_of

_NAMED = 3  # cases that are listed by name


def cases_of(metrics: Iterable[Mapping[str, object]], steps: Sequence[str] | None = None) -> frozenset[str]:
    """Return the cases of the main metrics (name, case, part, parameters), from any rank. Of all steps, or of these.

    Empty for a benchmark whose number is a rate. `metrics` are a summary's.
    """
    return frozenset(
        _name(metric)
        for metric in metrics
        if metric.get("main") is True and (steps is None or metric.get("step") in steps)
    )


def differing(ours: frozenset[str], theirs: frozenset[str]) -> str:
    """Describe the cases that only one of two numbers covers. Empty where both cover the same, or either is unknown."""
    if not ours or not theirs or ours == theirs:
        return ""
    only = sorted(ours ^ theirs)
    return f"{len(only)} of {len(ours | theirs)} cases are not in both: {some_of(only, _NAMED, by='; ')}"


def _name(metric: Mapping[str, object]) -> str:
    params = [f"{key}={value}" for key, value in sorted(as_mapping(metric.get("params")).items())]
    parts = (metric.get("metric"), metric.get("case"), metric.get("part"), *params)
    return one_line(" ".join(str(part) for part in parts if part))
