"""Gauges of runs for monitoring systems, read by the readers of those systems."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milabench.analysis.score import Score
from milabench.analysis.summary_model import BenchSummary, Summary
from milabench.history.gauges import base_unit
from milabench.history.otlp import metrics_request
from milabench.history.prometheus import exposition
from milabench.shown import visible_line
from tests.recorded_run import Recorded, rates, record

Milabench = Callable[..., Any]
COUNTS = {"planned": 1, "passed": 1, "failed": 0, "skipped": 0, "missing": 0, "cancelled": 0}


def bench(name: str = "digits", **values: Any) -> BenchSummary:
    return BenchSummary(bench=name, outcome="passed", counts=COUNTS, **values)


def summary(*benches: BenchSummary, **values: Any) -> Summary:
    return Summary(run="night", verdict="passed", benchmarks=benches, score=Score(), **values)


def families(text: str) -> dict[str, Any]:
    """What Prometheus' own parser reads; it merges nothing: a family that came twice would be lost here."""
    from prometheus_client.parser import text_string_to_metric_families

    found = list(text_string_to_metric_families(text))
    assert len({family.name for family in found}) == len(found)
    return {family.name: family for family in found}


def value_of(text: str, name: str, **labels: str) -> float:
    [sample] = [sample for sample in families(text)[name].samples if sample.labels.items() >= labels.items()]
    return float(sample.value)


def request_of(text: str) -> Any:
    """What the protobuf definition of OpenTelemetry reads in the JSON; unknown fields are errors."""
    from google.protobuf.json_format import Parse
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    return Parse(text, ExportMetricsServiceRequest(), ignore_unknown_fields=False)


@pytest.mark.parametrize(
    ("units", "name", "code", "scale"),
    [
        ("images/s", "images.per_second", "{images}/s", 1),
        ("env steps/s", "env_steps.per_second", "{env_steps}/s", 1),
        ("Tflop/s", "flop.per_second", "{flop}/s", 1e12),
        ("GB/s", "bytes.per_second", "By/s", 1e9),
        ("GiB/s", "bytes.per_second", "By/s", 2**30),
        ("us", ".seconds", "s", 1e-6),
        ("µs", ".seconds", "s", 1e-6),
        ("images/ms", "images.per_second", "{images}/s", 1e3),
        ("s/image", "seconds.per_image", "s/{image}", 1),
        ("images/J", "images.per_joule", "{images}/J", 1),
        ("%", ".ratio", "1", 0.01),
        ("", ".", "1", 1),
    ],
)
def test_units_are_base_units(units: str, name: str, code: str, scale: float) -> None:
    unit = base_unit(units)
    assert (f"{unit.noun}.{unit.suffix}", unit.code) == (name, code)
    assert unit.scale == pytest.approx(scale)


def test_units_that_are_not_ascii_stay_apart() -> None:
    assert base_unit("画像/s").noun != base_unit("文字/s").noun
    assert base_unit("画像/s").noun.isascii()


def test_a_number_is_read_back_with_its_unit_and_interval() -> None:
    text = exposition(
        summary(
            bench(perf=2.5, units="Tflop/s", ci95=(2.4, 2.6), validity="valid", memory_peak_mib=1.0, replicates=5),
            bench("sft", perf=100.0, units="tokens/s", validity="suspect", doubts=("short", "contended")),
            created="2026-03-14T12:00:00+00:00",
        )
    )
    assert value_of(text, "milabench_perf_flop_per_second", benchmark="digits") == 2.5e12
    assert value_of(text, "milabench_perf_low_flop_per_second", benchmark="digits") == 2.4e12
    assert value_of(text, "milabench_perf_high_flop_per_second", benchmark="digits") == 2.6e12
    assert value_of(text, "milabench_perf_tokens_per_second", benchmark="sft") == 100.0
    assert value_of(text, "milabench_memory_peak_bytes", benchmark="digits") == 2**20
    assert value_of(text, "milabench_run_timestamp_seconds") == 1773489600
    assert value_of(text, "milabench_valid", benchmark="digits") == 1
    assert value_of(text, "milabench_valid", benchmark="sft") == 0
    assert value_of(text, "milabench_doubt", benchmark="sft", reason="contended") == 1
    assert value_of(text, "milabench_steps", benchmark="sft", outcome="passed") == 1
    found = families(text)
    assert {family.type for family in found.values()} == {"gauge"}
    assert "reported in Tflop/s" in found["milabench_perf_flop_per_second"].documentation


def test_what_is_not_known_is_absent_and_nothing_has_a_time_stamp() -> None:
    text = exposition(summary(bench()))
    assert "milabench_perf_seconds" not in text
    assert not [name for name in families(text) if "perf" in name or "energy" in name]
    assert all(sample.timestamp is None for family in families(text).values() for sample in family.samples)


