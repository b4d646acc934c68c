"""A reference keeps the answers of a run; equal devices with equal software must have the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from milabench.analysis.comparison_model import System
from milabench.analysis.rescoring import relative_to
from milabench.analysis.summary_io import summary_from_json
from milabench.analysis.summary_model import BenchSummary
from milabench.events.rundir import Run
from milabench.workflow.references import reference_of
from milabench.workflow.summaries import summary_of
from tests.recorded_run import Recorded, data, rates, record

GOOD = [float(number).hex() for number in range(10)]
OTHER_FROM_7 = [*GOOD[:6], *((float.fromhex(value) + 0.5).hex() for value in GOOD[6:])]
TORCH = "torch 2.13.0, CUDA 13.0"


def recorded(
    base: Path, losses: list[str], *, device: str = "H200", software: str = TORCH, again: list[str] | None = None
) -> Run:
    """A run of one process, and what it answered."""
    answers = {"device": device, "software": software, "first": losses, "again": again or losses}
    return record(base, Recorded(events=(*rates(800, 800, 800), data(answers=answers))))


def a_run(base: Path, losses: list[str], **own: Any) -> System:
    run = recorded(base, losses, **own)
    return System(name=run.name, summary=summary_of(run), manifest=run.manifest)


def kept(base: Path, losses: list[str]) -> System:
    """The reference that `report --save-reference` writes of a run, read again."""
    value = reference_of(recorded(base, losses), "kept")
    return System(name="kept", summary=summary_from_json(value, value["manifest"]), manifest=value["manifest"])


def beside(run: System, reference: System) -> tuple[BenchSummary, tuple[str, str]]:
    """The benchmark beside the reference, and the last verdict on its answers."""
    (bench,) = relative_to(run, reference).benchmarks
    found = [check for check in bench.validations if check["check"] == "answers"][-1]
    return bench, (found["verdict"], found["message"])


def test_a_reference_keeps_the_answers_and_the_same_ones_pass(tmp_path: Path) -> None:
    reference = kept(tmp_path / "kept", GOOD)
    (bench,) = reference.summary.benchmarks
    assert [(own.device, own.software, list(own.losses)) for own in bench.answers] == [("H200", TORCH, GOOD)]
    bench, verdict = beside(a_run(tmp_path / "own", GOOD), reference)
    assert (bench.outcome, verdict) == ("passed", ("pass", ""))
    assert bench.ratio == pytest.approx(1)


def test_other_bits_on_an_equal_device_are_wrong_and_the_number_is_not_compared(tmp_path: Path) -> None:
    bench, (word, message) = beside(a_run(tmp_path / "own", OTHER_FROM_7), kept(tmp_path / "kept", GOOD))
    assert (bench.outcome, bench.validity, bench.ratio) == ("failed", "invalid", None)
    assert "wrong" in bench.doubts
    assert (word, message) == ("fail", "H200 differs from the reference: its loss from step 7 on")
    assert [(failure.why, failure.detail) for failure in bench.failures] == [("wrong", message)]


@pytest.mark.parametrize(
    ("own", "why"),
    [
        ({"device": "B200"}, "they are of H200, and this is B200"),
        ({"software": "torch 2.14.0"}, f"they are of {TORCH}, and this is torch 2.14.0"),
    ],
)
def test_another_device_or_other_software_is_not_compared(tmp_path: Path, own: dict[str, str], why: str) -> None:
    bench, verdict = beside(a_run(tmp_path / "own", OTHER_FROM_7, **own), kept(tmp_path / "kept", GOOD))
    assert (bench.outcome, "wrong" in bench.doubts) == ("passed", False)
    assert verdict == ("warn", f"not compared with the reference's answers: {why}")


def test_what_does_not_repeat_itself_is_not_kept(tmp_path: Path) -> None:
    (bench,) = a_run(tmp_path, GOOD, again=OTHER_FROM_7).summary.benchmarks
    assert bench.answers == ()
