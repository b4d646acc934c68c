"""The expression language: what it computes, and everything that it refuses."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milabench.config.expr import check_expression, evaluate
from milabench.config.problems import UnplacedProblem
from tests.examples import examples

NAMES: dict[str, Any] = {
    "gpu": {"count": 8, "capacity": "80 GiB"},
    "nodes": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}],
    "arch": "cuda",
    "n": 3,
    "_hidden": 1,
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("gpu['count'] > 1", True),
        ("len(nodes) >= 2", True),
        ("len(nodes) >= 2 and gpu['count'] < 8", False),
        ("nodes[1]['ip']", "10.0.0.2"),
        ("nodes[-1]['ip'] == '10.0.0.2'", True),
        ("min(n * 10, 25)", 25),
        ("max([1, n, 2])", 3),
        ("7 // 2 + 7 % 2 - 2 ** 3", -4),
        ("1 < n <= 3", True),
        ("arch in ['cuda', 'rocm']", True),
        ("not arch == 'cuda' or n == 3", True),
        ("-n + +n", 0),
        ("true and not false", True),
        ("  n  ", 3),
        ("'a' + arch", "acuda"),
    ],
)
def test_an_expression_has_a_value(text: str, value: Any) -> None:
    assert evaluate(text, NAMES) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not an expression"),
        ("1 +", "not an expression"),
        ("n = 1", "not an expression"),
        ("arch.upper()", "only len, min and max can be called"),
        ("arch.upper", "Attribute is not part of the language"),
        ("().__class__.__bases__", "Attribute is not part of the language"),
        ("__import__('os')", "only len, min and max can be called"),
        ("open('x')", "only len, min and max can be called"),
        ("len(*nodes)", "Starred is not part of the language"),
        ("min(1, key=len)", "only len, min and max can be called"),
        ("[x for x in nodes]", "ListComp is not part of the language"),
        ("lambda: 1", "Lambda is not part of the language"),
        ("(n := 1)", "NamedExpr is not part of the language"),
        ("f'{n}'", "JoinedStr is not part of the language"),
        ("n if n else 1", "IfExp is not part of the language"),
        ("{1: 2}", "Dict is not part of the language"),
        ("nodes[0:1]", "Slice is not part of the language"),
        ("n is 3", "Is is not part of the language"),
        ("n << 3", "LShift is not part of the language"),
        ("~n", "Invert is not part of the language"),
        ("b'x'", "bytes values are not part of the language"),
        ("9 ** 9 ** 9", "a power beyond 2**256"),
        ("2 ** 257", "a power beyond 2**256"),
        ("(-1) ** 0.5", "a root of a negative number"),
        ("2 ** 200 * 2 ** 200", "a number beyond 2**256"),
        ("'a' * 1000000000", "arithmetic needs numbers, got str"),
        ("[1] * 1000000000", "arithmetic needs numbers, got list"),
        ("'%1000000000d' % 1", "arithmetic needs numbers, got str"),
        ("1 / 0", "division by zero"),
        ("nodes[7]", "index out of range"),
        ("gpu['cont']", "there is no key 'cont'"),
        ("gpus['count']", "there is no name 'gpus'"),
        ("'a' < 1", "not supported between"),
        ("1+" * 600 + "1", "longer than 1000 characters"),
        ("(" * 400 + "1" + ")" * 400, "not an expression"),
        ("not " * 100 + "1", "nested too deep"),
    ],
)
def test_everything_else_is_refused(text: str, message: str) -> None:
    with pytest.raises(UnplacedProblem) as caught:
        evaluate(text, NAMES)
    assert message in str(caught.value)


def test_an_unknown_name_is_told_with_the_nearest_one() -> None:
    with pytest.raises(UnplacedProblem) as caught:
        evaluate("len(node) > 1", NAMES)
    assert (str(caught.value), caught.value.hint) == (
        "in the expression 'len(node) > 1': there is no name 'node'",
        "Did you mean 'nodes'?",
    )


def test_checking_looks_at_the_form_alone() -> None:
    check_expression("nowhere > 1")
    with pytest.raises(UnplacedProblem):
        check_expression("nowhere >")


def test_the_conditions_that_do_not_hold_are_named() -> None:
    conditions = ["n > 1", "n > 5", "arch == 'rocm'"]
    assert [evaluate(condition, NAMES) for condition in conditions] == [True, False, False]


TOKENS = [
    "n",
    "gpu",
    "nodes",
    "'x'",
    "1",
    "0",
    "2.5",
    "+",
    "-",
    "*",
    "**",
    "//",
    "%",
    "(",
    ")",
    "[",
    "]",
    "==",
    "<",
    " and ",
    " or ",
]


@examples(600)
@given(
    st.one_of(
        st.lists(st.sampled_from([*TOKENS, "not ", " in ", "len", "max", ",", "9" * 80]), max_size=10).map("".join),
        st.text(max_size=20),
    )
)
def test_no_expression_crashes(text: str) -> None:
    try:
        evaluate(text, NAMES)
    except UnplacedProblem as error:
        assert str(error)
