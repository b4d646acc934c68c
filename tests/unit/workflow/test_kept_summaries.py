"""The summary beside a run: read sparingly, it says the same; altered, it is computed again."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from milabench.analysis.json_codec import Unread
from milabench.analysis.kept_summary import KeptSummary
from milabench.analysis.summary_io import summary_from_json
from milabench.events.rundir import Run, open_run
from milabench.workflow import summaries
from milabench.workflow.summaries import recompute_summary, summary_of
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
    stored = summaries._stored

    def watched(run: Run) -> object:
        found = stored(run)
        seen.extend([] if found is not None else [run.name])
        return found

    monkeypatch.setattr(summaries, "_stored", watched)
    return seen


def test_what_is_read_sparingly_is_the_whole_summary(run: Run) -> None:
    kept = KeptSummary((run.path / "summary.json").read_bytes())
    sparing, values = kept.sparing_values(), kept.values()
    assert sparing is not None
    spared = summary_from_json(sparing, run.manifest, has_shape=True)
    assert isinstance(spared.benchmarks[0].validations, Unread)
    assert spared == summary_from_json(values, run.manifest)
    assert spared.to_json() == summary_from_json(values, run.manifest).to_json()
    assert list(spared.benchmarks[0].metrics) == values["benchmarks"][0]["metrics"]
    assert spared.benchmarks[0].metrics[0] == values["benchmarks"][0]["metrics"][0]
    assert len(spared.benchmarks[0].metrics) == len(values["benchmarks"][0]["metrics"])


def test_a_kept_summary_is_that_of_the_records(run: Run, computed: list[str]) -> None:
    kept = summary_of(run)
    assert computed == []
    own = {name: value for name, value in kept.to_json().items() if name != "benchmarks"}
    assert own == {name: value for name, value in recompute_summary(run).items() if name != "benchmarks"}
    benches = [{**bench, "failures": []} for bench in kept.to_json()["benchmarks"]]  # with the paths of their logs
    assert benches == [{**bench, "failures": []} for bench in recompute_summary(run)["benchmarks"]]


def test_one_that_something_else_wrote_anew_is_still_believed(run: Run, computed: list[str]) -> None:
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


def test_one_of_another_shape_with_a_digest_that_fits_is_computed_again(run: Run, computed: list[str]) -> None:
    path = run.path / "summary.json"
    value = json.loads(path.read_bytes())
    made_of = value.pop("made_of")
    value["benchmarks"][0]["metrics"] = [{"metric": "rate", "repeat": 0, "value": "fast"}]
    made_of["summary"] = summaries._digest_of(value)
    path.write_text(json.dumps({**value, "made_of": made_of}, separators=(",", ":")))
    summary_of(run)
    assert computed == [run.name]


def test_what_is_changed_of_a_kept_summary_is_written_with_all_of_it(run: Run) -> None:
    kept = summary_of(run)
    renamed = replace(kept, benchmarks=tuple(replace(bench, about="x") for bench in kept.benchmarks))
    assert json.dumps(renamed.to_json()["benchmarks"][0]["validations"])
