"""Arguments as a process gets them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milabench.config.read import read_suite
from milabench.config.schema import BenchmarkConfig
from milabench.errors import ConfigError
from milabench.plan.render import (
    AUTO_BATCH,
    AUTO_CPU,
    RenderedBenchmark,
    placeholders,
    render_benchmark,
    render_text,
)
from tests.examples import examples

NAMES: dict[str, Any] = {
    "arch": "cuda",
    "device_name": "cuda",
    "gpu_count": 8,
    "n_worker": 12,
    "lr": 1e-5,
    "nothing": None,
    "milabench_data": "/base/data",
    "nodes": [{"ip": "10.0.0.1"}],
    "system": {"nodes": [{"ip": "10.0.0.1"}], "arch": "cuda"},
}


def render_argv(
    bench: BenchmarkConfig, names: dict[str, Any], *, key: str = "argv", flags: frozenset[str] = frozenset()
) -> tuple[str, ...]:
    return render_benchmark(bench, names, argument_keys=(key,), flags=flags, is_preparation=True).arguments


def bench(tmp_path: Path, keys: str) -> BenchmarkConfig:
    path = tmp_path / "s.yaml"
    path.write_text(f"a: {{definition: x, {keys}}}")
    return read_suite([path]).benchmarks["a"]


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ("{--a: null, --b: true, --c: false, --d: 1, --e: ''}", ("--b", "--d", "1", "--e", "")),
        ("{--l: [1, x, 2.5]}", ("--l", "1,x,2.5")),
        ("{--lr: 6e-4, --eps: 1e-8, --x: 0.5}", ("--lr", "6e-4", "--eps", "1e-8", "--x", "0.5")),
        ("{--a: 1, run: true, epochs=1: true, --b: 2}", ("run", "epochs=1", "--a", "1", "--b", "2")),
        ("{'--': [-params, 'n:16'], --a: 1}", ("--a", "1", "-params", "n:16")),
        ("{train: now}", ("train", "now")),
        ("{'out={milabench_data}/o': true}", ("out=/base/data/o",)),
        ("{'batch_size=auto_batch(8)': true}", ("batch_size=8",)),
        (
            "{--dtype: auto, --device: auto_x, --e: expression}",
            ("--dtype", "auto", "--device", "auto_x", "--e", "expression"),
        ),
        ("{--limit: '{\"image\":10}'}", ("--limit", '{"image":10}')),
        ("[--a, '{gpu_count}', --b, auto_batch(32)]", ("--a", "8", "--b", "32")),
        ("[]", ()),
    ],
)
def test_arguments_are_rendered(tmp_path: Path, argv: str, expected: tuple[str, ...]) -> None:
    assert render_argv(bench(tmp_path, f"argv: {argv}"), NAMES) == expected


def test_false_gives_no_where_it_is_declared(tmp_path: Path) -> None:
    one = bench(tmp_path, "argv: {--amp: false, --io: false}")
    assert render_argv(one, NAMES, flags=frozenset(["--amp"])) == ("--no-amp",)


def test_server_client_and_command_are_rendered_alike(tmp_path: Path) -> None:
    one = bench(
        tmp_path, "server: {argv: {--n: '{gpu_count}', m: true}}, client: {argv: ['{arch}']}, command: [run, '{arch}']"
    )
    keys = ("server.argv", "client.argv", "command", "argv")
    assert [render_argv(one, NAMES, key=key) for key in keys] == [("m", "--n", "8"), ("cuda",), ("run", "cuda"), ()]


def test_the_environment_is_rendered(tmp_path: Path) -> None:
    assert render_benchmark(bench(tmp_path, "env: {D: '{milabench_data}', N: 3}"), NAMES).env == {
        "D": "/base/data",
        "N": "3",
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{arch}-{gpu_count}", "cuda-8"),
        ("{system[nodes][0][ip]}", "10.0.0.1"),
        ("{nodes[0][ip]}", "10.0.0.1"),
        ("{nodes[-1][ip]}", "10.0.0.1"),
        ("{gpu_count:03d}", "008"),
        ("{{arch}} {{}}", "{arch} {}"),
        ("{{{arch}}}", "{cuda}"),
        ("}}", "}"),
        ('{"a": {"b": "{arch}"}}', '{"a": {"b": "cuda"}}'),
        ("{} {0} { x } {", "{} {0} { x } {"),
        ("auto({n_worker}, 8)", "8"),
        ("auto({n_worker}, auto_batch(4))", "4"),
        ("auto_batch(128)", "128"),
        ("expr(min({gpu_count} * 10, 500))", "80"),
        ("expr(gpu_count // 3)", "2"),
        ("expr({gpu_count} / 2)", "4"),
        ("expr({arch} == 'cuda')", "True"),
        ("expr('{arch}' == 'cuda' and len({nodes}) == 1)", "True"),
        ("a=expr(1 + 1),b=expr((2) * (3))", "a=2,b=6"),
        ("my_auto(1)", "my_auto(1)"),
        ("f(auto) auto", "f(auto) auto"),
        ("$(rm -rf x) `ls` ; ${HOME} %s", "$(rm -rf x) `ls` ; ${HOME} %s"),
    ],
)
def test_placeholders_and_functions_are_resolved(text: str, expected: str) -> None:
    assert render_text(text, {**NAMES, "HOME": "/never"}) == expected


def test_auto_takes_its_first_value_where_cpu_sizing_is_enabled() -> None:
    assert render_text("auto({n_worker}, 8)", {**NAMES, AUTO_CPU: True}) == "12"


def test_only_the_value_that_auto_takes_needs_to_be_known() -> None:
    assert render_text("auto({nowhere}, 8)", NAMES) == "8"


def test_auto_batch_asks_the_sizer() -> None:
    assert render_text("bs=auto_batch({gpu_count})", {**NAMES, AUTO_BATCH: lambda own: own * 3}) == "bs=24"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "{gpu_cont}",
            "the placeholder {gpu_cont} cannot be resolved, there is no 'gpu_cont'. Did you mean 'gpu_count'?",
        ),
        ("{nodes[3][ip]}", "the placeholder {nodes[3][ip]} cannot be resolved, there is no '3'"),
        ("{nodes[0][ipp]}", "Did you mean 'ip'?"),
        ("{arch[0]}", "the placeholder {arch[0]} cannot be resolved"),
        ("{nodes}", "the placeholder {nodes} is not a single value"),
        ("{nothing}", "the placeholder {nothing} has no value here"),
        ("{arch:03d}", "the placeholder {arch:03d} cannot be formatted"),
        ("{_auto_cpu}", "the placeholder {_auto_cpu} cannot be resolved"),
        ("{arch.__class__}", "the placeholder {arch.__class__} cannot be resolved"),
        ("auto(1)", "auto takes two values"),
        ("auto_batch()", "auto_batch takes a single value"),
        ("expr(", "the parenthesis of expr( is not closed"),
        ("expr(nowhere)", "there is no name 'nowhere'"),
        ("expr(arch.x)", "Attribute is not part of the language"),
        ("auto(1, " * 40 + "1" + ")" * 40, "functions are nested too deep"),
    ],
)
def test_what_cannot_be_resolved_is_an_error(tmp_path: Path, text: str, message: str) -> None:
    config = bench(tmp_path, f"argv: {{--x: {json.dumps(text)}}}")
    with pytest.raises(ConfigError) as caught:
        render_argv(config, {**NAMES, AUTO_CPU: False})
    assert str(caught.value).startswith(f"{tmp_path}/s.yaml:1:32: a.argv.--x: ")
    assert message in str(caught.value)


def test_a_sizer_needs_a_number() -> None:
    with pytest.raises(ConfigError, match="auto_batch takes a whole number, got 'many'"):
        render_text("auto_batch(many)", {AUTO_BATCH: lambda own: own})


def test_every_placeholder_that_cannot_be_resolved_is_told_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(
        "_t:\n  definition: x\n  argv:\n    --a: '{nowhere}'\n"
        "a:\n  inherits: _t\n  argv:\n    --b: ['{arch}', '{nothere}']\n"
    )
    with pytest.raises(ConfigError) as caught:
        render_argv(read_suite([path]).benchmarks["a"], NAMES)
    lines = str(caught.value).replace(f"{tmp_path}/", "").split("\nerror: ")
    assert [line.split(": the")[0] for line in lines] == ["s.yaml:4:10: a.argv.--a", "s.yaml:8:10: a.argv.--b"]


def test_the_placeholders_of_a_value_can_be_listed(tmp_path: Path) -> None:
    one = bench(tmp_path, "argv: {--n: 'auto({n_worker}, 8)', --d: '{milabench_data}/{arch}'}")
    assert placeholders(one, "argv.--n") == ("{n_worker}", "auto(...)")
    assert placeholders(one) == ("{n_worker}", "auto(...)", "{milabench_data}", "{arch}")


TOKENS = [
    "{arch}",
    "{",
    "}",
    "{{",
    "}}",
    "auto(",
    "auto_batch(",
    "expr(",
    ")",
    ",",
    "1",
    "'",
    '"',
    "{nodes[0]",
    "[",
    "]",
    " ",
    ":",
    "x",
]


@examples(800)
@given(st.one_of(st.lists(st.sampled_from(TOKENS), max_size=12).map("".join), st.text(max_size=20)))
def test_no_text_crashes_the_rendering(text: str) -> None:
    try:
        render_text(text, NAMES)
    except ConfigError as error:
        assert str(error)


@examples(200)
@given(st.text(alphabet="ab {}:[]\"'0", max_size=12))
def test_doubled_braces_give_the_text_back(text: str) -> None:
    assert render_text(text.replace("{", "{{").replace("}", "}}"), {}) == text


def test_everything_of_a_process_is_rendered_in_one_pass(tmp_path: Path) -> None:
    config = bench(
        tmp_path,
        "argv: {--n: 'auto_batch(8)'}, client: {argv: ['{arch}']}, env: {D: '{milabench_data}'},"
        " server: {ready: '{gpu_count}'}, plan: {method: multigpu, rdzv_id: '{arch}-1', flag: true, gone: null, l: [1, 2]}",
    )
    rendered = render_benchmark(config, NAMES, argument_keys=("client.argv", "argv"), has_launcher=True)
    assert rendered == RenderedBenchmark(
        arguments=("cuda", "--n", "8"),
        env={"D": "/base/data"},
        launcher_options={"rdzv_id": "cuda-1", "flag": True, "gone": None, "l": "1,2"},
        ready="8",
        batch_sizes=(8,),
    )


def test_one_pass_names_everything_that_cannot_be_resolved(tmp_path: Path) -> None:
    config = bench(
        tmp_path, "argv: ['{a}'], env: {E: '{b}'}, server: {ready: '{c}'}, plan: {x: '{d}'}, command: ['{e}']"
    )
    with pytest.raises(ConfigError) as caught:
        render_benchmark(config, NAMES, has_launcher=True)
    keys = ["a.argv.0", "a.env.E", "a.command.0", "a.plan.x", "a.server.ready"]
    assert [problem.path for problem in caught.value.problems] == keys