def test_the_run_is_named_in_one_series_only() -> None:
    text = exposition(summary(bench(perf=1.0, units="images/s"), bench("b", perf=1.0, units="images/s")))
    assert text.count("night") == 1
    labels = {name for family in families(text).values() for sample in family.samples for name in sample.labels}
    assert labels == {"benchmark", "outcome", "run", "version", "profile", "host", "device"}


@given(st.text(min_size=1), st.text(), st.text(), st.floats(allow_nan=False, allow_infinity=False))
def test_any_name_unit_and_reason_can_be_read(name: str, units: str, reason: str, value: float) -> None:
    one = summary(bench(name, perf=value, units=units, doubts=(reason,), validity="suspect"))
    text = exposition(one)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)
    assert value_of(text, "milabench_valid", benchmark=visible_line(name)) == 0
    assert [len(family.samples) for key, family in families(text).items() if key.startswith("milabench_perf")] == [1]
    request_of(metrics_request([one]))


def test_a_request_of_opentelemetry_is_read_back() -> None:
    nodes = [
        {
            "name": "n0",
            "hostname": "box",
            "cpu": {"model": "EPYC 9354"},
            "os": "Debian 12",
            "devices": [{"name": "H100"}, {"name": "H100"}],
        }
    ]
    one = summary(
        bench(perf=100.0, units="tokens/s", ci95=(99.0, 101.0)),
        system={"nodes": nodes},
        created="2026-03-14T12:00:00+00:00",
        version="0.1.0",
        profile="default",
    )
    text = metrics_request([one, one])
    assert text.count("\n") == 1
    request = request_of(text)
    first, second = request.resource_metrics
    assert first == second
    attributes = {entry.key: entry.value.string_value for entry in first.resource.attributes}
    assert attributes["service.name"] == "milabench"
    assert attributes["host.name"] == "box"
    assert attributes["host.cpu.model.name"] == "EPYC 9354"
    [scope] = first.scope_metrics
    metrics = {metric.name: metric for metric in scope.metrics}
    [point] = metrics["milabench.perf.tokens"].gauge.data_points
    assert (point.as_double, metrics["milabench.perf.tokens"].unit) == (100.0, "{tokens}/s")
    assert point.time_unix_nano == 1773489600 * 10**9
    assert [(entry.key, entry.value.string_value) for entry in point.attributes] == [("benchmark", "digits")]
    assert isinstance(
        json.loads(text)["resourceMetrics"][0]["scopeMetrics"][0]["metrics"][0]["gauge"]["dataPoints"][0][
            "timeUnixNano"
        ],
        str,
    )


def test_several_hosts_are_not_one_host() -> None:
    one = summary(system={"nodes": [{"name": "a"}, {"name": "b"}]})
    keys = {entry.key for entry in request_of(metrics_request([one])).resource_metrics[0].resource.attributes}
    assert "milabench.hosts" in keys
    assert "host.name" not in keys


# -------------------------------------------------------------------------------------------------------------- export


@pytest.fixture
def base(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        record(tmp_path / "base", Recorded(events=rates(800, 800, 800)), name=name)
    return tmp_path / "base"


def test_export_writes_each_format(milabench: Milabench, base: Path, tmp_path: Path) -> None:
    assert milabench("export", "a", "-o", "node.prom").err == "written to node.prom\n"
    assert value_of((tmp_path / "node.prom").read_text(), "milabench_perf_images_per_second", benchmark="digits") == 800
    assert (tmp_path / "node.prom").stat().st_mode & 0o444 == 0o444  # for a collector of another user
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base", "node.prom"]
    printed = milabench("export", "a", "--format", "prometheus")
    assert printed.out == (tmp_path / "node.prom").read_text()
    several = milabench("export", "a", "b", "-f", "otlp-json")
    assert len(request_of(several.out).resource_metrics) == 2


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (("a", "b", "-o", "x.prom"), "Name a single run"),
        (("a",), "missing option --format parquet|prometheus|otlp-json"),
        (("a", "-f", "parquet"), "Parquet is no text"),
        (("a", "-o", "x.txt"), "no format ends in '.txt'"),
        (("a", "-f", "csv"), "'csv' is not one of"),
    ],
)
def test_export_says_what_it_cannot_do(
    milabench: Milabench, base: Path, tmp_path: Path, argv: tuple[str, ...], why: str
) -> None:
    said = milabench("export", *argv)
    assert (said.code, why in said.err, said.err.count("\n")) == (2, True, 1), said.err
    assert [path.name for path in tmp_path.iterdir()] == ["base"]


def test_a_file_that_cannot_be_written_stays_as_it_was(milabench: Milabench, base: Path, tmp_path: Path) -> None:
    said = milabench("export", "a", "-o", "none/x.prom")
    assert (said.code, said.err.startswith("error: none/x.prom: cannot be written")) == (6, True)
