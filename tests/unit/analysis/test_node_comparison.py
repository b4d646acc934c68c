"""The nodes of one run, each compared with the first: the same numbers in every format."""

from __future__ import annotations

import csv
import io
import json

import pytest
from jsonschema import Draft202012Validator

from milabench.analysis.node_comparison import node_comparison
from milabench.analysis.sample_statistics import geometric_mean
from milabench.analysis.summary_model import BenchSummary, ReplicateResult, Summary
from milabench.analysis.throughput import Throughput
from milabench.report import csv as report_csv
from milabench.report import json as report_json
from milabench.report.run_tables import node_tables
from tests.changed_values import replace
from tests.unit.analysis.test_compare import bench, system
from tests.unit.sweeps.test_comparison import A, B


def on_nodes(**nodes: tuple[float, ...]) -> Summary:
    """A run of one benchmark with two instances on each node; the number of a launch is their geometric mean."""
    processes = [
        ReplicateResult(
            steps=(f"{node}.{repeat}.D{device}",),
            slot=f"{node}/D{device}",
            repeat=repeat,
            throughput=Throughput(value=value * factor, units="items/s", basis="metric", observations=1),
        )
        for node, values in nodes.items()
        for repeat, value in enumerate(values)
        for device, factor in enumerate((1.25, 0.8))
    ]
    summary = system("run", bench("b", units="items/s")).summary
    (one,) = summary.benchmarks
    return replace(summary, benchmarks=(replace(one, processes=tuple(processes)),))


def test_a_node_is_compared_with_the_first_as_a_system_is() -> None:
    (row,) = node_comparison(on_nodes(n0=A, n1=B))
    assert [side.system for side in row.sides] == ["n0", "n1"]
    assert [side.value for side in row.sides] == pytest.approx([geometric_mean(A), geometric_mean(B)])
    (contrast,) = row.contrasts
    assert contrast is not None
    assert contrast.ratio == pytest.approx(0.797046, abs=1e-6)  # methodology.md, section 2
    assert contrast.ci95 == pytest.approx((0.779985, 0.814481), abs=1e-6)
    assert contrast.verdict == "SLOWER"


def test_every_format_has_the_same_numbers() -> None:
    summary = on_nodes(n0=A, n1=B)
    (table,) = node_tables(summary)
    assert table.rows[1] == ("b", "n1", "5", "8.0494", "items/s", "0.7970", "[0.7800, 0.8145]", "SLOWER")
    (row,) = (row for row in csv.DictReader(io.StringIO(report_csv.render([summary]))) if row["node"] == "n1")
    assert (float(row["perf"]), float(row["x_first_node"])) == pytest.approx((8.0494, 0.797046), rel=1e-4)
    assert row["verdict"] == "SLOWER"
    value = json.loads(report_json.render([summary]))
    Draft202012Validator(report_json.report_schema()).validate(value)
    (shown,) = value["by_node"]
    assert shown["contrasts"][0]["ratio"] == pytest.approx(0.797046, abs=1e-6)
    assert shown["sides"][1]["value"] == pytest.approx(8.0494, rel=1e-4)


def test_a_run_of_one_node_has_no_such_table() -> None:
    one = on_nodes(n0=A)
    assert (node_comparison(one), node_tables(one)) == ((), ())
    assert "by_node" not in json.loads(report_json.render([one]))
    few = node_comparison(on_nodes(n0=A[:2], n1=B))[0].contrasts[0]
    assert few is not None and few.ci95 is None
    assert not node_comparison(replace(one, benchmarks=(BenchSummary(bench="x", outcome="failed", counts={}),)))
