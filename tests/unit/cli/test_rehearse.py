"""`milabench rehearse`, from a tender in a file to what is printed; the rates themselves are in unit/procurement."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from milabench.cli import rehearse
from milabench.errors import ConfigError, MilabenchError, NothingSelected, UsageError
from tests.recorded_run import Recorded, rates, record

PUBLISHED = """\
metric: index
benchmarks:
  bert: {reference: {value: 699.78 s}}
  vit: {reference: {value: 42.7 s}}
"""
FEW = ("--tenders", "4", "--nodes", "6", "--bad-nodes", "1")
Invoke = Callable[..., Result]


@pytest.fixture
def invoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    monkeypatch.chdir(tmp_path)
    Path("procurement.yaml").write_text(PUBLISHED)

    def run(*argv: str) -> Result:
        argv = ("procurement.yaml", *FEW, *argv)
        return CliRunner().invoke(rehearse.command, argv, standalone_mode=False, catch_exceptions=False)

    return run


def test_a_rehearsal_says_how_often_each_thing_happens_and_writes_nothing(invoke: Invoke, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    text = invoke("--noise", "cv=1%,nodes=0.5%", "--true-ratios", "1.5,1.6").output
    for words in (
        "the best offer has the highest score",
        "tenders with a wrong verdict",
        "S of a benchmark",
        "acceptance of a good system",
        "acceptance with bad nodes",
        "bad nodes that are found",
        "10 launches",
        "seed 1",
    ):
        assert words in text
    assert sorted(tmp_path.rglob("*")) == before


def test_json_has_every_rate_with_its_interval_and_the_truth(invoke: Invoke) -> None:
    found = json.loads(invoke("--noise", "launches=1%", "--offers", "3", "--seed", "5", "--json").output)
    assert found["schema"] == 1
    assert [offer["true_ratio"] for offer in found["offers"]] == pytest.approx([1.5, 1.53, 1.5606])
    assert [offer["true_score"] for offer in found["offers"]] == pytest.approx([1.5, 1.53, 1.5606])
    assert found["plan"]["seed"] == 5
    assert found["with_more_launches"]["plan"]["launches"] == 2 * found["plan"]["launches"] == 10
    rates_of = [rate for rates in found["rates"].values() for rate in rates]
    assert all(rate["ci95"][0] <= rate["share"] <= rate["ci95"][1] for rate in rates_of)
    assert [rate["trials"] for rate in found["rates"]["verdicts"]] == [8, 8, 8, 4]
    assert any("no difference is known" in note for note in found["notes"])


@pytest.mark.parametrize("form", ["markdown", "html"])
def test_other_formats(invoke: Invoke, form: str) -> None:
    assert "the best offer has the highest score" in invoke("--noise", "cv=1%", "-f", form).output


def test_noise_is_that_of_the_reference_run_unless_another_is_named_or_stated(invoke: Invoke, tmp_path: Path) -> None:
    def run(name: str, *levels: float) -> Path:
        steps = [Recorded(bench="bert", repeat=at, events=rates(*[level] * 5)) for at, level in enumerate(levels)]
        return record(tmp_path, *steps, name=name).path

    quiet = run("quiet", 100, 101, 99)
    run("loud", 100, 120, 80)
    short = run("short", 100, 101)
    tender = "metric: ssi\nreference: {run: %s}\nbenchmarks: {bert: }\n"
    Path("procurement.yaml").write_text(tender % quiet)

    def noise(*argv: str) -> Any:
        return json.loads(invoke("--base", str(tmp_path), "--json", *argv).output)["noise"]["bert"]

    assert noise()["launches"] == pytest.approx(0.01, rel=0.01)
    assert noise("--noise", "loud")["launches"] == pytest.approx(0.203, rel=0.01)
    both = noise("--noise", "loud", "--noise", "nodes=1%,launches=3%")
    assert (both["launches"], both["nodes"]) == (pytest.approx(0.02956, rel=1e-3), pytest.approx(0.00995, rel=1e-3))
    Path("procurement.yaml").write_text(tender % short)
    with pytest.raises(NothingSelected, match="has 2 launches of 'bert'; three at least show how it varies"):
        noise()


@pytest.mark.parametrize(
    ("argv", "error", "words"),
    [
        ((), UsageError, "how numbers vary is not known: name a run with --noise RUN, or state it"),
        (("--noise", "speed=1%"), UsageError, "--noise speed=1%: expected launches=1%, nodes=1%"),
        (("--noise", "cv=x"), UsageError, "expected a number such as 0.01 or 1%, got 'x'"),
        (("--noise", "cv=200%"), UsageError, "at most 90%"),
        (("--noise", "a", "--noise", "b"), UsageError, "a and b are two runs"),
        (("--noise", "cv=1%", "--bad-nodes", "6"), UsageError, "--bad-nodes 6: give fewer than the 6 of --nodes"),
        (("--noise", "cv=1%", "--slowdown", "100%"), UsageError, "--slowdown 100%: at most 90%"),
        (("--noise", "cv=1%", "--true-ratios", "1,0"), UsageError, "--true-ratios 1,0: expected numbers above zero"),
        (("--noise", "cv=1%", "--true-ratios", "1,2", "--offers", "3"), UsageError, "--true-ratios names 2"),
        (("--noise", "cv=1%", "--metric", "ssi"), ConfigError, "nodes of the reference system are missing"),
        (("--noise", "cv=1%", "--criteria", "criteria.yaml"), ConfigError, "criteria.yaml:2:3: benchmarks.brt: is not"),
    ],
)
def test_what_cannot_be_rehearsed_is_one_line(
    invoke: Invoke, argv: tuple[str, ...], error: type[MilabenchError], words: str
) -> None:
    Path("criteria.yaml").write_text("benchmarks:\n  brt: {minimum: 0.9 x reference}\n")
    with pytest.raises(error) as caught:
        invoke(*argv)
    assert words in str(caught.value)


def test_criteria_from_a_file_decide(invoke: Invoke) -> None:
    Path("criteria.yaml").write_text("required: [bert]\nbenchmarks: {bert: {minimum: 2 x reference}}\n")
    found = json.loads(invoke("--noise", "cv=1%", "--criteria", "criteria.yaml", "--json").output)
    assert found["criteria"] == "criteria.yaml"
    fail = next(rate for rate in found["rates"]["acceptance of a good system"] if rate["name"] == "FAIL")
    assert fail["share"] == 1
