"""Merging: what wins, what it remembers, and that the order of grouping does not matter."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milabench.config.source_map import (
    DELETED,
    Located,
    Mark,
    MergeError,
    Origins,
    SourceLocation,
    WrittenFloat,
    located,
    merge_documents,
    plain,
    settled,
)
from tests.examples import examples

SOURCE = SourceLocation("suite.yaml", "/suites")


def tree(value: Any, line: int = 1) -> Located:
    return located(value, Mark(SOURCE, line, 1))


def merged(*values: Any) -> Any:
    result = tree(values[0])
    for number, value in enumerate(values[1:], 2):
        result = merge_documents(result, tree(value, number))
    return plain(settled(result))


def test_a_mapping_merges_into_a_mapping_key_by_key() -> None:
    assert merged({"a": {"x": 1, "y": 2}}, {"a": {"y": 3}, "b": 4}) == {"a": {"x": 1, "y": 3}, "b": 4}


def test_a_list_replaces_a_list() -> None:
    assert merged({"a": [1, 2]}, {"a": [3]}) == {"a": [3]}


def test_append_concatenates() -> None:
    assert merged({"a": [1]}, {"a": {"append": [2]}}, {"a": {"append": [3]}}) == {"a": [1, 2, 3]}


def test_append_without_a_list_below_is_the_list() -> None:
    assert merged({"a": {"append": [1]}}) == {"a": [1]}
    assert merged({"a": None}, {"a": {"append": [1]}}) == {"a": [1]}


def test_append_to_text_is_refused_with_both_places() -> None:
    with pytest.raises(MergeError) as caught:
        merge_documents(tree({"k": {"a": "x"}}), tree({"k": {"a": {"append": [1]}}}, 7))
    assert str(caught.value.problem()).startswith("suite.yaml:7:1: k.a: append needs a list to append to, got 'x'")
    assert "set at suite.yaml:1:1" in str(caught.value.problem())


def test_delete_removes_a_key_and_what_lay_below_does_not_come_back() -> None:
    assert merged({"a": {"x": 1}, "b": 2}, {"a": DELETED}) == {"b": 2}
    assert merged({"a": {"x": 1}}, {"a": DELETED}, {"a": {"y": 2}}) == {"a": {"y": 2}}


def test_a_value_remembers_everything_that_it_replaced_nearest_first() -> None:
    node = merge_documents(merge_documents(tree({"a": 1}, 1), tree({"a": 2}, 2)), tree({"a": 3}, 3)).value["a"]
    assert [(old.value, old.mark.line) for old in node.replaced] == [(2, 2), (1, 1)]


def test_neither_tree_changes() -> None:
    low, high = tree({"a": {"x": 1}}), tree({"a": {"y": 2}})
    merge_documents(low, high)
    assert (plain(low), plain(high)) == ({"a": {"x": 1}}, {"a": {"y": 2}})


def test_a_float_with_an_exponent_is_a_number_that_prints_as_it_was_written() -> None:
    assert (WrittenFloat("6e-4"), str(WrittenFloat("6e-4")), f"{WrittenFloat('6e-4')}") == (0.0006, "6e-4", "6e-4")


KEYS = st.sampled_from(["a", "b", "c"])
SCALARS = st.one_of(st.none(), st.integers(0, 3), st.just(DELETED))
LISTS = st.lists(st.integers(0, 3), max_size=2)
VALUES = st.recursive(st.one_of(SCALARS, LISTS), lambda inner: st.dictionaries(KEYS, inner, max_size=3), max_leaves=6)


@examples(400)
@given(st.dictionaries(KEYS, VALUES), st.dictionaries(KEYS, VALUES), st.dictionaries(KEYS, VALUES))
def test_merging_is_associative_with_deletions(first: Any, second: Any, third: Any) -> None:
    a, b, c = tree(first), tree(second), tree(third)
    assert plain(settled(merge_documents(merge_documents(a, b), c))) == plain(
        settled(merge_documents(a, merge_documents(b, c)))
    )


LISTED = st.one_of(LISTS, LISTS.map(lambda items: {"append": items}), st.none(), st.just(DELETED))


@examples(300)
@given(*[st.dictionaries(KEYS, LISTED)] * 3)
def test_merging_is_associative_with_appends(first: Any, second: Any, third: Any) -> None:
    a, b, c = tree(first), tree(second), tree(third)
    assert plain(settled(merge_documents(merge_documents(a, b), c))) == plain(
        settled(merge_documents(a, merge_documents(b, c)))
    )


@examples(200)
@given(st.dictionaries(KEYS, VALUES))
def test_an_empty_mapping_changes_nothing(value: Any) -> None:
    node = tree(value)
    assert (
        plain(settled(merge_documents(node, tree({}))))
        == plain(settled(node))
        == plain(settled(merge_documents(tree({}), node)))
    )


def test_the_origin_of_a_key_is_found_whether_its_name_has_dots_or_leads_deeper() -> None:
    mark = Mark(SourceLocation("s.yaml", "/"), 3, 5)
    origins = Origins(located({"a": {"b": 1}, "v1.2": 3, "none": None}, mark))
    assert {key: key in origins for key in ("a", "a.b", "v1.2", "none", "b", "a.c", "")} == {
        "a": True,
        "a.b": True,
        "v1.2": True,
        "none": True,
        "b": False,
        "a.c": False,
        "": False,
    }
    assert [origins.where(key) for key in ("a.b.c", "none", "x.y")] == ["s.yaml:3:5", "s.yaml:3:5", ""]
    assert (origins.data("a"), origins.data("b"), origins["v1.2"].where) == ({"b": 1}, None, "s.yaml:3:5")
