"""Shapes are checked at once, and looked through for the place of what does not fit only where something does not."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milabench.events.shapes import (
    ABOVE_ZERO,
    FILE,
    JOURNAL_SHAPE,
    MANIFEST_SHAPE,
    NOT_NEGATIVE,
    Required,
    _check_of,
    _misfits,
    require_shape,
)

KEYS = st.sampled_from("abc")
LEAVES = st.sampled_from((str, bool, int, float, FILE, ABOVE_ZERO, NOT_NEGATIVE))
SHAPES: st.SearchStrategy[Any] = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=1),
        st.dictionaries(KEYS, st.one_of(inner, inner.map(Required)), max_size=3),
        st.fixed_dictionaries({str: st.one_of(inner, inner.map(Required))}),
    ),
    max_leaves=6,
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from((None, True, 0, 1, -1, 2**63, 0.0, 0.5, -2.5, 1e60, float("nan"), "", "x", "a/b", "\n")),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=8,
)


@given(SHAPES, VALUES)
def test_nothing_that_has_another_shape_passes_the_check_in_c(shape: Any, value: Any) -> None:
    assert not (_check_of(shape).fits(value) and list(_misfits(value, shape, "")))


@pytest.mark.parametrize(
    ("name", "is_file"),
    [("a.b c~1", True), ("é", True), ("", False), ("a/b", False), ("/", False), ("a\n", False), ("\x7f", False)],
)
def test_the_name_of_a_file_is_one_of_its_folder(name: str, is_file: bool) -> None:
    with contextlib.nullcontext() if is_file else pytest.raises(ValueError, match="not the name of a file"):
        require_shape({"files": {"step": name}}, MANIFEST_SHAPE)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"t": "now"}, "t is 'now', not a number"),
        ({"attempt": True}, "attempt is True, not a whole number"),
        ({"nodes": [{"name": "a", "host": None}]}, "nodes.0.host is None, not a text"),
        ({"clocks": {"a": {"ahead_s": []}}}, "clocks.a.ahead_s is [], not a number"),
    ],
)
def test_what_does_not_fit_is_named_with_its_place(entry: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said.replace("[", r"\[")):
        require_shape(entry, JOURNAL_SHAPE)
