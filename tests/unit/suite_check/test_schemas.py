"""What is shipped and what is written, held against the JSON Schemas by a validator that is not ours."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from jsonschema import Draft202012Validator, ValidationError

from milabench.cli.verbs import verbs
from milabench.procurement.offer import offer_problems, parse_offer
from milabench.procurement.tender import parse_tender
from milabench.scaffold.new_benchmark import copy_shipped, create_benchmark
from milabench.suite_check.schemas import DIALECT, SCHEMAS, schema_file
from milabench.workflow.files import ROOT

SUITES = [*(ROOT / "config").glob("*.yaml"), *(ROOT / "tests" / "suite").glob("*.yaml")]
SUITES += [ROOT / "tests" / "truth" / "suite.yaml"]
by_suite = pytest.mark.parametrize("suite", SUITES, ids=[path.relative_to(ROOT).as_posix() for path in SUITES])
RUNS = ROOT / "tests" / "runs"


def validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(json.loads(schema_file(name).read_text()))


def written(*argv: str | Path) -> Any:
    """The JSON that a command prints."""
    done = CliRunner().invoke(verbs, [*map(str, argv)], standalone_mode=False, catch_exceptions=False)
    return json.loads(done.stdout)


def schema_named_by(suite: Path) -> Path:
    """The schema that an editor would find for a suite."""
    head = re.match(r"# yaml-language-server: \$schema=(.*)\n", suite.read_text())
    assert head, f"{suite} does not begin with its schema"
    return (suite.parent / head[1]).resolve()


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_one_of_its_dialect_and_says_what_it_is(name: str) -> None:
    schema = json.loads(schema_file(name).read_text())
    assert (schema["$schema"], schema["$id"]) == (DIALECT, f"urn:milabench:schema:{name}")
    Draft202012Validator.check_schema(schema)
    page = (ROOT / "docs" / "reference" / "protocol.md").read_text()
    assert f"`{schema['$id']}`" in page


@by_suite
def test_a_shipped_suite_fits_the_schema_that_it_names(suite: Path) -> None:
    assert schema_named_by(suite) == schema_file("suite")
    validator("suite").validate(yaml.safe_load(suite.read_text()))


def test_the_suite_of_the_template_fits_the_schema() -> None:
    template = ROOT / "benchmarks" / "_template" / "suite.yaml"
    assert template.read_text().startswith("# yaml-language-server: $schema=@SCHEMA@\n")
    validator("suite").validate(yaml.safe_load(template.read_text().replace("@NAME@", "mine")))


def test_a_new_benchmark_has_its_schema_also_where_nothing_else_is(tmp_path: Path) -> None:
    folder = create_benchmark("mine", tmp_path)
    assert schema_named_by(folder / "suite.yaml") == folder / "suite.schema.json"
    assert (folder / "suite.schema.json").read_bytes() == schema_file("suite").read_bytes()
    validator("suite").validate(yaml.safe_load((folder / "suite.yaml").read_text()))


def test_a_new_benchmark_beside_copies_of_what_is_shipped_uses_their_schema(tmp_path: Path) -> None:
    copy_shipped(tmp_path)
    folder = create_benchmark("mine", tmp_path / "benchmarks")
    assert schema_named_by(folder / "suite.yaml") == tmp_path / "config" / "schemas" / "suite.schema.json"
    assert schema_named_by(tmp_path / "config" / "quickstart.yaml").is_file()
    assert not (folder / "suite.schema.json").exists()


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    return [Path(shutil.copytree(RUNS / name, tmp_path / "runs" / name)) for name in ("system_a", "system_b")]


def test_reports_fit_their_schema_and_name_it(runs: list[Path]) -> None:
    a, b = runs
    report = validator("report")
    for reported in (written("report", a, "--json"), written("report", a, b, "--json")):
        assert reported["$schema"] == report.schema["$id"]
        report.validate(reported)
    report.validate(json.loads((a / "summary.json").read_text()))


def test_comparisons_fit_their_schema_and_name_it(runs: list[Path]) -> None:
    comparison = validator("comparison")
    for more in ((), ("--why",)):
        compared = written("compare", *runs, "--json", *more)
        assert compared["$schema"] == comparison.schema["$id"]
        comparison.validate(compared)


def test_a_plan_fits_its_schema() -> None:
    suite = ROOT / "tests" / "suite" / "imaginary.yaml"
    system = ROOT / "tests" / "suite" / "two_nodes_of_8.yaml"
    plan = written("plan", "run", "--json", "--config", suite, "--system", system)
    assert plan["steps"]
    validator("plan").validate(plan)


@pytest.mark.parametrize(
    ("name", "file"), [("report", "report.json"), ("comparison", "compare.json"), ("plan", "plan_run.json")]
)
def test_the_golden_files_fit_their_schemas(name: str, file: str) -> None:
    """They hold failures, skips and doubts, which the recorded runs lack."""
    validator(name).validate(json.loads((ROOT / "tests" / "golden" / file).read_text()))


def lines_of(path: Path) -> Iterator[Any]:
    yield from map(json.loads, path.read_text().splitlines())


def test_what_a_run_wrote_fits_the_schemas() -> None:
    manifest, journal, record = map(validator, ("manifest", "journal", "record"))
    for run in (RUNS / "system_a", RUNS / "system_b"):
        manifest.validate(json.loads((run / "manifest.json").read_text()))
        for line in lines_of(run / "journal.jsonl"):
            journal.validate(line)
        for path in run.glob("*.data"):
            for line in lines_of(path):
                record.validate(line)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("suite", {"system": {"arch": "cdua"}}),
        ("suite", {"a": {"weight": "x"}}),
        ("acceptance", {"benchmarks": {"a": {"minimum": 800}}}),
        ("tender", {"metric": "ssi"}),
        ("tender", {"benchmarks": {"a": {"tiers": ["other"]}}}),
        ("offer", {"nodes": 4}),
        ("report", {"schema": 1}),
        ("report", {"schema": 1, "runs": [{}]}),
        ("comparison", {"schema": 1, "comparison": {}}),
        ("plan", {"steps": [{"bench": "a"}]}),
        ("manifest", {"files": {"a": "../a"}}),
        ("journal", {"t": "now"}),
        ("record", {"event": "end", "data": {"outcome": "perhaps"}}),
    ],
)
def test_a_schema_refuses_what_is_wrong(name: str, value: Any) -> None:
    with pytest.raises(ValidationError):
        validator(name).validate(value)


def test_criteria_of_the_pages_fit_their_schema() -> None:
    page = (ROOT / "docs" / "how-to" / "accept-a-system.md").read_text()
    (criteria,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    validator("acceptance").validate(yaml.safe_load(criteria))


def test_tender_and_offer_of_the_page_fit_their_schemas_and_each_other() -> None:
    page = (ROOT / "docs" / "procurement.md").read_text()
    tender, offer = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)[:2]
    validator("tender").validate(yaml.safe_load(tender))
    validator("offer").validate(yaml.safe_load(offer))
    answered = parse_offer(offer.encode(), "offer.yaml")
    assert offer_problems(answered, parse_tender(tender.encode(), "procurement.yaml")) == ()
