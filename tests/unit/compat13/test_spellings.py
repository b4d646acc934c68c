"""Commands as people type them for milabench 1.3."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import click
import pytest
import yaml

from milabench.cli.verbs import COMMANDS, verbs
from milabench.compat13.spellings import OPTIONS, VERBS, as_typed_here
from tests.commands import Said

Milabench = Callable[..., Said]


@pytest.fixture
def suite(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "suite.yaml").write_text("'*': {timed: true}\na: {command: [echo], tags: [t]}\nb: {command: [echo]}\n")
    return ("--config", str(tmp_path / "suite.yaml"))


@pytest.mark.parametrize(
    ("typed", "here"),
    [
        ("run --dash no --noterm", "--display none"),
        ("run --noterm --dash=long --run-name x", "--display none --run-name x"),
        ("run --dash short --fulltrace --capabilities nodes=2 --report", "--display auto"),
        ("run --dash=no", "--display plain"),
        ("run --repeat 3 -- --dash no", "--repeat 3 -- --dash no"),
        ("install --variant unpinned --shorttrace", "--override *.install_variant=unpinned"),
        ("report --runs a b --html out.html", "a b --format html --output out.html"),
        ("list --dash no", "--dash no"),
        ("run --run_name x_y --use_current_env --dash=no", "--run-name x_y --use-current-env --display plain"),
        ("install --github_issues --use_current_env", "--use-current-env"),
        ("prepare --run_name=x", "--run-name=x"),
        (
            "plan run --noterm --dash no --fulltrace --capabilities nodes=2 --validations all --repeat 3",
            "run --repeat 3",
        ),
        ("plan install --variant unpinned", "install --override *.install_variant=unpinned"),
        ("bench -- x --dry_run", "-- x --dry_run"),
    ],
)
def test_options_become_ours(typed: str, here: str) -> None:
    verb, *words = typed.split()
    assert " ".join(as_typed_here(verb, words)) == here


def test_no_option_of_ours_is_taken_for_one_of_milabench_13() -> None:
    context = click.Context(verbs)
    for verb, options in OPTIONS.items():
        command = verbs.get_command(context, verb)
        assert command is not None
        ours = {name for option in command.params if isinstance(option, click.Option) for name in option.opts}
        assert not ours & options.keys()
        assert not any("_" in name for name in ours)
    assert not VERBS.keys() & COMMANDS.keys()
    assert {text.split()[0] for text in VERBS.values()} <= COMMANDS.keys()


def test_a_dry_run_takes_them(milabench: Milabench, suite: tuple[str, ...]) -> None:
    said = milabench("run", "--dry-run", *suite, "--dash", "no", "--noterm", "--capabilities", "nodes=2")
    assert (said.code, said.err) == (0, "")
    said = milabench(
        "plan", "run", *suite, "--noterm", "--dash", "no", "--fulltrace", "--validations", "all", "--run_name", "x"
    )
    assert (said.code, said.err) == (0, "")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("run", "--plugin", "sql"), "--plugin is an option of milabench 1.3. Here all of a run is recorded"),
        (("run", "--resume"), "--resume is an option of milabench 1.3. Here `milabench resume` continues a run"),
        (("run", "--capabilities"), "--capabilities needs a value"),
        (("report", "--price", "3"), "--price is an option of milabench 1.3. Here give `costs: {price: ...}`"),
        (("compare", "base/runs", "--last", "2"), "`milabench compare latest~1 latest` compares the last two runs"),
        (("summary", "x"), "no command 'summary'. `milabench report --json` does here what it does in milabench 1.3"),
        (("tools", "shell", "--select", "x"), ". `milabench dev` does here what `tools shell` does in milabench 1.3"),
        (("tools", "new", "x"), ". `milabench new` does here what `tools new` does"),
        (("tools", "pin"), ". `milabench pin` does here what `tools pin` does"),
        (("analysis", "compare"), ". `milabench compare` does here what `analysis compare` does"),
        (("analysis", "summary"), ". `milabench report --json` does here what `analysis summary` does"),
        (("slurm", "system"), ". `milabench nodes` does here what `slurm system` does"),
        (("tools", "tunnel"), ". Nothing here does what `tools tunnel` does in milabench 1.3"),
        (("tools",), "no command 'tools'. It is a group of milabench 1.3, whose commands stand by themselves here"),
        (("tools", "--help"), "no command 'tools'. It is a group of milabench 1.3"),
    ],
)
def test_what_we_lack_is_told_in_one_line_with_what_to_type(
    milabench: Milabench, words: tuple[str, ...], text: str
) -> None:
    said = milabench(*words)
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert text in said.err


# --- overrides, selection, variables ---------------------------------------------------------------------------------


def test_an_override_may_be_a_mapping(milabench: Milabench, suite: tuple[str, ...]) -> None:
    said = milabench("list", *suite, "--json", "--override", "{a: {weight: 3}, b: {tags: [x, y]}}")
    weights = [line.strip() for line in said.out.splitlines() if "weight" in line]
    assert weights == ['"weight": 3,', '"weight": 0.0,']
    assert '"x",' in said.out


@pytest.mark.parametrize(
    ("override", "text"),
    [
        ("{a: {weight: 3}", "not YAML"),
        ("{nobody: {weight: 3}}", "no benchmark or template named 'nobody'"),
        ("{a: 3}", "expected a mapping for a, got 3"),
    ],
)
def test_a_mapping_that_is_none_is_told(milabench: Milabench, suite: tuple[str, ...], override: str, text: str) -> None:
    said = milabench("list", *suite, "--override", override)
    assert (said.code, said.err.count("\n"), text in said.err) == (2, 1, True)


def test_the_last_part_of_the_definition_selects(milabench: Milabench, tmp_path: Path) -> None:
    (tmp_path / "suite.yaml").write_text(
        "a: {definition: x/vision, install_group: torch}\nb: {definition: {git: https://h/o/vision.git, rev: abc}}\n"
        "c: {definition: x/text, group: g}\nd: {definition: x/vision, enabled: false}\n"
    )
    names = {
        words: [
            row["name"]
            for row in json.loads(milabench("list", "--config", "suite.yaml", "--json", *words.split()).out)[
                "benchmarks"
            ]
        ]
        for words in ("--select vision", "--select g,torch", "--exclude vision", "--select d")
    }
    assert [*names.values()] == [["a", "b"], ["a", "c"], ["c"], ["d"]]


def test_the_variable_that_programs_get_is_no_suite(milabench: Milabench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILABENCH_CONFIG", '{"name": "a", "argv": {}}')
    said = milabench("list")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "MILABENCH_CONFIG holds the keys of a benchmark, as its programs are given them" in said.err


def test_variables_stand_for_keys_of_the_system(
    milabench: Milabench, suite: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {
        "MILABENCH_SIZER_MULTIPLE": "8",
        "MILABENCH_CPU_N_WORKERS": "4",
        "MILABENCH_TORCHRUN_PORT": "29500",
        "MILABENCH_DIRS_DATA": "/big/data",
        "MILABENCH_GPU_COUNT": "8",
        "MILABENCH_GPU_ARCH": "cuda",
    }
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    said = milabench("config", "show", *suite)
    assert yaml.safe_load(said.out)["system"] == {
        "arch": "cuda",
        "dirs": {"data": "/big/data"},
        "gpu": {"count": 8},
        "options": {"cpu": {"n_workers": 4}, "sizer": {"multiple": 8}, "torchrun": {"port": 29500}},
    }
