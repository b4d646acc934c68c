"""What --select and --exclude mean."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milabench.config.read import read_suite
from milabench.config.schema import Suite
from milabench.config.select import select
from milabench.errors import NothingSelected, UsageError
from tests.examples import examples

TEXT = """
_template: {definition: d, tags: [vision]}
resnet50: {definition: d, group: torchvision, install_group: torch, tags: [vision, monogpu]}
resnet50-noio: {definition: d, group: torchvision, install_group: torch, tags: [vision, monogpu, noio]}
llama: {definition: d, group: llm, install_group: torch, tags: [nlp, multigpu]}
v1.2+x: {definition: d, group: odd, tags: [vision, multigpu]}
retired: {definition: d, enabled: false, tags: [vision]}
"""


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    path = tmp_path_factory.mktemp("suite") / "s.yaml"
    path.write_text(TEXT)
    return read_suite([path])


def names(suite: Suite, selected: str | None = None, excluded: str | None = None) -> list[str]:
    return [bench.name for bench in select(suite, selected, excluded)]


@pytest.mark.parametrize(
    ("selected", "excluded", "expected"),
    [
        (None, None, ["resnet50", "resnet50-noio", "llama", "v1.2+x"]),
        ("", "", ["resnet50", "resnet50-noio", "llama", "v1.2+x"]),
        ("resnet50", None, ["resnet50"]),
        ("llama,resnet50", None, ["resnet50", "llama"]),
        ("llama, resnet50,", None, ["resnet50", "llama"]),
        ("torchvision", None, ["resnet50", "resnet50-noio"]),
        ("torch", None, ["resnet50", "resnet50-noio", "llama"]),
        ("multigpu", None, ["llama", "v1.2+x"]),
        ("resnet*", None, ["resnet50", "resnet50-noio"]),
        ("v1.2+x", None, ["v1.2+x"]),
        ("*", None, ["resnet50", "resnet50-noio", "llama", "v1.2+x"]),
        ("vision and not multigpu", None, ["resnet50", "resnet50-noio"]),
        ("vision and not (noio or multigpu)", None, ["resnet50"]),
        ("llama or vision and noio", None, ["resnet50-noio", "llama"]),
        ("(llama, vision) and multigpu", None, ["llama", "v1.2+x"]),
        ("not not llama", None, ["llama"]),
        ("vision", "noio", ["resnet50", "v1.2+x"]),
        (None, "vision and not multigpu", ["llama", "v1.2+x"]),
        (None, "no-such-thing", ["resnet50", "resnet50-noio", "llama", "v1.2+x"]),
        ("retired", None, ["retired"]),
        ("vision and not no-such-tag", None, ["resnet50", "resnet50-noio", "v1.2+x"]),
    ],
)
def test_a_selection_means(suite: Suite, selected: str | None, excluded: str | None, expected: list[str]) -> None:
    assert names(suite, selected, excluded) == expected


@pytest.mark.parametrize(
    ("selected", "excluded", "message"),
    [
        ("resnet5", None, "unknown benchmark, group or tag 'resnet5'. Did you mean 'resnet50'"),
        ("llama,resnt50", None, "unknown benchmark, group or tag 'resnt50'. Did you mean 'resnet50'"),
        ("bert*", None, "'bert*' matches no benchmark"),
        ("llama and vision", None, "nothing selected by --select 'llama and vision'"),
        ("llama", "nlp", "nothing selected by --select 'llama' --exclude 'nlp'"),
        ("ret*", None, "everything that --select 'ret*' matches is disabled (retired)"),
        ("_template", None, "unknown benchmark, group or tag '_template'"),
    ],
)
def test_nothing_selected_says_why(suite: Suite, selected: str, excluded: str | None, message: str) -> None:
    with pytest.raises(NothingSelected) as caught:
        select(suite, selected, excluded)
    assert message in str(caught.value)


@pytest.mark.parametrize("text", ["and", "a and", "(llama", "llama)", "not", "llama or or b", "llama resnet50", "()"])
def test_an_expression_that_cannot_be_read_is_a_usage_error(suite: Suite, text: str) -> None:
    with pytest.raises(UsageError, match="--select"):
        select(suite, text)


def test_parentheses_without_end_are_refused(suite: Suite) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        select(suite, "(" * 5000)


@examples(300)
@given(st.lists(st.sampled_from(["llama", "vision", "and", "or", "not", "(", ")", ",", "*", "[", "x"]), max_size=9))
def test_no_expression_crashes(suite: Suite, tokens: list[str]) -> None:
    try:
        select(suite, " ".join(tokens))
    except (NothingSelected, UsageError) as error:
        assert str(error)


def test_a_name_with_a_space_is_meant_whole_or_in_quotes(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("'a b': {definition: d}\nc: {definition: d}\n")
    benches = read_suite([tmp_path / "s.yaml"])
    assert names(benches, "a b") == ["a b"]
    assert names(benches, "'a b', c") == ["a b", "c"]
