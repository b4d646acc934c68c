"""`${...}`: OmegaConf's meaning, each distinct interpolation once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from milabench.config import interpolate
from milabench.config.interpolate import Interpolator, escaped
from milabench.config.read import read_suite
from milabench.config.source_map import Mark, SourceLocation, located, plain
from milabench.errors import ConfigError
from tests.examples import examples

MARK = Mark(SourceLocation("s.yaml", "/"), 1, 1)
SYSTEM = {"arch": "cuda", "nodes": [{"ip": "10.0.0.1"}]}


def resolved(bench: dict[str, Any], env: dict[str, str] | None = None) -> Any:
    interpolator = Interpolator(located(SYSTEM, MARK), env or {})
    node, problems = interpolator.benchmark("b", located(bench, MARK), {"name": located("b", MARK)})
    if problems:
        raise ConfigError(problems)
    return plain(node)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${system.arch}", "cuda"),
        ("image:${system.arch}-nightly", "image:cuda-nightly"),
        ("${.number}", 3),
        ("${number}", 3),
        ("${name}", "b"),
        ("${nested.deep}", [1, 2]),
        ("${nested.deep.1}", 2),
        ("${nested.deep[1]}", 2),
        ("${system.nodes[0].ip}", "10.0.0.1"),
        ("${nested}", {"deep": [1, 2], "which": "arch"}),
        ("${number}${number}", "33"),
        ("\\${number}", "${number}"),
        ("\\\\${number}", "\\3"),
        ("${system.${nested.which}}", "cuda"),
        ("${oc.env:HERE}", "there"),
        ("${oc.env:MISSING,else}", "else"),
        ("${oc.env:MISSING,null}", None),
        ("${oc.env:MISSING,${name}}", "b"),
        ("${oc.decode:'[1, 2]'}", [1, 2]),
        ("${ number }", 3),
        ("{gpu_count} ${number}", "{gpu_count} 3"),
    ],
)
def test_an_interpolation_has_the_meaning_that_omegaconf_gives_it(text: str, value: Any) -> None:
    bench = {"number": 3, "nested": {"deep": [1, 2], "which": "arch"}, "it": text}
    assert resolved(bench, {"HERE": "there"})["it"] == value


def test_dots_lead_up_from_where_the_value_stands() -> None:
    bench = {"num_machines": 2, "needs": ["len(nodes) >= ${..num_machines}"], "a": {"x": "${.y}", "y": 1}}
    assert resolved(bench) == {"num_machines": 2, "needs": ["len(nodes) >= 2"], "a": {"x": 1, "y": 1}}


def test_an_interpolation_may_lead_to_another() -> None:
    assert resolved({"a": "${b}/x", "b": "${c}/y", "c": "z"}) == {"a": "z/y/x", "b": "z/y", "c": "z"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bench", "message"),
    [
        ({"a": "${a}"}, "it refers to itself: a -> a"),
        ({"a": "${b}", "b": "${a}"}, "it refers to itself: a -> b -> a"),
        ({"a": ["${a}"]}, "it refers to a value that contains it"),
        ({"group": "x", "a": "${gruop}"}, "there is no key 'gruop'. Did you mean 'group'?"),
        ({"a": "${...b}"}, "its dots lead above the benchmark"),
        ({"a": "${oc.env:NOT_SET}"}, "the environment variable NOT_SET is not set. Set it, or give a default"),
        ({"a": "${oc.dict.keys:x}"}, "unknown resolver 'oc.dict.keys'"),
        ({"a": "${shell:ls}"}, "unknown resolver 'shell'"),
        ({"a": "${"}, "cannot be resolved"),
        ({"a": "${b" * 500}, "cannot be resolved"),
        ({"a": "${name}" * 1000}, "longer than 4096 characters"),
        ({f"a{n}": f"${{a{n + 1}}}" * 9 for n in range(9)} | {"a9": "x" * 99}, "longer than 65536 characters"),
        ({f"a{n}": [f"${{a{n + 1}}}"] * 9 for n in range(9)} | {"a9": "x"}, "expands to more than 100000 values"),
        ({f"a{n}": f"${{a{n + 1}}}" for n in range(99)} | {"a99": "x"}, "more than 40 interpolations"),
    ],
)
def test_an_interpolation_without_a_value_is_an_error(bench: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolved(bench)
    assert message in str(caught.value)


def test_the_environment_is_reached_by_oc_env_alone_and_only_as_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INHERITED", "secret")
    with pytest.raises(ConfigError, match="INHERITED is not set"):
        resolved({"a": "${oc.env:INHERITED}"})


def test_omegaconf_is_asked_once_for_each_distinct_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    ask = interpolate.Interpolator._ask

    def counting(self: Interpolator, text: str, values: list[Any]) -> Any:
        asked.append(text)
        return ask(self, text, values)

    monkeypatch.setattr(interpolate.Interpolator, "_ask", counting)
    suite = tmp_path / "s.yaml"
    keys = "definition: x, url: 'u/${name}', docker_image: 'i:${system.arch}', tags: ['${oc.env:T,t}', '\\\\${name}']"
    template = f"_t: {{{keys}}}\n"
    suite.write_text(template + "\n".join(f"b{n}: {{inherits: _t}}" for n in range(50)))
    benchmarks = read_suite([suite]).benchmarks
    assert benchmarks["b7"].url == "u/b7"
    assert asked == ["${oc.env:T,t}", "\\\\${r0}"]  # of text around references nobody has to be asked


def test_a_value_that_two_benchmarks_share_is_resolved_for_each(tmp_path: Path) -> None:
    suite = tmp_path / "s.yaml"
    suite.write_text(
        "_t: {definition: x, group: 'g-${.weight}', env: {A: '${group} ${.B}', B: '${install_group}'}, argv: {--n: '${env.A}'}}\n"
        "a: {inherits: _t, weight: 1}\nb: {inherits: _t, weight: 2}\nc: {inherits: _t, weight: 1}\n"
        "d: {inherits: _t, weight: 1, install_group: i}\n"
    )
    benchmarks = read_suite([suite]).benchmarks
    assert {name: (bench.group, bench.env["A"], bench.argv[0][1]) for name, bench in benchmarks.items()} == {
        "a": ("g-1", "g-1 g-1", "g-1 g-1"),
        "b": ("g-2", "g-2 g-2", "g-2 g-2"),
        "c": ("g-1", "g-1 g-1", "g-1 g-1"),
        "d": ("g-1", "g-1 i", "g-1 i"),
    }


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-9, 9), st.floats(allow_nan=False), st.sampled_from(["", "x", "a b", "1"])
)
TEXTS = st.lists(
    st.sampled_from(
        ["${a}", "${b}", "${c.d}", "${.a}", "${c.e[0]}", "x", " ", "-", "\\${a}", "{a}", "$", "\\\\${a}", "}"]
    ),
    min_size=1,
    max_size=4,
).map("".join)


@examples(200)
@given(SCALARS, SCALARS, SCALARS, TEXTS)
def test_ours_and_omegaconf_agree(a: Any, b: Any, d: Any, text: str) -> None:
    bench = {"a": a, "b": b, "c": {"d": d, "e": [b]}, "it": text}
    theirs = OmegaConf.to_container(OmegaConf.create(bench), resolve=True)
    assert isinstance(theirs, dict)
    assert repr(resolved(bench)["it"]) == repr(theirs["it"])


@examples(200)
@given(st.text(alphabet="${}\\ax.:", max_size=12))
def test_escaped_text_is_read_back(text: str) -> None:
    assert resolved({"it": escaped(text)})["it"] == text


@examples(300)
@given(st.text(alphabet="${}\\ax.:[]'\",oc env", max_size=16))
def test_no_text_crashes_the_resolution(text: str) -> None:
    try:
        resolved({"a": 1, "it": text, "x": {"a": "${" + text + "}"}})
    except ConfigError as error:
        assert str(error)
