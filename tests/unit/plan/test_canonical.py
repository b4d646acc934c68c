"""What a fast writer writes is canonical, and settings that are shown as they are have nothing to mask."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milabench.config.source_map import WrittenFloat
from milabench.plan import model
from milabench.plan.canonical import PlainSettings, canonical_json, digest, fast_writer, is_plain_number
from milabench.plan.model import PhaseName, Plan, Step
from milabench.redaction import forget, is_secret_name, learn, mask_settings, may_hold_secret
from tests.examples import examples

WORDS = st.one_of(
    st.text(max_size=6),
    st.sampled_from(
        [
            "--token",
            "--lr",
            "token",
            "HF_TOKEN",
            "PATH",
            "https://me:pw@host/x",
            "a@b",
            "known-secret-1",
            "://\x01@h",
            "{}",
        ]
    ),
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), WORDS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(WORDS, inner, max_size=4)),
    max_leaves=12,
)


@examples(300)
@given(st.dictionaries(WORDS, VALUES, max_size=5))
def test_a_fast_writer_is_canonical_for_plain_values(value: dict[str, Any]) -> None:
    if PlainSettings().holds(value):
        try:
            written = fast_writer()(value)
        except UnicodeEncodeError:  # letters that UTF-8 does not have
            return
        assert written == canonical_json(value)


@examples(300)
@given(st.dictionaries(WORDS, VALUES, max_size=5))
def test_plain_settings_without_a_known_secret_have_nothing_to_mask(value: dict[str, Any]) -> None:
    forget()
    learn(["known-secret-1"])
    try:
        if PlainSettings().holds(value) and not may_hold_secret(canonical_json(value)):
            assert mask_settings(value) == value
    finally:
        forget()


@examples(300)
@given(st.lists(st.dictionaries(WORDS, VALUES, max_size=3), max_size=4), st.dictionaries(WORDS, VALUES, max_size=3))
def test_what_was_plain_before_is_plain_again_and_nothing_else(
    values: list[dict[str, Any]], part: dict[str, Any]
) -> None:
    asked = [*values, *({"name": number, "part": part, **value} for number, value in enumerate(values)), *values]
    plain = PlainSettings()
    assert [plain.holds(value) for value in asked] == [PlainSettings().holds(value) for value in asked]


@pytest.mark.parametrize("number", [1e15, 1e16, 1e-5, 5e-324, float("nan"), float("inf"), WrittenFloat("1e5")])
def test_a_number_that_writers_write_differently_is_not_plain(number: float) -> None:
    assert not PlainSettings().holds({"a": [number]})
    assert isinstance(number, WrittenFloat) or not is_plain_number(number)
    assert PlainSettings().holds({"a": [0.0, -0.5, 1e-4, 600.0, 1e14, 10**40, True, None, ("x",)]})


ANY_OF = {
    str: WORDS,
    str | None: st.none() | WORDS,
    int: st.integers(),
    bool: st.booleans(),
    float | None: st.none() | st.floats(),
    tuple[str, ...]: st.lists(WORDS, max_size=4).map(tuple),
    tuple[int, ...]: st.lists(st.integers(), max_size=2).map(tuple),
    Mapping[str, str]: st.dictionaries(WORDS, WORDS, max_size=3),
    Mapping[str, Any]: st.dictionaries(WORDS, VALUES, max_size=4),
    PhaseName: st.just("run"),
}
"""Values of each type that a field of a step has; whoever adds one looks at what `_ShownSteps` looks at."""
NOT_HASHED = {"id", "stem", "monitor", "job", "one_job", "keep_step_dir"}


@examples(300)
@given(st.lists(st.builds(Step, **{name: ANY_OF[kind] for name, kind in get_type_hints(Step).items()}), max_size=4))
def test_whatever_a_step_holds_it_is_hashed_and_shown_as_if_it_were_alone_and_masked(steps: list[Step]) -> None:
    forget()
    learn(["known-secret-1"])
    try:
        hashes, shown = [], []
        for one in steps:
            env = {name: value for name, value in one.env.items() if name not in one.secret_env}
            values = {name: getattr(one, name) for name in get_type_hints(Step)} | {"env": env}
            left_out = NOT_HASHED if one.prerun else NOT_HASHED | {"prerun"}
            hashed = {name: value for name, value in values.items() if name not in left_out}
            hashes.append(hashlib.sha256(canonical_json(mask_settings(hashed))).hexdigest())
            shown.append(canonical_json(mask_settings(values) | {"hash": hashes[-1]}))
        for write in (canonical_json, fast_writer()):
            writer = model._ShownSteps(write)
            assert [writer.hash(one) for one in steps] == hashes
            assert [canonical_json({**writer.fields(one), "hash": writer.hash(one)}) for one in steps] == shown
        assert [canonical_json(one.to_json()) for one in steps] == shown
        assert Plan(phase="run", steps=tuple(steps)).hash == digest([hashes, []])
    finally:
        forget()


def test_no_field_of_a_step_has_the_name_of_a_secret() -> None:
    assert not any(is_secret_name(each.name) for each in fields(Step))


def step(number: int, **more: Any) -> Step:
    config = {"weight": 0.5, "options": {"rate": 1e-5 if number % 7 == 0 else 0.1, "name": "\u00e9"}, "tags": ["a"]}
    settings = {"argv": ("python", "main.py", "--n", str(number)), "env": {"A": "1", "HF_TOKEN": "x" * 9}} | more
    return Step(id=f"s{number}", bench="b", phase="run", config=config, secret_env=("HF_TOKEN",), **settings)


def test_a_long_plan_has_the_hashes_of_its_steps() -> None:
    steps = (
        *(step(number) for number in range(400)),
        step(1, argv=("x", "--password", "hunter2")),
        step(2, env={"URL": "http://me:pw@host"}),
        step(3, env={"A": "\udc80"}),
        step(4, prerun=("/bin/sh", "-c", "true")),
    )
    plan = Plan(phase="run", steps=steps)
    assert plan.hash == digest([[one.hash for one in steps], []])
    assert plan.to_json()["steps"] == [one.to_json() for one in steps]
    assert "hunter2" not in repr(plan.to_json()) and "xxxxxxxxx" not in repr(plan.to_json())


def test_hashes_of_earlier_versions_are_kept() -> None:
    # Recorded in run directories.
    expected = {
        0: "2eb74e4e69cae7587562c92b6fd7d678fce82ed4acbea6b491e1e230aee5625e",
        1: "8d9304570051a43eff577f2ccc1be70523d348d056227da2d32647ef2641386b",
    }
    assert {number: step(number).hash for number in expected} == expected
    masked = step(1, argv=("x", "--password", "hunter2"), prerun=("/bin/sh", "-c", "true"))
    assert masked.hash == "ab3292a846aee314ab2efa76b4ba3835b3a9ef2d9c6f94bb90f9cb0b5e4ea8f8"
