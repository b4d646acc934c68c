"""What a fast writer writes is canonical, and settings that are shown as they are have nothing to mask."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milabench.config.source_map import WrittenFloat
from milabench.plan.canonical import canonical_json, digest, fast_writer, is_plain, shown_json
from milabench.plan.model import Plan, Step
from milabench.redaction import forget, learn, mask_settings
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
    if is_plain(value):
        try:
            written = fast_writer()(value)
        except UnicodeEncodeError:  # letters that UTF-8 does not have
            return
        assert written == canonical_json(value)


@examples(300)
@given(st.dictionaries(WORDS, VALUES, max_size=5))
def test_settings_that_are_shown_as_they_are_have_nothing_to_mask(value: dict[str, Any]) -> None:
    forget()
    learn(["known-secret-1"])
    try:
        for write in (canonical_json, fast_writer()):
            data = shown_json(value, write)
            if data is not None:
                assert data == canonical_json(mask_settings(value))
    finally:
        forget()


@pytest.mark.parametrize("number", [1e15, 1e16, 1e-5, 5e-324, float("nan"), float("inf"), WrittenFloat("1e5")])
def test_a_number_that_writers_write_differently_is_not_plain(number: float) -> None:
    assert not is_plain({"a": [number]})
    assert is_plain({"a": [0.0, -0.5, 1e-4, 600.0, 1e14, 10**40, True, None, ("x",)]})


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
