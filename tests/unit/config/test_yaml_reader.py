"""One YAML document: its scalars, its marks, its limits, and that nothing crashes the loader."""

from __future__ import annotations

import math
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from milabench.config.scalars import resolve_scalar
from milabench.config.source_map import SourceLocation, plain
from milabench.config.yaml_reader import Document, decode_text, parse_document
from milabench.errors import ConfigError
from tests.examples import examples

SOURCE = SourceLocation("s.yaml", "/")


def read(text: str) -> Document:
    return parse_document(text, SOURCE)


def problem(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(text)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12),
        ("-3", -3),
        ("0x1F", 31),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("6e-4", 0.0006),
        (".5", 0.5),
        (".inf", math.inf),
        ("true", True),
        ("on", True),
        ("no", False),
        ("~", None),
        ("", None),
        ("null", None),
        ("010", "010"),
        ("10:00", "10:00"),
        ("0o17", "0o17"),
        ("2024-01-01", "2024-01-01"),
        ("auto", "auto"),
        ("3.10.1", "3.10.1"),
        ("y", "y"),
    ],
)
def test_a_plain_scalar_is_read_as_promised(text: str, value: Any) -> None:
    read_value = plain(read(f"a: {text}").root)["a"]
    assert (read_value, type(read_value) is str) == (value, type(value) is str)


@pytest.mark.parametrize(
    "text", ["yes", "No", "on", "OFF", "010", "10:00", "1_000", "0b11", "0o17", "2024-01-01", "-.5"]
)
def test_a_value_on_which_yaml_1_1_and_1_2_disagree_is_warned_about_with_its_place(text: str) -> None:
    assert [warning.where for warning in read(f"x:\n  a: {text}").warnings] == ["s.yaml:2:6"]


@pytest.mark.parametrize("text", ["true", "'yes'", "12", "1e3", "1.5", "0x1F", "plain text", "'010'", "y"])
def test_other_values_are_not_warned_about(text: str) -> None:
    assert read(f"a: {text}").warnings == ()


def test_keys_are_what_is_written() -> None:
    assert plain(read("on: 1\n8: 2\nnull: 3").root) == {"on": 1, "8": 2, "null": 3}


def test_every_value_knows_its_line_and_column() -> None:
    root = read("a:\n  b: [x, y]\n").root
    assert str(root.value["a"].value["b"].value[1].mark) == "s.yaml:2:10"


def test_a_duplicate_key_is_an_error_that_names_both_places() -> None:
    assert problem("a: {x: 1,\n  x: 2}") == (
        "s.yaml:2:3: a.x: the key 'x' is given twice. Remove a copy\n       it was first given at s.yaml:1:5"
    )


def test_all_problems_of_a_document_are_told_at_once() -> None:
    text = problem("a: {x: 1, x: 2}\nb: !!python/name:os.system\n? [k]\n: v\n")
    assert [line.split(": ")[1] for line in text.split("\nerror: ")[1:]] == ["b", "a key must be text. Quote it"]


def test_merge_keys_work_and_own_keys_win() -> None:
    text = "_d: &d {x: 1, y: 2}\na: {<<: *d, y: 3}\nb: {<<: [*d, {z: 4, x: 9}]}"
    values = plain(read(text).root)
    assert (values["a"], values["b"]) == ({"x": 1, "y": 3}, {"x": 1, "y": 2, "z": 4})


@pytest.mark.parametrize(
    ("text", "value"),
    [("!!float 2", 2.0), ("!!int 0x1F", 31), ("!!bool true", True), ("!!null ~", None), ("!!str 1", "1")],
)
def test_the_tags_of_yaml_itself_say_a_type(text: str, value: object) -> None:
    read_value = plain(read(f"a: {text}").root)["a"]
    assert (read_value, type(read_value)) == (value, type(value))


