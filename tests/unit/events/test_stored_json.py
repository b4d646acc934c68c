"""What a declaration refuses is named with its place, also in mappings with any keys."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milabench.events.stored_json import from_json_value
from milabench.events.stored_run import JournalEntry, StoredManifest

MANIFEST: dict[str, Any] = {
    "phase": "run",
    "suite": {"a": {"weight": 1}, "b": None},
    "system": {
        "arch": "cpu",
        "nodes": [{"name": "local", "devices": [{"index": 0, "memory_MiB": 1}], "details": {"a": [1]}}],
    },
    "plan": {
        "steps": [{"id": "a", "bench": "a", "devices": [0], "config": {}}],
        "skipped": [{"bench": "b", "why": "x"}],
    },
    "files": {"a": "a.D0", "b": "é"},
    "options": {"overrides": ["a=1"], "environ": {"A": "b", "C": None}},
    "aim": {"precision": 0.01, "budget_s": None},
    "replicates": {"a": {"planned": 3}},
    "submission": {"shares": {"s1": {"steps": ["a"]}}},
}
OTHERS = (
    st.none()
    | st.booleans()
    | st.sampled_from(
        [
            0,
            -1,
            2**63,
            -(2**63),
            10**60,
            -0.5,
            1e50,
            1.1e50,
            "",
            "a",
            "a/b",
            "\ud800",
            [],
            {},
            [1],
            {"a": 1},
            [None],
            [["a"]],
        ]
    )
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The place of every value in a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in items for place in places(item, (*path, key)))]


def with_other(value: Any, path: tuple[Any, ...], other: Any) -> Any:
    """A copy with another value in one place."""
    if not path:
        return other
    copied = dict(value) if isinstance(value, dict) else dict(enumerate(value))
    copied[path[0]] = with_other(copied[path[0]], path[1:], other)
    return copied if isinstance(value, dict) else list(copied.values())


@given(given_data=st.data())
def test_whatever_is_refused_is_named_with_its_place(given_data: st.DataObject) -> None:
    path = given_data.draw(st.sampled_from(places(MANIFEST)))
    value = with_other(MANIFEST, path, given_data.draw(OTHERS))
    try:
        msgspec.convert(value, StoredManifest)
    except msgspec.ValidationError:
        place = ".".join(map(str, path)) or "it"
        with pytest.raises(ValueError) as refused:
            from_json_value(StoredManifest, value)
        assert str(refused.value).startswith(place)
        assert "\n" not in str(refused.value)
        assert "..." not in str(refused.value).split(" ")[0]
    else:
        from_json_value(StoredManifest, value)


@pytest.mark.parametrize(
    ("name", "is_file"),
    [("a.b c~1", True), ("é", True), ("", False), ("a/b", False), ("/", False), ("a\n", False), ("\x7f", False)],
)
def test_the_name_of_a_file_is_one_of_its_folder(name: str, is_file: bool) -> None:
    with contextlib.nullcontext() if is_file else pytest.raises(ValueError, match="not the name of a file"):
        from_json_value(StoredManifest, {"files": {"step": name}})


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"t": "now"}, "t is 'now', not a number"),
        ({"t": 1e60}, "t is 1e+60, not a number <= 1e+50"),
        ({"attempt": True}, "attempt is True, not a whole number"),
        ({"nodes": [{"name": "a", "host": None}]}, "nodes.0.host is None, not a text"),
        ({"nodes": [{"name": "a"}]}, "nodes.0 has no host"),
        ({"clocks": {"b": {"ahead_s": 1}, "a": {"ahead_s": []}}}, "clocks.a.ahead_s is [], not a number"),
        ({"steps": {str(number): "a" if number != 71 else 1 for number in range(100)}}, "steps.71 is 1, not a text"),
        ({"hosts": {}}, "hosts is {}, not a list"),
        ([], "it is [], not a mapping"),
    ],
)
def test_what_does_not_fit_is_named_with_its_place(entry: Any, said: str) -> None:
    with pytest.raises(ValueError) as refused:
        from_json_value(JournalEntry, json.loads(json.dumps(entry)))
    assert str(refused.value) == said
