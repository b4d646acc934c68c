"""Texts of a user that are long: read in a time that grows with their length, and not with its square, which would be hours."""

from __future__ import annotations

import pytest

from milabench.acceptance.criteria import parse_criteria
from milabench.cli.completion import _WORD, _names
from milabench.config.interpolate import escaped
from milabench.driver.tasks import parse_tasks
from milabench.errors import ConfigError
from milabench.redaction import mask_argument, values_in

LONG = 500_000


def test_a_key_of_a_task_file_with_many_blanks_behind_it() -> None:
    file = parse_tasks(f"[t]\npatterns{' ' * LONG}= ['a']\nmetrics = ['b']\ncompute_method = ['last']\n", "t.cfg")
    assert file.task("t").metrics[0].pattern == "a"
    with pytest.raises(ConfigError, match="expected"):
        parse_tasks(f"[t]\na{' ' * LONG}\n", "t.cfg").task("t")


def test_backslashes_before_what_could_be_a_reference() -> None:
    assert escaped("\\" * LONG) == "\\" * LONG
    assert escaped("a\\${b} ${c}") == "a\\\\\\${b} \\${c}"


def test_a_share_of_many_digits() -> None:
    with pytest.raises(ConfigError, match="expected a share"):
        parse_criteria(b"defaults: {device_spread: '" + b"0" * LONG + b"x'}\n", "a.yaml")


def test_names_that_are_completed() -> None:
    assert list(_names(f"a{' ' * LONG}\nb: {{definition: x}}\n'c' : {{}}\nd  : {{}}\n")) == ["b", "c", "d"]
    assert _WORD.findall("x" * LONG + " - more.yaml")[-1] == "more.yaml"


def test_an_argument_that_may_give_a_secret() -> None:
    assert mask_argument("a." * (LONG // 2)) == "a." * (LONG // 2)
    assert mask_argument("a" * LONG + ".env.HF_TOKEN=hunter2") == "a" * LONG + ".env.HF_TOKEN=***"


def test_a_text_that_assigns_many_secrets() -> None:
    found = list(values_in("TOKEN=abcdefgh " * (LONG // 15)))
    assert len(found) < LONG
    assert sum(map(len, found)) < 20 * LONG