@pytest.mark.parametrize("text", ["!!int x", "!!int 1.5", "!!int true", "!!float '2x'", "!!bool 1", "!!null 0"])
def test_a_value_of_another_type_than_its_tag_is_refused(text: str) -> None:
    assert f"a: expected {text.split(maxsplit=1)[0]}, got" in problem(f"a: {text}")


def test_python_tags_are_refused() -> None:
    assert "unknown tag !!python/object/apply:os.system" in problem("a: !!python/object/apply:os.system [x]")


def test_an_alias_of_what_it_is_part_of_is_refused() -> None:
    assert problem("a: &x [*x]") == "s.yaml:1:8: a.0: the alias *x refers to a value that contains it"


def test_aliases_that_blow_up_are_refused() -> None:
    lines = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert "aliases expand to more than 500000 values" in problem("\n".join(lines))


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "a:\n "])
def test_nesting_without_end_is_refused(opening: str) -> None:
    text = opening * 50_000 if opening != "a:\n " else "".join(f"{' ' * n}a:\n" for n in range(200))
    assert "nested more than 64 deep" in problem(text)


def test_a_second_document_is_refused() -> None:
    assert problem("a: 1\n---\nb: 2") == "s.yaml:2:1: a second document begins. Put each document into its own file"


def test_a_syntax_error_has_its_place() -> None:
    assert problem("a: [1\nb: 2").startswith("s.yaml:2:2: not YAML: ")
    assert "Indent with spaces, not with a tab" in problem("a:\n\tb: 2")


def test_a_file_that_is_not_utf_8_is_refused_with_the_place() -> None:
    with pytest.raises(ConfigError) as caught:
        decode_text(b"a: 1\nb: caf\xe9", "s.yaml")
    assert str(caught.value) == "s.yaml:2:7: not UTF-8 (byte 0xe9). Save the file as UTF-8"


def test_a_byte_order_mark_is_no_part_of_the_text() -> None:
    assert plain(read(decode_text(b"\xef\xbb\xbfa: 1", "s.yaml")).root) == {"a": 1}


def test_the_pure_parser_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a: &x {b: [1, 1e3, 'yes', yes], c: ~}\nd: *x\ne: !delete\nf: |\n  two\n  lines\n"
    fast = plain(read(text).root)
    monkeypatch.setattr("milabench.config.yaml_reader.LOADER", yaml.SafeLoader)
    assert plain(read(text).root) == fast


FRAGMENTS = st.lists(
    st.sampled_from(
        [
            *(
                "a",
                "b",
                ": ",
                ":",
                "- ",
                "\n",
                "  ",
                "[",
                "]",
                "{",
                "}",
                ", ",
                "&x ",
                "*x",
                "<<: ",
                "!delete",
                "!!int ",
            ),
            *(
                "'",
                '"',
                "|\n",
                ">\n",
                "#",
                "? ",
                "---\n",
                "...\n",
                "%YAML 1.2\n",
                "\t",
                "~",
                "1e3",
                "010",
                "${a}",
                "\\",
            ),
            *(
                "\x00",
                "\x85",
                "\u2028",
                "\ufeff",
                "é",
                "\U0001f600",
                "append",
                "matrix",
                "job",
                "!",
                "!!python/none ",
                "@",
            ),
        ]
    ),
    max_size=30,
).map("".join)


@examples(1500)
@given(st.one_of(FRAGMENTS, st.text(max_size=60)))
def test_no_text_crashes_the_loader(text: str) -> None:
    try:
        read(text)
    except ConfigError as error:
        assert str(error)


@examples(300)
@given(st.binary(max_size=60))
def test_no_bytes_crash_the_loader(content: bytes) -> None:
    try:
        read(decode_text(content, "s.yaml"))
    except ConfigError as error:
        assert str(error)


@examples(500)
@given(st.text(alphabet="0123456789+-._eExXoObB:aAfFnN yY", max_size=12))
def test_no_scalar_is_read_into_anything_but_plain_values(text: str) -> None:
    value, _ = resolve_scalar(text)
    assert value is None or isinstance(value, bool | int | float | str)
