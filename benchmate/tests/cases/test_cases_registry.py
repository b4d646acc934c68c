"""Names, their order, and what cannot be registered."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest

from benchmate.cases.registry import BenchmarkCase, RegistrationError, Registry, State, register


def registered(name: str, subject: Any = None, **params: Any) -> list[str]:
    registry = Registry()
    registry.add(subject or Anything, name, params)
    return list(registry.cases)


class Anything:
    def run(self) -> None:
        """Nothing."""


def test_the_first_parameter_varies_slowest() -> None:
    names = registered("{task}/{batch}", task=["CoLA", "MNLI"], batch=[16, 32])
    assert names == ["CoLA/16", "CoLA/32", "MNLI/16", "MNLI/32"]


def test_a_template_is_one_of_str_format() -> None:
    assert registered("{batch:04d}/{rate}/{what}", batch=[8], rate=[1e-5], what=[None]) == ["0008/1e-05/None"]


def test_values_may_come_from_a_generator() -> None:
    assert registered("{n}", n=(n * n for n in range(3))) == ["0", "1", "4"]


def test_each_registration_is_a_family_and_each_of_its_cases_an_instance() -> None:
    registry = Registry()
    registry.add(Anything, "a", {})
    registry.add(Anything, "b/{n}", {"n": [1, 2]})
    assert [(case.family, case.instance) for case in registry.cases.values()] == [(0, 0), (1, 0), (1, 1)]


def test_a_filter_finds_its_pattern_anywhere_in_the_name() -> None:
    registry = Registry()
    registry.add(
        Anything,
        "RoBERTa/{kind}/{task}/{batch}",
        {"kind": ["B", "Q"], "task": ["MNLI", "MNLI-MM"], "batch": [16, 64]},
    )
    found = [case.name for case in registry.matching(re.compile("RoBERTa/.*/MNLI/(16|32)"))]
    assert found == ["RoBERTa/B/MNLI/16", "RoBERTa/Q/MNLI/16"]
    assert len(registry.matching(re.compile("MNLI/"), negated=True)) == 4


class WithBase(BenchmarkCase):
    def run(self) -> None:
        """Nothing."""


class Unfinished(BenchmarkCase):
    """Has no run."""


class Empty:
    """Has no run either."""


class Demanding:
    def __init__(self, model: str) -> None:
        """Cannot be made without."""

    def run(self) -> None:
        """Nothing."""


class Clashing:
    batch = 3

    def run(self) -> None:
        """Nothing."""


class Slotted:
    __slots__ = ("batch",)

    def run(self) -> None:
        """Nothing."""


def of_a_batch(batch: int) -> None:
    """Nothing."""


def of_a_state(state: State) -> None:
    """Nothing."""


@pytest.mark.parametrize("subject", [Anything, WithBase, of_a_state, lambda: None])
def test_classes_with_and_without_a_base_and_functions_are_cases(subject: Any) -> None:
    assert registered("x", subject) == ["x"]


def test_a_parameter_may_be_a_slot() -> None:
    assert registered("{batch}", Slotted, batch=[1]) == ["1"]


@pytest.mark.parametrize(
    ("name", "subject", "params", "said"),
    [
        ("A/{task}/{x}", Anything, {"task": ["a"]}, "no values for the field {x}. Add x=[...]"),
        ("A/{task}", Anything, {}, "no values for the field {task}. Add task=[...]"),
        ("A/{}", Anything, {"task": ["a"]}, "the field {} has no name"),
        ("A/{", Anything, {"task": ["a"]}, "A brace itself is written twice"),
        ("A/{task}", Anything, {"task": "CoLA"}, "taken letter by letter. Write task=['CoLA']"),
        ("A/{task}", Anything, {"task": 3}, "expected several values. Write task=[3]"),
        ("A/{task}", Anything, {"task": []}, "no values, so there would be no case"),
        ("A/{task}", Anything, {"task": ["a"], "n": [1, 2]}, "'A/a' comes out of the template twice: put {n} into it"),
        ("A/{n}", Anything, {"n": [1, 1]}, "give each value once"),
        ("A/{n:d}", Anything, {"n": ["x"]}, "'A/{n:d}' with {'n': 'x'}"),
        ("A/{batch}", of_a_state, {"batch": [1]}, "They have to agree"),
        ("A", of_a_batch, {}, "missing a required argument: 'batch'"),
        ("A/{run}", Anything, {"run": [1]}, "class Anything has an attribute run already"),
        ("A/{batch}", Clashing, {"batch": [1]}, "Rename the parameter"),
        ("A", Unfinished, {}, "class Unfinished has no method run"),
        ("A", Empty, {}, "class Empty has no method run"),
        ("A", Demanding, {}, "missing a required argument: 'model'"),
        ("A", 3, {}, "neither a function nor a class"),
    ],
)
def test_what_cannot_be_a_case_is_refused_with_its_place_and_a_way_out(
    name: str, subject: Any, params: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    with pytest.raises(RegistrationError, match=re.escape(said)) as refused:
        register(name, **params)(subject)
    assert str(refused.value).startswith(f"{__file__}:")
    assert "\n" not in str(refused.value)


def test_a_name_is_taken_once() -> None:
    registry = Registry()
    registry.add(Anything, "x", {})
    with pytest.raises(ValueError, match="'x' is already registered"):
        registry.add(Anything, "{n}", {"n": ["y", "x"]})
    assert list(registry.cases) == ["x"]
