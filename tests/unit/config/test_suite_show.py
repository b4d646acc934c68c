"""Resolved YAML that reads back the same, where values come from, and the JSON Schema."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from milabench.config.interpolate import escaped
from milabench.config.read import read_suite
from milabench.config.schema import BENCHMARK, Suite
from milabench.config.show import benchmark_completions, explain, plain_benchmark, to_yaml
from milabench.config.source_map import SourceLocation, plain
from milabench.config.yaml_reader import parse_document
from milabench.errors import ConfigError
from milabench.suite_check.schema_docs import json_schema
from tests.examples import examples

SUITES = Path(__file__).resolve().parents[2] / "suite"


def imaginary() -> Suite:
    return read_suite([SUITES / "imaginary.yaml"], SUITES / "two_nodes_of_8.yaml")


def again(suite: Suite, folder: Path) -> Suite:
    path = folder / "shown.yaml"
    path.write_text(to_yaml(suite), encoding="utf-8")
    return read_suite([path], declared=lambda _: None)


def test_what_is_shown_reads_back_as_the_same_values(tmp_path: Path) -> None:
    suite = imaginary()
    shown = again(suite, tmp_path)
    assert (shown.benchmarks, shown.system, shown.multirun) == (suite.benchmarks, suite.system, suite.multirun)


KEYS = st.sampled_from(["--lr", "-n", "positional", "a b", "on", "8", "--", "--x=1", "é", "${x}", "key:", "a#b", "-"])
WORDS = st.one_of(
    st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\x00"), max_size=8),
    st.sampled_from(
        [
            "yes",
            "010",
            "1e3",
            "10:00",
            "null",
            "~",
            "a: b",
            "- x",
            "${x}",
            "\\${x}",
            "{gpu_count}",
            "#",
            "'",
            '"',
            "1_0",
        ]
    ),
)
SCALARS = st.one_of(WORDS, st.integers(-(10**6), 10**6), st.floats(), st.booleans(), st.none())
ARGUMENTS = st.dictionaries(
    KEYS, st.one_of(SCALARS, st.lists(st.one_of(WORDS, st.integers(0, 9), st.floats(allow_nan=False)), max_size=3))
)
DATA = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=6,
)


@examples(150)
@given(argv=ARGUMENTS, env=st.dictionaries(KEYS, WORDS), tags=st.lists(WORDS), data=st.dictionaries(KEYS, DATA))
def test_any_benchmark_that_is_shown_reads_back_as_the_same_values(
    tmp_path_factory: pytest.TempPathFactory, argv: Any, env: Any, tags: Any, data: Any
) -> None:
    folder = tmp_path_factory.mktemp("suite")
    path = folder / "s.yaml"
    content = {
        "a": {
            "definition": "d",
            "argv": argv,
            "env": env,
            "tags": tags,
            "voir": data,
            "matrix": {"x": [1]},
            "job": None,
        }
    }
    path.write_text(as_yaml(meant_as_text(content)), encoding="utf-8")
    suite = read_suite([path])
    shown = again(suite, folder)
    assert repr(plain_benchmark(shown.benchmarks["a"])) == repr(plain_benchmark(suite.benchmarks["a"]))


def meant_as_text(value: Any) -> Any:
    """The value, written so that none of its text is an interpolation."""
    if isinstance(value, dict):
        return {key: meant_as_text(item) for key, item in value.items()}
    if isinstance(value, list):
        return [meant_as_text(item) for item in value]
    return escaped(value) if isinstance(value, str) else value


def as_yaml(value: Any) -> str:
    """JSON is YAML, but for its numbers beyond all bounds and what counts as an interpolation."""
    text = json.dumps(value, ensure_ascii=True).replace("NaN", ".nan").replace("Infinity", ".inf")
    return re.sub(r"\\ud[89ab]..\\ud[c-f]..", lambda pair: json.loads(f'"{pair[0]}"'), text)


def test_a_choice_with_a_list_in_it_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("m: {matrix: {x: [[1, 2], [3]]}, job: {name: 'm{x[0]}', definition: d}}")
    suite = read_suite([path])
    assert again(suite, tmp_path).benchmarks == suite.benchmarks


def test_the_resolved_yaml_is_yaml_for_others_too() -> None:
    assert yaml.safe_load(to_yaml(imaginary()))["chat"]["client"]["argv"]["--num-prompts"].startswith("expr(")


def test_a_shown_suite_has_nothing_left_to_warn_about() -> None:
    assert parse_document(to_yaml(imaginary()), SourceLocation("s", "/")).warnings == ()


def test_a_benchmark_is_complete_as_json() -> None:
    bench = imaginary().benchmarks["chat"]
    data = json.loads(json.dumps(benchmark_completions(bench)))
    assert (data["name"], data["max_duration"], data["server"]["ready"]) == ("chat", 600, "8000")
    assert "origin" not in data


# --- explain -------------------------------------------------------------------------------------------------------


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Suite:
    monkeypatch.chdir(tmp_path)
    Path("base.yaml").write_text("_t:\n  definition: d\n  max_duration: 600\n  url: u/${name}\n")
    Path("s.yaml").write_text(
        "include: base.yaml\nv1.2:\n  inherits: _t\n  max_duration: 60\n  argv:\n    --lr: 1e-5\n"
    )
    return read_suite([Path("s.yaml")], overrides=["v1.2.max_duration=6"])


def test_explain_names_the_place_and_everything_that_was_replaced(suite: Suite) -> None:
    assert explain(suite, "v1.2.max_duration") == (
        "v1.2.max_duration = 6",
        "  set at --override 'v1.2.max_duration=6'",
        "  replaces 60, set at s.yaml:4:17",
        "  replaces 600, set at base.yaml:3:17",
    )


def test_explain_names_the_interpolations(suite: Suite) -> None:
    assert explain(suite, "v1.2.url") == (
        "v1.2.url = u/v1.2",
        "  set at base.yaml:4:8",
        "  written as 'u/${name}', in which ${name} was resolved",
    )


def test_explain_knows_defaults_keys_with_dashes_and_whole_benchmarks(suite: Suite) -> None:
    assert explain(suite, "v1.2.weight") == ("v1.2.weight = 0.0", "  built-in default")
    assert explain(suite, "v1.2.argv.--lr") == ("v1.2.argv.--lr = 1e-5", "  set at s.yaml:6:11")
    assert "v1.2.argv.--lr = 1e-5  (s.yaml:6:11)" in explain(suite, "v1.2")


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("v1.3.weight", "unknown benchmark in 'v1.3.weight'"),
        ("v1.2.wieght", "'v1.2.wieght' is not set. Did you mean 'weight'?"),
    ],
)
def test_explaining_what_is_not_there_is_an_error(suite: Suite, key: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        explain(suite, key)
    assert message in str(caught.value)


def test_explain_knows_the_system() -> None:
    assert explain(imaginary(), "system.gpu.count")[0] == "system.gpu.count = 8"


# --- JSON Schema ---------------------------------------------------------------------------------------------------


def test_the_schema_has_every_key_with_its_meaning() -> None:
    schema = json_schema()
    properties = schema["$defs"]["benchmark"]["properties"]
    assert set(BENCHMARK.keys) | {"job"} == set(properties)
    assert all("description" in one or "$ref" in one for one in properties.values())


def test_every_reference_in_the_schema_leads_somewhere() -> None:
    schema = json_schema()
    text = json.dumps(schema)
    for reference in {part.split('"')[0] for part in text.split('"$ref": "')[1:]}:
        here: Any = schema
        for step in reference.removeprefix("#/").split("/"):
            here = here[step]


@pytest.mark.parametrize("text", ["a: {weight: x}", "a: {plan: {method: nowhere}}", "system: {arch: cdua}"])
def test_the_schema_refuses_what_the_parser_refuses(text: str) -> None:
    value = plain(parse_document(text, SourceLocation("s", "/")).root)
    assert not Draft202012Validator(json_schema()).is_valid(value)
