"""Weights by profile: which benchmarks count for whom, by the tags that the suite gives them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from milabench.workflow.files import shipped_names
from milabench.workflow.report_inputs import WEIGHTS, read_profile
from tests.recorded_run import Recorded, rates, record

Milabench = Callable[..., Any]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    def step(bench: str, weight: float, *tags: str) -> Recorded:
        return Recorded(bench=bench, weight=weight, config={"tags": list(tags)}, events=rates(2.0))

    steps = (
        step("sft", 2, "language", "training"),
        step("resnet", 1, "vision", "training"),
        step("decode", 1, "language", "inference"),
        step("pna", 1, "graph", "training"),
        step("mace", 3, "science", "graph", "training"),
        step("flops", 1, "machine", "micro"),
    )
    suite = {"absent": {"weight": 4.0, "tags": ["science", "training"]}}
    skipped = [{"bench": "absent", "why": "needs an accelerator"}]
    return record(tmp_path, *steps, skipped=skipped, manifest={"suite": suite}).path


def weights(milabench: Milabench, *words: str) -> dict[str, float]:
    said = milabench("report", "--json", *words)
    assert said.code == 0, said.err
    return {bench["bench"]: bench["weight"] for bench in json.loads(said.out)["benchmarks"] if bench["weight"]}


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        ("training", {"sft": 2, "resnet": 1, "pna": 1, "mace": 3, "absent": 4}),
        ("inference", {"decode": 1}),
        ("science", {"pna": 1, "mace": 3, "absent": 4}),
        ("machine", {"flops": 1}),
    ],
)
def test_a_profile_counts_the_benchmarks_of_its_tags_by_their_own_weight(
    milabench: Milabench, run: Path, profile: str, expected: dict[str, float]
) -> None:
    assert weights(milabench, str(run), "--weights", profile) == expected


def test_a_suite_without_weights_is_weighed_by_the_profile_alone(milabench: Milabench, tmp_path: Path) -> None:
    tags = {"decode": "inference", "embed": "inference", "sft": "training", "flops": "machine"}
    steps = [Recorded(bench=b, weight=0.0, config={"tags": [tag]}, events=rates(2.0)) for b, tag in tags.items()]
    run = record(tmp_path, *steps).path
    assert weights(milabench, str(run), "--weights", "inference") == {"decode": 1, "embed": 1}
    score = json.loads(milabench("report", "--json", str(run), "--weights", "inference").out)["score"]
    assert (score["complete"], score["weighted"]) == ([2, 2], True)


def test_what_did_not_run_is_missing_from_the_score(milabench: Milabench, run: Path) -> None:
    score = json.loads(milabench("report", "--json", str(run), "--weights", "science").out)["score"]
    assert score["complete"] == [2, 3]


def test_a_file_gives_weights_by_tag_and_by_name(milabench: Milabench, run: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("tags: {language: 1, training: 10}\nweights: {resnet: 5}\n")
    assert weights(milabench, str(run), "--weights", str(file)) == {
        "sft": 20,
        "resnet": 5,
        "decode": 1,
        "pna": 10,
        "mace": 30,
        "absent": 40,
    }


def test_a_comparison_has_the_weights_of_the_profile(milabench: Milabench, run: Path) -> None:
    said = milabench("compare", str(run), str(run), "--weights", "inference", "--json")
    assert said.code == 0, said.err
    (index,) = json.loads(said.out)["comparison"]["indices"]
    assert index["complete"] == [1, 1]


def test_the_score_and_the_index_say_whose_weights_they_have(milabench: Milabench, run: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("{sft: 2, mace: 1}")
    page = tmp_path / "page.html"
    for words, name in (("training", "the profile training"), (str(file), "mine.yaml")):
        given = (str(run), "--reference", str(run), "--weights", words)
        assert f"mean by the weights of {name} over " in milabench("report", *given).out
        full = milabench("report", "--full", *given).out
        assert f"(weighted geometric mean by the weights of {name}, relative to {run.name}" in full
        assert json.loads(milabench("report", "--json", *given).out)["score"]["weights_of"] == name
        assert milabench("report", *given, "-o", str(page)).code == 0
        assert f"by the weights of {name}" in page.read_text()
        alone = milabench("report", str(run), "--reference", "none", "--weights", words).out
        assert (
            f"score: none without a reference: `milabench report --reference RUN` (by the weights of {name}; " in alone
        )
        beside = (str(run), str(run), "--weights", words)
        (index,) = json.loads(milabench("compare", *beside, "--json").out)["comparison"]["indices"]
        assert index["weights_of"] == name
        assert f"benchmarks by the weights of {name}" in " ".join(milabench("compare", *beside).out.split())
        assert milabench("compare", *beside, "-o", str(page)).code == 0
        assert f"by the weights of {name}" in page.read_text()
    assert "weights_of" not in json.loads(milabench("report", "--json", str(run)).out)["score"]


@pytest.mark.parametrize("verb", ["report", "compare"])
def test_a_name_that_is_no_benchmark_is_refused_and_a_tag_that_is_none_is_told(
    milabench: Milabench, run: Path, tmp_path: Path, verb: str
) -> None:
    file = tmp_path / "mine.yaml"
    here = (verb, *[str(run)] * (2 if verb == "compare" else 1), "--weights", str(file))
    file.write_text("weights: {sft: 2, resnt: 1}\nwork: {sft: 1, xyz: 2}\n")
    said = milabench(*here)
    assert said.code == 2
    assert said.err.splitlines()[-1] == (
        "error: --weights: its weights name 'resnt', which is not a benchmark of this run. Did you mean 'resnet'?"
    )
    file.write_text("weights: {sft: 2}\nwork: {sft: 1, xyz: 2}\n")
    told = "--weights: its work name 'xyz', which is not a benchmark of this run. Correct it, or leave it out"
    assert milabench(*here).err.rstrip().endswith(told)
    file.write_text("tags: {training: 2, sience: 1}\n")
    said = milabench(*here)
    assert said.code == 0
    assert "warning: --weights: none of the benchmarks here has the tag 'sience'. Did you mean 'science'?" in said.err
    # A shipped profile is for every suite, whichever of its tags that has.
    assert "has the tag" not in milabench(*here[:-1], "science").err


def test_an_unknown_profile_is_told_with_those_that_there_are(milabench: Milabench, run: Path) -> None:
    said = milabench("report", str(run), "--weights", "trainings")
    assert said.code == 2
    assert "trainings: neither a file here nor a shipped weight profile. Did you mean 'training'?" in said.err


def test_a_profile_that_fits_no_benchmark_is_told(milabench: Milabench, tmp_path: Path) -> None:
    run = record(tmp_path, Recorded(events=rates(2.0)))
    said = milabench("report", str(run.path), "--weights", "science")
    assert said.code == 2
    assert "--weights: none of the benchmarks here has a tag science or graph" in said.err


def test_a_file_of_the_name_of_a_profile_is_not_guessed(milabench: Milabench, run: Path, tmp_path: Path) -> None:
    (tmp_path / "training").write_text("sft: 1\n")
    said = milabench("report", str(run), "--weights", "training")
    assert said.code == 2
    assert "is a file here and a shipped weight profile" in said.err


@pytest.mark.parametrize("name", shipped_names(WEIGHTS))
def test_the_help_of_both_verbs_names_every_shipped_profile(milabench: Milabench, name: str) -> None:
    assert read_profile(Path(name)).tags
    for verb in ("report", "compare"):
        assert name in milabench(verb, "--help-all").out
