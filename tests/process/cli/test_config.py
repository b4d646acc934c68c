"""`milabench config` and `milabench list`: what the suite means, where it comes from, what is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.commands import ROOT, Said

pytestmark = pytest.mark.turns(1)  # part of every `make test`

Milabench = Callable[..., Said]
QUICKSTART = ("--config", "config/quickstart.yaml")
IMAGINARY = ("--config", "tests/suite/imaginary.yaml", "--system", "tests/suite/two_nodes_of_8.yaml")
BROKEN = "tests/suite/broken"


def place(file: str, text: str) -> str:
    """`file:line:column` of the value after this key."""
    for number, line in enumerate((ROOT / file).read_text().splitlines(), 1):
        if text in line:
            return f"{file}:{number}:{line.index(text) + len(text) + 1}"
    raise AssertionError(f"{text!r} is not in {file}")


# --- show ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("--select", "digits,flops"), ["digits", "flops"]),
        (("--select", "rl or digits"), ["ppo", "digits"]),
        (("--select", "rl or digits", "--exclude", "ppo"), ["digits"]),
        (("digits", "flops", "--exclude", "flops"), None),
        (("flops",), ["flops"]),
    ],
)
def test_show_takes_a_selection_as_the_other_commands_do(
    milabench: Milabench, words: tuple[str, ...], names: list[str] | None
) -> None:
    said = milabench("config", "show", *QUICKSTART, *words)
    if names is None:
        assert (said.code, said.out) == (3, "")
    else:
        assert sorted(yaml.safe_load(said.out)) == sorted(names)


def test_show_takes_benchmarks_in_one_way(milabench: Milabench) -> None:
    said = milabench("config", "show", *QUICKSTART, "digits", "--select", "flops")
    assert (said.code, "not both ways" in said.err) == (2, True)
    assert list(yaml.safe_load(milabench("config", "show", *QUICKSTART, "digits", MILABENCH_SELECT="flops").out)) == [
        "digits"
    ]


# --- explain ---------------------------------------------------------------------------------------------------------


def test_explain_names_the_place_of_an_inherited_value(milabench: Milabench) -> None:
    said = milabench("config", "explain", "digits.max_duration", *QUICKSTART)
    assert said.out.splitlines() == [
        "digits.max_duration = 600",
        f"  set at {place('config/base.yaml', 'max_duration: ')}",
    ]


def test_explain_after_an_override_names_both(milabench: Milabench) -> None:
    said = milabench("config", "explain", "digits.max_duration", *QUICKSTART, "--override", "digits.max_duration=5")
    assert said.out.splitlines() == [
        "digits.max_duration = 5",
        "  set at --override 'digits.max_duration=5'",
        f"  replaces 600, set at {place('config/base.yaml', 'max_duration: ')}",
    ]


def test_explain_shows_what_placeholders_and_functions_become(milabench: Milabench) -> None:
    said = milabench(
        "config", "explain", "convnet.argv.--data", "chat.client.argv.--num-prompts", *IMAGINARY, "--base", "/b"
    )
    lines = said.out.splitlines()
    assert "  {milabench_data} is /b/data" in lines
    assert "  expr(min({gpu_count} * 100, 500)) is 500" in lines


def test_explain_of_an_unknown_key_names_the_nearest(milabench: Milabench) -> None:
    said = milabench("config", "explain", "digits.max_duratoin", *QUICKSTART)
    assert said.code == 2
    assert said.err == "error: 'digits.max_duratoin' is not set. Did you mean 'max_duration'?\n"


# --- check and schema ------------------------------------------------------------------------------------------------


def test_check_tells_every_problem_of_every_file_at_once(milabench: Milabench) -> None:
    said = milabench("config", "check", BROKEN)
    assert said.code == 2
    files = sorted((ROOT / BROKEN).iterdir())
    for file in files:
        assert f"error: {BROKEN}/{file.name}:" in said.err, file.name
    assert said.err.splitlines()[-1] == f"error: {len(files)} of {len(files)} files cannot be used"


@pytest.mark.parametrize(
    ("file", "what"),
    [
        ("unknown_key.yaml", "3:3: a: unknown key 'max_durration'. Did you mean 'max_duration'?"),
        ("wrong_type.yaml", "3:17: a.max_duration: expected a number of seconds, got 'ten'"),
        ("duplicate_key.yaml", "4:3: a.weight: the key 'weight' is given twice"),
        ("missing_include.yaml", "1:10: include: the included file cannot be read (no such file or directory)"),
        ("include_cycle.yaml", "include_cycle_2.yaml:1:10: include: the includes form a cycle"),
        ("inherit_cycle.yaml", "3:16: _c.inherits: the inheritance forms a cycle"),
        ("missing_parent.yaml", "2:15: a.inherits: no benchmark or template named '_resnet50'"),
        ("placeholder.yaml", "4:13: a.argv.--data: the placeholder {milabench_dta} cannot be resolved"),
        ("expression.yaml", "4:7: a.requires_capabilities.0: in the expression"),
        ("matrix_too_large.yaml", "3:5: a.matrix: 110000 benchmarks are more than the limit of 20000"),
        ("not_utf8.yaml", "2:18: not UTF-8"),
        ("aliases.yaml", "6:21: _f.k.2: aliases expand to more than"),
        ("merge_keys.yaml", "1:14: _a.<<: << takes a mapping"),
    ],
)
def test_each_kind_of_problem_has_its_line(milabench: Milabench, file: str, what: str) -> None:
    said = milabench("config", "check", f"{BROKEN}/{file}")
    assert said.code == 2
    assert what in said.err.splitlines()[0]


def test_check_finds_what_only_planning_would(milabench: Milabench, tmp_path: Path) -> None:
    suite = tmp_path / "suite.yaml"
    suite.write_text(
        "system: {options: {sizer: {mutl: 2}}}\n"
        "a: {definition: x, dirs: {venv: /v}, env: {A: '{nowhere}'}, requires_capabilities: ['gpus > 1']}\n"
        "b: {definition: x, plan: {method: multigpu, launcher: mpi}}\n"
    )
    said = milabench("config", "check", str(suite))
    assert said.code == 2
    assert [line.split(": ")[2] for line in said.err.splitlines()[:-1]] == [
        "system.options.sizer",
        "a.dirs.venv",
        "a.env.A",
        "a.requires_capabilities",
        "b.plan.launcher",
    ]


def test_check_passes_what_is_in_order(milabench: Milabench) -> None:
    suites = ("imaginary.yaml", "two_nodes_of_8.yaml", "multirun.yaml", "odd.yaml", "sized.yaml")
    said = milabench("config", "check", "config", *(f"tests/suite/{name}" for name in suites))
    assert (said.code, said.out) == (0, "")
    assert said.err.endswith("files are valid\n")


def test_a_file_without_benchmarks_is_said_to_hold_none(milabench: Callable[..., Said], tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("profile: quick\n")
    said = milabench("config", "check", str(tmp_path / "empty.yaml"))
    assert (said.code, "empty.yaml: has no benchmark" in said.err) == (0, True)


def test_more_jobs_can_be_allowed(milabench: Milabench, tmp_path: Path) -> None:
    suite = tmp_path / "suite.yaml"
    suite.write_text("m: {matrix: {x: [1, 2, 3]}, job: {name: 'm{x}', definition: x}}")
    said = milabench("list", "--config", str(suite), "--max-benchmarks", "2")
    assert said.code == 2
    assert "Allow them with --max-benchmarks 3" in said.err
    assert milabench("list", "--config", str(suite), "--max-benchmarks", "3").code == 0


def test_the_schema_in_the_documentation_is_current(milabench: Milabench) -> None:
    assert milabench("config", "schema").out == (ROOT / "config" / "schemas" / "suite.schema.json").read_text(), (
        "run `make docs`"
    )


def test_the_reference_page_of_the_keys_is_current(milabench: Milabench) -> None:
    page = (ROOT / "docs" / "reference" / "suite-keys.md").read_text()
    assert milabench("config", "schema", "--markdown").out == page, "run `make docs`"


def test_the_schema_is_one_that_editors_take_and_knows_every_key_of_our_suites(milabench: Milabench) -> None:
    schema = json.loads(milabench("config", "schema").out)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    known = set(schema["$defs"]["benchmark"]["properties"])
    for file in (ROOT / "config").glob("*.yaml"):
        for name, bench in yaml.safe_load(file.read_text()).items():
            if name not in schema["properties"]:
                # What is left are keys that the benchmark's benchfile declares.
                assert set(bench) - known <= {"model", "documents", "modes", "ops", "backward"}, f"{file.name}: {name}"


# --- show and list ---------------------------------------------------------------------------------------------------


def test_show_of_some_benchmarks_shows_those(milabench: Milabench) -> None:
    shown = yaml.safe_load(milabench("config", "show", "digits", "flops", *QUICKSTART).out)
    assert list(shown) == ["digits", "flops"]
    assert shown["flops"]["weight"] == 0.5


@pytest.mark.parametrize(
    ("select", "exclude", "names"),
    [
        ("vision and not sweep", None, {"convnet", "jobs"}),
        ("finetune-*", "finetune-rack,multinode and finetune-a*", {"finetune-gpus", "finetune-nodes"}),
        ("llm and (inference or multigpu) and not multinode", None, {"chat", "finetune-gpus"}),
        ("jobs,chat", None, {"jobs", "chat"}),
        ("retired", None, {"retired"}),
        (None, "torch,sweep", {"chat", "copy-speed"}),
    ],
)
def test_selections(milabench: Milabench, select: str | None, exclude: str | None, names: set[str]) -> None:
    words = [*(("--select", select) if select else ()), *(("--exclude", exclude) if exclude else ())]
    said = milabench("list", *IMAGINARY, *words, "--json")
    assert said.code == 0, said.err
    assert {row["name"] for row in json.loads(said.out)["benchmarks"]} == names


def test_each_repeated_selection_adds_its_benchmarks(milabench: Milabench) -> None:
    words = ("--select", "vision and not sweep", "--select", "chat", "--select", "llm,", "--exclude", "chat")
    said = milabench("list", *IMAGINARY, *words, "--exclude", "finetune-a* or finetune-n*", "--json")
    assert said.code == 0, said.err
    assert {row["name"] for row in json.loads(said.out)["benchmarks"]} == {
        "convnet",
        "jobs",
        "finetune-gpus",
        "finetune-rack",
    }


def test_a_row_of_the_list_has_what_the_documentation_says(milabench: Milabench) -> None:
    (row,) = json.loads(milabench("list", *IMAGINARY, "--select", "jobs", "--json").out)["benchmarks"]
    assert row == {
        "name": "jobs",
        "about": "",  # its folder has no README
        "minutes": None,
        "data_MiB": None,
        "environment_MiB": None,
        "enabled": True,
        "plan": "njobs x 2",
        "weight": 1.0,
        "group": "vision",
        "install_group": "torch",
        "tags": ["vision"],
        "num_machines": 1,
        "shims": [],  # stand-ins for what its packages lack in its environment
    }


@pytest.mark.parametrize("verb", ["list", "run", "install", "prepare"])
def test_nothing_selected_is_exit_code_3_with_the_nearest_names(milabench: Milabench, verb: str) -> None:
    said = milabench(verb, *QUICKSTART, "--select", "digist")
    assert said.code == 3
    assert said.err == "error: unknown benchmark, group or tag 'digist'. Did you mean 'digits'?\n"
