"""A run's summary -> gauges in base units, which monitoring systems read. prometheus.py and otlp.py spell them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from milabench.analysis.summary_model import COUNTED_OUTCOMES, BenchSummary, Summary
from milabench.shown import grouped

_MIB = 2**20
# What reports write -> the base unit: as a word, in UCUM, and how many of it one is.
_BASES = {
    **{f"{prefix}s": ("seconds", "s", scale) for prefix, scale in {"": 1, "m": 1e-3, "u": 1e-6, "n": 1e-9}.items()},
    "µs": ("seconds", "s", 1e-6),
    "μs": ("seconds", "s", 1e-6),
    **{f"{p}B": ("bytes", "By", 1000**n) for n, p in enumerate(("", "k", "M", "G", "T"))},
    "KB": ("bytes", "By", 1000),
    **{f"{p}iB": ("bytes", "By", 1024**n) for n, p in enumerate(("K", "M", "G", "T"), start=1)},
    **{f"{p}flop": ("flop", "{flop}", 1000**n) for n, p in enumerate(("", "k", "M", "G", "T", "P"))},
    "J": ("joules", "J", 1),
    "W": ("watts", "W", 1),
    "%": ("ratio", "1", 0.01),
    "": ("", "1", 1),
}
# One of it, after a slash.
_SINGULAR = {"seconds": "second", "bytes": "byte", "joules": "joule", "watts": "watt"}


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseUnit:
    """A unit of a report in base units: `noun` is the counted item (`images`), `suffix` is the word for the unit (`per_second`).

    `code` is the unit in UCUM, `scale` the factor of a number.
    """

    noun: str
    suffix: str
    code: str
    scale: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """A gauge of a run: `name` with dots and without its unit, and a value for each set of labels."""

    name: str
    suffix: str
    code: str
    text: str
    samples: tuple[tuple[Mapping[str, str], float], ...]


def base_unit(units: str) -> BaseUnit:
    """Return the base unit of `images/s`, `GB/s`, `us`."""
    top, slash, bottom = units.partition("/")
    word, code, scale = _BASES.get(top) or (_word(top), f"{{{_word(top)}}}", 1.0)
    # What is counted belongs to the name; seconds and bytes by themselves are the unit.
    is_counted = top not in _BASES or word == "flop"
    if not slash:
        return BaseUnit(noun=word if is_counted else "", suffix="" if is_counted else word, code=code, scale=scale)
    per, per_code, per_scale = _BASES.get(bottom) or (_word(bottom), f"{{{_word(bottom)}}}", 1.0)
    suffix = f"per_{_SINGULAR.get(per, per)}"
    return BaseUnit(noun=word, suffix=suffix, code=f"{code}/{per_code}", scale=scale / per_scale)


def _word(text: str) -> str:
    """Return a text as part of a name. A text that is not ASCII as a digest, so that two are never equal."""
    word = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")
    return (
        word if word and text.isascii() else f"unit_{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:8]}"
    )


def gauges(summary: Summary) -> tuple[Gauge, ...]:
    """Return the gauges of a run, in order of their names. Unknown values have none."""
    of_all = (*_of_run(summary), *(each for bench in summary.benchmarks for each in _of_bench(bench)))
    by_name = sorted(grouped((f"{each.name} {each.suffix}", each) for each in of_all).items())
    whole = (replace(own[0], samples=tuple(sample for each in own for sample in each.samples)) for _, own in by_name)
    return tuple(gauge for gauge in whole if gauge.samples)


def created_at(summary: Summary) -> datetime | None:
    """Return when a run was started. None where that was not recorded."""
    try:
        when = datetime.fromisoformat(summary.created)
    except ValueError:
        return None
    return when if when.tzinfo else when.replace(tzinfo=UTC)


def _of_run(summary: Summary) -> Iterator[Gauge]:
    when = created_at(summary)
    began = None if when is None else when.timestamp()
    text = "When the run was started, in seconds since 1970."
    yield _gauge("milabench.run.timestamp", text, began, suffix="seconds", code="s")
    is_passed = float(summary.verdict == "passed")
    yield _gauge("milabench.run.passed", "1 when every planned step passed or was skipped.", is_passed)


def _of_bench(bench: BenchSummary) -> Iterator[Gauge]:
    own = partial(_gauge, benchmark=bench.bench)
    is_valid = bench.outcome == "passed" and bench.validity == "valid"
    yield own("milabench.valid", "1 when the benchmark passed and its number is valid.", float(is_valid))
    for doubt in dict.fromkeys(bench.doubts):
        what = "1 for each reason why the benchmark's number is suspect or invalid."
        yield own("milabench.doubt", what, 1.0, reason=doubt)
    for outcome in COUNTED_OUTCOMES:
        count = float(bench.counts.get(outcome, 0))
        yield own("milabench.steps", "Steps by how they ended.", count, outcome=outcome)
    yield own("milabench.replicates", "Repeats behind the number.", float(bench.replicates))
    unit = base_unit(bench.units)
    low, high = bench.interval or (None, None)
    for name, text, value in (
        ("perf", "Rate of an instance", bench.perf),
        ("perf_low", "Lower bound of the 95 % interval of the rate of an instance", low),
        ("perf_high", "Upper bound of the 95 % interval of the rate of an instance", high),
    ):
        of = ".".join(part for part in (f"milabench.{name}", unit.noun) if part)
        scaled = None if value is None else value * unit.scale
        what = f"{text}, reported in {bench.units or 'no unit'}."
        yield own(of, what, scaled, suffix=unit.suffix, code=unit.code)
    peak = None if bench.memory_peak_mib is None else bench.memory_peak_mib * _MIB
    text = "Highest memory in use: of a device where that is known, else of the processes."
    yield own("milabench.memory.peak", text, peak, suffix="bytes", code="By")
    yield own("milabench.energy", "Energy of the devices.", bench.energy_j, suffix="joules", code="J")
    yield own("milabench.first_step", "Time to the first step.", bench.first_step_s, suffix="seconds", code="s")


def _gauge(name: str, text: str, value: float | None, suffix: str = "", code: str = "1", **labels: str) -> Gauge:
    """Return a gauge with a single value, or with none."""
    return Gauge(name=name, suffix=suffix, code=code, text=text, samples=() if value is None else ((labels, value),))
