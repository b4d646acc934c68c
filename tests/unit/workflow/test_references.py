"""Reference results: made of a run without what identifies its machine, and what other runs are held beside."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from jsonschema import Draft202012Validator

from milabench.cli import compare, report
from milabench.errors import NothingSelected, RecordError
from milabench.events.rundir import Run
from milabench.suite_check.schemas import schema_file
from milabench.workflow import report_inputs
from milabench.workflow.report_inputs import read_reference, shipped_references
from tests.recorded_run import SYSTEM, Recorded, message, rates, record

SHAPE = (1.0, 1.01, 0.99)
PRIVATE = ("secret-host", "192.0.2.77", "GPU-0123456789", "joe.bloggs", "/home/", "5e51a1", "0000:17:00.0", "s3cret")


def machine() -> dict[str, Any]:
    (node,) = SYSTEM["nodes"]
    device = {"index": 0, "uuid": "GPU-0123456789", "name": "H100", "arch": "cuda", "memory_MiB": 81559}
    details = {"user": "joe.bloggs", "addresses": ["192.0.2.77"], "boot": "5e51a1", "serial": "s3cret-serial"}
    return {
        "arch": "cuda",
        "nodes": [{**node, "name": "secret-host", "hostname": "secret-host", "devices": [device], "details": details}],
    }


def made(base: Path, name: str, level: float = 100.0, **more: Any) -> Run:
    """A run on a machine with names, whose digits was given these arguments."""
    argv = more.pop("argv", {"--batch": 32})
    steps = [
        Recorded(
            node="secret-host",
            repeat=at,
            events=(*rates(*[level * each] * 5), message("on secret-host as joe.bloggs")),
            stderr="secret-host",
        )
        for at, each in enumerate(SHAPE)
    ]
    suite = {"digits": {"argv": argv, "definition": "/home/joe.bloggs/digits", "weight": 1.0}}
    manifest = {
        "system": machine(),
        "suite": suite,
        "cwd": "/home/joe.bloggs/work",
        "suite_file": "/home/joe.bloggs/suite.yaml",
        "options": {"base": str(base)},
        **more,
    }
    return record(base, *steps, name=name, manifest=manifest)


def fits_the_schema(file: Path) -> None:
    """A reference result is a report, also for programs of others that read it."""
    Draft202012Validator(json.loads(schema_file("report").read_text())).validate(json.loads(file.read_text()))


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "references"
    folder.mkdir()
    monkeypatch.setattr(report_inputs, "REFERENCES", folder)
    return folder


@pytest.fixture
def invoke(tmp_path: Path) -> Callable[..., Result]:
    def run(command: Any, *argv: str | Path) -> Result:
        return CliRunner().invoke(
            command, [*map(str, argv), "--base", str(tmp_path)], standalone_mode=False, catch_exceptions=False
        )

    return run


def test_a_reference_has_nothing_that_identifies_its_machine_or_owner(
    tmp_path: Path, shipped: Path, invoke: Callable[..., Result]
) -> None:
    made(tmp_path, "mine")
    said = invoke(report.command, "mine", "--save-reference", shipped / "h100.json")
    assert "1 x H100" in said.stderr
    text = (shipped / "h100.json").read_text()
    assert [word for word in PRIVATE if word in text] == [] and str(tmp_path) not in text
    fits_the_schema(shipped / "h100.json")
    source = read_reference("h100")
    (bench,) = source.summary.benchmarks
    assert (bench.replicates, bench.perf, bench.validity) == (3, pytest.approx(100.0, rel=1e-3), "valid")


@pytest.mark.parametrize(
    "argument",
    ["/home/joe.bloggs/data", "/gpfs/x", "a=/data", "secret-host:80", "x,192.0.2.77", "~/data", "of joe.bloggs"],
)
def test_a_run_whose_arguments_name_its_machine_becomes_none(
    tmp_path: Path, shipped: Path, invoke: Callable[..., Result], argument: str
) -> None:
    made(tmp_path, "mine", argv={"--data": argument})
    with pytest.raises(RecordError, match="cannot become a reference"):
        invoke(report.command, "mine", "--save-reference", shipped / "h100.json")
    assert list(shipped.iterdir()) == []


@pytest.mark.parametrize("argument", ["{milabench_data}/x", "/dev/shm", "https://example.org/a", "1/2"])
def test_what_every_machine_has_may_be_published(
    tmp_path: Path, shipped: Path, invoke: Callable[..., Result], argument: str
) -> None:
    made(tmp_path, "mine", argv={"--data": argument, "--below": f"{tmp_path}/data/x"})
    invoke(report.command, "mine", "--save-reference", shipped / "h100.json")
    assert read_reference("h100").manifest["suite"]["digits"]["argv"]["--below"] == "/base/data/x"


def test_a_first_run_stands_beside_a_shipped_reference_of_its_kind(
    tmp_path: Path, shipped: Path, invoke: Callable[..., Result]
) -> None:
    made(tmp_path, "old")
    invoke(report.command, "old", "--save-reference", shipped / "h100.json")
    made(tmp_path, "new", 200.0)
    for form in ("brief", "text", "markdown", "html"):
        said = invoke(report.command, "new", "--format", form).stdout
        assert "h100 (1 x H100, milabench 2.0.0" in said and "x reference" in said
    # A program gets what it asked for.
    alone = json.loads(invoke(report.command, "new", "--json").stdout)
    assert alone["score"]["reference"] is None
    for name in ("h100", "reference:h100"):
        found = json.loads(invoke(report.command, "new", "--json", "--reference", name).stdout)
        assert found["score"]["value"] == pytest.approx(2.0)
        assert found["benchmarks"][0]["reference_validity"] == "valid"
    assert "x reference" not in invoke(report.command, "new", "--reference", "none").stdout
    assert "2.000 times as fast as reference:h100" in invoke(compare.command, "reference:h100", "new").stdout


@pytest.mark.parametrize("more", [{"argv": {"--batch": 64}}, {"suite": {}}, {"system": {**machine(), "arch": "rocm"}}])
def test_what_did_other_or_unknown_work_or_ran_on_other_devices_stands_beside_none(
    tmp_path: Path, shipped: Path, invoke: Callable[..., Result], more: dict[str, Any]
) -> None:
    made(tmp_path, "old")
    invoke(report.command, "old", "--save-reference", shipped / "h100.json")
    made(tmp_path, "new", 200.0, **more)
    assert "x reference" not in invoke(report.command, "new").stdout


def test_an_unknown_reference_names_those_there_are(
    tmp_path: Path, shipped: Path, invoke: Callable[..., Result]
) -> None:
    made(tmp_path, "old")
    invoke(report.command, "old", "--save-reference", shipped / "h100.json")
    with pytest.raises(NothingSelected, match="Known: h100"):
        invoke(compare.command, "old", "reference:h200")
    for name in ("reference:../old", "reference:"):
        with pytest.raises(NothingSelected, match="Known: h100"):
            invoke(compare.command, "old", name)


def test_what_is_shipped_can_be_read_and_says_how_valid_it_is() -> None:
    assert shipped_references() != []
    for name in shipped_references():
        source = read_reference(name)
        measured = [bench for bench in source.summary.benchmarks if bench.perf is not None]
        assert len(measured) >= 6 and all(bench.validity and bench.replicates >= 3 for bench in measured)
        assert {bench.bench for bench in measured} <= set(source.manifest["suite"])
        fits_the_schema(report_inputs.REFERENCES / f"{name}.json")
