"""A config key is declared once, on its class: parser, default, JSON Schema and reference page follow from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

import pytest

from milabench.config.kinds import INVALID, Number, ValueParser, extra_keys, key, keys_of, record_of
from milabench.config.problems import Problems
from milabench.config.schema import REDUCTIONS, Method, MetricConfig, ValidationKeys
from milabench.config.source_map import SourceLocation
from milabench.config.yaml_reader import parse_document


@dataclass(frozen=True, slots=True, kw_only=True)
class Oven:
    """Nothing that milabench has."""

    name: str = key("What it is called.")
    label: str = key("What stands on it; its name by default.", default="", same_as="name")
    degrees: Annotated[float, Number(at_least=0, expected="a temperature")] = key("How hot.", default=180, alias="temp")
    mode: Literal["fan", "grill"] | None = key("How it heats.", default=None)
    racks: tuple[int, ...] = key("Which are used.", default=(2,))
    extra: Mapping[str, Any] = extra_keys()


def parse(text: str) -> tuple[Any, list[str]]:
    problems = Problems()
    node = parse_document(text, SourceLocation("oven.yaml", "")).root
    value = record_of(Oven).parse(node, "oven", ValueParser(problems, ""))
    return value, [str(problem) for problem in problems.all()]


def test_a_declared_key_is_parsed_by_its_annotation_and_has_its_default() -> None:
    assert parse("name: a") == (Oven(name="a", label="a", degrees=180, mode=None, racks=(2,)), [])
    assert parse("{name: a, label: b, temp: 90, mode: fan, racks: 1}") == (
        Oven(name="a", label="b", degrees=90, mode="fan", racks=(1,)),
        [],
    )


def test_a_removed_setting_of_a_check_names_what_there_is_instead() -> None:
    problems = Problems()
    node = parse_document("{rate: {drift: 0.05}}", SourceLocation("oven.yaml", "")).root
    keys_of(ValidationKeys).parse(node, "a.validation", ValueParser(problems, ""))
    (problem,) = map(str, problems.all())
    assert "a.validation.rate: expected true or false, got a mapping. `drift` was removed" in problem
    assert "`precision`" in problem


def test_the_key_itself_wins_over_its_alias() -> None:
    assert parse("{name: a, degrees: 1, temp: 2}")[0].degrees == 1


def test_other_keys_are_kept_unless_they_are_a_slip() -> None:
    assert parse("{name: a, colour: red}")[0].extra == {"colour": "red"}
    _, problems = parse("{name: a, degres: 1}")
    assert problems == ["oven.yaml:1:11: oven: unknown key 'degres'. Did you mean 'degrees'?"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{}", "oven.yaml:1:1: oven: the key 'name' is missing"),
        ("{name: a, degrees: -1}", "oven.degrees: expected a temperature that is at least 0, got -1"),
        ("{name: a, mode: fam}", "oven.mode: expected one of fan, grill, got 'fam'. Did you mean 'fan'?"),
        ("{name: a, racks: [x]}", "oven.racks.0: expected a whole number, got 'x'"),
    ],
)
def test_a_wrong_value_is_a_problem_with_its_place(text: str, problem: str) -> None:
    value, problems = parse(text)
    assert value is INVALID and len(problems) == 1 and problem in problems[0]


def test_the_json_schema_follows_from_the_declaration() -> None:
    schema = record_of(Oven).json_schema()
    assert list(schema["properties"]) == ["name", "label", "temp", "degrees", "mode", "racks"]
    assert schema["required"] == ["name"] and schema["additionalProperties"] is True
    assert schema["properties"]["degrees"]["anyOf"][0]["anyOf"][0] == {"type": "number", "minimum": 0}


def test_a_declaration_says_every_word_once() -> None:
    keys = record_of(MetricConfig).keys
    assert keys["reduce"].kind.expected == "one of " + ", ".join(REDUCTIONS)
    assert get_args(Method)[0] == "per_gpu"
