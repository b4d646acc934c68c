"""`compare` and `accept` of recorded sweeps over a server, from run directories to exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from milabench.cli.verbs import verbs
from milabench.errors import ConfigError
from tests.serving_runs import LOADS, serving_run


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs: a server, one that takes 20 per cent longer for everything, and one that ends at its last load."""
    folder = tmp_path_factory.mktemp("sweeps")
    serving_run(folder, "old")
    serving_run(folder, "new", 1.2)
    serving_run(folder, "broken", failed={f"concurrency={LOADS[-1]}": "the server ended"})
    return folder


def done(base: Path, *argv: str | Path) -> Result:
    return CliRunner().invoke(
        verbs, [*map(str, argv), "--base", str(base)], standalone_mode=False, catch_exceptions=False
    )


def curves(base: Path, *runs: str | Path) -> Any:
    (only,) = json.loads(done(base, "compare", *runs, "--json").stdout)["comparison"]["curves"]
    return only


@pytest.mark.slow
def test_a_server_20_per_cent_slower_has_1_over_1_2_inside_every_interval(base: Path) -> None:
    ratios = curves(base, "old", "new")["ratios"]
    closed = [ratio for ratio in ratios if ratio["point"].startswith("concurrency=")]
    assert len(closed) == 3 * len(LOADS)
    for ratio in closed:
        low, high = ratio["contrast"]["ci95"]
        assert low <= 1 / 1.2 <= high
        assert ratio["contrast"]["verdict"] == "SLOWER"
    opened = {ratio["metric"]: ratio["contrast"]["ratio"] for ratio in ratios if ratio["point"] == "rate=1"}
    # At a rate that both keep up with, what comes out is what goes in.
    assert opened["output_tps"] == pytest.approx(1, abs=0.01)
    assert opened["ttft_p90_ms"] == pytest.approx(1 / 1.2, abs=1e-4)
    (area,) = [ratio for ratio in ratios if ratio["metric"] == "area"]
    assert area["contrast"]["ratio"] == pytest.approx(1 / 1.44, abs=1e-4)
    assert done(base, "compare", "old", "new").return_value == 1


def test_a_report_in_json_is_compared_as_its_run_is(base: Path, tmp_path: Path) -> None:
    report = tmp_path / "old.json"
    done(base, "report", "old", "-o", report)
    assert curves(base, report, "new")["ratios"] == curves(base, "old", "new")["ratios"]


def test_a_point_that_failed_is_listed_and_the_others_are_compared(base: Path) -> None:
    found = curves(base, "old", "broken")
    assert f"concurrency={LOADS[-1]}" not in {ratio["point"] for ratio in found["ratios"]}
    assert found["apart"][0] == [f"concurrency={LOADS[-1]}", "old: measured; broken: failed: the server ended"]
    assert {ratio["contrast"]["ratio"] for ratio in found["ratios"]} == {1.0}


@pytest.mark.parametrize(
    ("run", "bounds", "code"),
    [
        ("old", "concurrency=8: {ttft_p90_ms: {maximum: 80 ms}, output_tps: {minimum: 450 tokens/s}}", 0),
        ("new", "concurrency=8: {ttft_p90_ms: {maximum: 70 ms}}", 7),
        ("new", "concurrency=8: {output_tps: {minimum: 0.8 x reference}}, area: {minimum: 0.6 x reference}", 0),
        ("new", "concurrency=8: {output_tps: {minimum: 0.9 x reference}}", 7),
        ("old", "slo_concurrency: {minimum: 16}", 0),
        ("old", "slo_concurrency: {minimum: 32}", 7),
        ("broken", "concurrency=64: {output_tps: {minimum: 1 tokens/s}}", 8),
        ("old", "concurrency=128: {output_tps: {minimum: 1 tokens/s}}", 8),
    ],
)
def test_criteria_on_a_curve_end_with_their_verdict(
    base: Path, tmp_path: Path, run: str, bounds: str, code: int
) -> None:
    criteria = tmp_path / "criteria.yaml"
    criteria.write_text(f"benchmarks: {{chat: {{serving: {{{bounds}}}, allow: [validation, points-missing]}}}}\n")
    found = done(base, "accept", run, "--criteria", criteria, "--reference", "old")
    assert (found.return_value, found.stdout.split(":")[0]) == (
        code,
        {0: "PASS", 7: "FAIL", 8: "INCONCLUSIVE"}[code],
    )
    if "128" in bounds:
        assert "The sweep has concurrency=1, concurrency=2" in found.stdout


def test_a_number_that_no_curve_has_is_refused(base: Path, tmp_path: Path) -> None:
    criteria = tmp_path / "criteria.yaml"
    criteria.write_text("benchmarks:\n  chat:\n    serving: {rate=1: {ttft: {maximum: 1 ms}}}\n")
    with pytest.raises(
        ConfigError, match=r"criteria.yaml:3:24: .*unknown key 'ttft'. Known: cost_per_mtok, e2e_p50_ms, "
    ):
        done(base, "accept", "old", "--criteria", criteria)
