"""The summary beside a run: decoded in part, it says the same; altered, it is computed again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from milabench.analysis.summary_io import summary_from_bytes, summary_from_json
from milabench.analysis.summary_model import without_details
from milabench.events.rundir import Run, open_run
from milabench.workflow import summaries
from milabench.workflow.summaries import recompute_summary, summary_of
from tests.changed_values import replace
from tests.commands import ROOT


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A copy of a recorded run, with its summary beside it."""
    path = tmp_path / "system_a"
    shutil.copytree(ROOT / "tests" / "runs" / "system_a", path)
    (path / "summary.json").unlink(missing_ok=True)
    summary_of(open_run(path))
    return open_run(path)


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs whose summaries were computed from their records."""
    seen: list[str] = []
    stored = summaries._read_stored

    def watched(run: Run) -> object:
        found = stored(run)
        seen.extend([] if found is not None else [run.name])
        return found

    monkeypatch.setattr(summaries, "_read_stored", watched)
    return seen


def test_a_summary_of_bytes_is_that_of_their_json(run: Run) -> None:
    content = (run.path / "summary.json").read_bytes()
    values = json.loads(content)
    summary = summary_from_bytes(content, run.manifest)
    assert summary == summary_from_json(values, run.manifest)
    assert {**summary.to_json(), "made_of": values["made_of"]} == values
    assert list(summary.benchmarks[0].metrics) == values["benchmarks"][0]["metrics"]


def test_a_stored_summary_is_that_of_the_records(run: Run, computed: list[str]) -> None:
    stored = summary_of(run)
    assert computed == []
    own = {name: value for name, value in stored.to_json().items() if name != "benchmarks"}
    assert own == {name: value for name, value in recompute_summary(run).items() if name != "benchmarks"}
    benches = [{**bench, "failures": []} for bench in stored.to_json()["benchmarks"]]  # with the paths of their logs
    assert benches == [{**bench, "failures": []} for bench in recompute_summary(run)["benchmarks"]]


def test_one_that_something_else_wrote_again_is_still_believed(run: Run, computed: list[str]) -> None:
    path = run.path / "summary.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()), indent=2))
    summary_of(run)
    assert computed == []


@pytest.mark.parametrize("old, new", [(b'"perf":', b'"perf":1'), (b'"verdict":"pass"', b'"verdict":"fail"')])
def test_one_that_was_altered_is_computed_again(run: Run, computed: list[str], old: bytes, new: bytes) -> None:
    path = run.path / "summary.json"
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new, 1))
    summary_of(run)
    assert computed == [run.name]
    assert path.read_bytes() == content  # written again


@pytest.mark.parametrize(
    "change",
    [
        {"metrics": [{"metric": "rate", "repeat": 0, "value": "fast"}]},
        {"validations": [{"step": 1}]},
        {"counts": {"planned": 1}},
        {"outcome": "perhaps"},
        {"ci95": [1.0]},
        {"failures": [{"step": "a"}]},
        {"serving": {"points": [{"name": 1}]}},
    ],
)
def test_one_of_another_shape_with_a_digest_that_fits_is_computed_again(
    run: Run, computed: list[str], change: dict[str, object]
) -> None:
    value = json.loads((run.path / "summary.json").read_bytes())
    value["benchmarks"][0] |= change
    forge(run, value)
    summary_of(run)
    assert computed == [run.name]


@pytest.mark.parametrize(
    "change",
    [
        {"value": 0.0},
        {"value": 1e60},
        {"value": "fast"},
        {"place": 1},
        {"repeat": 0.5},
        {"units": 1},
        {"observations": 1.5},
        {"steps": [], "step": ""},
        {"totals": [{"rank": 0, "items": -1, "seconds": 1.0, "observations": 1, "steps": 1}]},
        {"totals": [{"items": 1, "seconds": 1.0}]},
        {"stall": {"seconds": 1.0}},
        {"warmup_left": "many"},
        {"pauses": {"validation": None}},
    ],
)
def test_one_with_a_launch_of_another_shape_is_computed_again(
    run: Run, computed: list[str], change: dict[str, object]
) -> None:
    value = json.loads((run.path / "summary.json").read_bytes())
    rate = next(metric for metric in value["benchmarks"][0]["metrics"] if metric["metric"] == "rate")
    rate |= {"window": {"n": 9, "lag1": 0.1, "p": 0.5}, "warmup_left": 0, "drift": 0.1, "n_effective": 9.0}
    forge(run, value)
    summary_of(run)
    assert computed == []
    rate |= change
    forge(run, value)
    summary_of(run)
    assert computed == [run.name]


def forge(run: Run, value: dict[str, Any]) -> None:
    """Write another summary beside a run, with the digest that it would have."""
    summary = {name: own for name, own in value.items() if name != "made_of"}
    made_of = {**value["made_of"], "summary": summaries._digest_of(summary)}
    (run.path / "summary.json").write_text(json.dumps({**summary, "made_of": made_of}, separators=(",", ":")))


def test_what_is_changed_of_a_stored_summary_is_written_with_all_of_it(run: Run) -> None:
    stored = summary_of(run)
    renamed = replace(stored, benchmarks=tuple(replace(bench, about="x") for bench in stored.benchmarks))
    assert json.dumps(renamed.to_json()["benchmarks"][0]["validations"])


def test_without_details_other_verdicts_other_metrics_and_all_launches_are_left(run: Run) -> None:
    bench = summary_of(run).benchmarks[0]
    warned, energy = {**bench.validations[0], "verdict": "warn"}, {"metric": "energy", "value": 1.0}
    bench = replace(bench, validations=(warned, *bench.validations), metrics=(energy, *bench.metrics))
    (kept,) = without_details(replace(summary_of(run), benchmarks=(bench,))).benchmarks
    not_compared = {"rate", "warm_up", "data_wait"}
    assert {each["metric"] for each in kept.metrics} == {each["metric"] for each in bench.metrics} - not_compared
    assert kept == replace(bench, validations=(warned,), metrics=kept.metrics)
