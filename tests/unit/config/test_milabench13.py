"""Suites and system files of milabench 1.3, form by form: what they mean here."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from milabench.config.definition import GitDefinition
from milabench.config.read import read_suite
from milabench.config.schema import Suite
from milabench.config.show import to_yaml
from milabench.config.source_map import BUILT_IN, Origins, located
from milabench.errors import ConfigError
from milabench.plan.sizing import parse_scaling, scaling_text, sizer_options

Read = Callable[..., Suite]


class EveryKey(frozenset[str]):
    """What a benchfile of another system declares."""

    def __contains__(self, key: object) -> bool:
        return True


def declared(folder: Path) -> frozenset[str] | None:
    """Folders named `theirs` hold benchfiles of milabench 1.3, others our own."""
    return EveryKey() if folder.name == "theirs" else frozenset({"model"})


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def read(text: str, *overrides: str, system: str | None = None) -> Suite:
        suite = tmp_path / "suite.yaml"
        suite.write_text(text)
        file = None if system is None else tmp_path / "system.yaml"
        if file is not None and system is not None:
            file.write_text(system)
        return read_suite([suite], system=file, overrides=overrides, declared=declared)

    return read


def told(error: pytest.ExceptionInfo[ConfigError]) -> list[str]:
    """The lines of an error, from the key on."""
    return [
        re.sub(r".*suite\.yaml:\d+:\d+: ", "", line)
        for line in str(error.value).splitlines()
        if "first given" not in line
    ]


# --- what is read ----------------------------------------------------------------------------------------------------


def test_the_url_is_text_or_a_list_and_shown_as_it_was_written(read: Read) -> None:
    suite = read("a: {definition: theirs, url: [https://x/1, https://x/2]}\nb: {definition: ours, url: https://x/3}")
    assert (suite.benchmarks["a"].url, suite.benchmarks["b"].url) == (("https://x/1", "https://x/2"), "https://x/3")
    shown = to_yaml(suite)
    assert "url: [" in shown
    assert read(shown).benchmarks == suite.benchmarks


def test_a_url_that_is_a_mapping_is_refused(read: Read) -> None:
    with pytest.raises(ConfigError) as error:
        read("a: {definition: theirs, url: {x: y}}")
    assert told(error) == ["a.url: expected text, got a mapping"]


def test_defaults_can_be_inherited_without_being_written(read: Read) -> None:
    assert read("a: {inherits: _defaults, definition: theirs}").benchmarks["a"].enabled
    own = read("_defaults: {max_duration: 60}\na: {inherits: _defaults, definition: theirs}")
    assert own.benchmarks["a"].max_duration == 60
    assert read("a: {inherits: _defaults, definition: theirs}", "_defaults.weight=2").benchmarks["a"].weight == 2


def test_a_template_that_many_inherit_and_that_is_not_there_is_told_once(read: Read) -> None:
    with pytest.raises(ConfigError) as error:
        read("a: {inherits: _timm}\nb: {inherits: _timm}\nc: {inherits: _hf}\nd: {definition: x}\nd: {definition: x}")
    assert told(error) == [
        "a.inherits: no benchmark or template named '_timm', which 1 more inherits. Define it, or include the file that does",
        "c.inherits: no benchmark or template named '_hf'. Define it, or include the file that does",
    ]


def test_a_repository_without_a_branch_means_its_main(read: Read) -> None:
    suite = read("a: {definition: {git: https://x/flops}}\nb: {definition: {git: https://x/flops, branch: dev}}")
    assert suite.benchmarks["a"].definition == GitDefinition(url="https://x/flops", branch="main")
    assert suite.benchmarks["b"].definition == GitDefinition(url="https://x/flops", branch="dev")


# --- keys that are not ours ------------------------------------------------------------------------------------------


def test_keys_for_foreign_code_are_kept_with_one_note_each(read: Read) -> None:
    suite = read(
        "_t: {definition: theirs, use_deepspeed: true}\n"
        "a: {inherits: _t, capabilities: {nodes: 1}, arg: x}\n"
        "b: {inherits: _t, capabilities: {nodes: 2}, use_deepspeed: false}\n"
    )
    assert suite.benchmarks["a"].options == {"use_deepspeed": True, "capabilities": {"nodes": 1}, "arg": "x"}
    assert suite.benchmarks["b"].options == {"use_deepspeed": False, "capabilities": {"nodes": 2}}
    lines = [str(warning).partition(": ")[2] for warning in suite.warnings]
    kept = "kept for its benchfile, which may read it"
    assert lines == [
        f"a: unknown key 'use_deepspeed', {kept}",
        f"a: unknown key 'capabilities', {kept}",
        f"a: unknown key 'arg', {kept}. Did you mean 'argv'?",
    ]
    assert read(to_yaml(suite)).benchmarks == suite.benchmarks


def test_an_image_that_milabench_13_ignores_is_ignored_and_shown(read: Read) -> None:
    suite = read("a: {definition: theirs, docker_image: x/y}\nb: {definition: ours, docker_image: x/y}")
    theirs, ours = suite.benchmarks["a"], suite.benchmarks["b"]
    assert (theirs.docker_image, theirs.options, ours.docker_image) == (None, {"docker_image": "x/y"}, "x/y")
    assert "docker_image: x/y" in to_yaml(suite, ["a"])
    (note,) = suite.warnings
    assert "a: 'docker_image' is ignored, as by milabench 1.3. To run it in a container, write container:" in str(note)


def test_an_unknown_key_of_one_of_our_benchmarks_is_an_error_all_the_same(read: Read) -> None:
    with pytest.raises(ConfigError) as error:
        read("a: {definition: theirs, capabilities: {}}\nb: {definition: ours, capabilities: {}}")
    assert told(error) == ["b: unknown key 'capabilities'. Did you mean 'requires_capabilities'?"]


def test_what_has_no_program_is_left_out_with_one_note_for_each_file(read: Read) -> None:
    names = [f"x{number}" for number in range(12)]
    suite = read("a: {definition: theirs}\n" + "".join(f"{name}: {{enabled: false}}\n" for name in names))
    assert list(suite.benchmarks) == ["a"]
    (note,) = suite.warnings
    said = "it is left out: it has neither a definition nor a command"
    assert str(note).endswith(f"2:5: x0: {said}, as are {', '.join(names[1:9])} and 3 more. Is its name right?")


# --- keys that are given twice ---------------------------------------------------------------------------------------


def test_of_a_key_that_is_given_twice_the_last_holds_in_a_suite_of_milabench_13(read: Read) -> None:
    suite = read("a: {definition: theirs, argv: {--b: 1, --c: 2,\n --b: 3}}\nd: {definition: theirs}\nd: {inherits: a}")
    assert suite.benchmarks["a"].argv == (("--b", 3), ("--c", 2))
    assert suite.benchmarks["d"].argv == (("--b", 3), ("--c", 2))
    lines = [line.partition("suite.yaml:")[2] for warning in suite.warnings for line in str(warning).splitlines()]
    assert lines == [
        "2:2: a.argv.--b: the key '--b' is given twice. The last value is used. Remove the others",
        "1:32",
        "4:1: d: the key 'd' is given twice. The last value is used. Remove the others",
        "3:1",
    ]


def test_of_a_key_that_is_given_twice_nothing_holds_in_a_suite_of_ours(read: Read) -> None:
    with pytest.raises(ConfigError) as error:
        read("a: {definition: ours, weight: 1, weight: 2, nonsense: 3}")
    assert told(error) == [
        "a: unknown key 'nonsense'. `milabench config schema` lists the keys",
        "a.weight: the key 'weight' is given twice. Remove a copy",
    ]


# --- files that are no suites ----------------------------------------------------------------------------------------


def test_a_system_file_without_its_root_is_read_with_a_note(read: Read) -> None:
    nodes = (
        "nodes:\n- {name: n1, ip: 10.0.0.1, main: true, user: x}\n- {name: n2, ip: 10.0.0.2, main: false, user: x}\n"
    )
    suite = read("a: {definition: theirs}", system=f"arch: cuda\n{nodes}")
    assert (suite.system.arch, [node.name for node in suite.system.nodes]) == ("cuda", ["n1", "n2"])
    (note,) = suite.warnings
    assert "system.yaml:1:1: the keys of a system, which are read as if they were below `system:`" in str(note)
    assert read(nodes).system.nodes == suite.system.nodes


def test_a_benchmark_may_have_the_name_of_a_key_of_a_system(read: Read) -> None:
    assert list(read("arch: {definition: theirs}\nnodes: {definition: theirs}").benchmarks) == ["arch", "nodes"]


def test_options_of_a_scheduler_by_name_are_no_suite_and_told_in_one_line(read: Read) -> None:
    with pytest.raises(ConfigError) as error:
        read("small: [--nodes=1]\nlarge: [--nodes=2]\nnamed: {cluster: x, args: [--nodes=2]}")
    assert told(error) == ["this is not a suite: 2 of its 3 keys hold lists. A benchmark is a name with keys below it"]


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("version: 1.0\na: {arg: --bs, model: {1: 100 MiB, 8: 800.5 MiB}, optimized: 8}", [(1, 100.0), (8, 800.0)]),
        (
            "a: {observations: [{batch_size: 8, cpu: 4, memory: 800 MiB, perf: 3.5, time: 1}]}\nversion: 2.0",
            [(8, 800.0)],
        ),
        ("version: 2.0\na: {}", []),
        ("a: {arg: --steps, optimized: 128}", []),
    ],
)
def test_files_of_batch_sizes_are_read_in_both_versions(text: str, sizes: list[tuple[int, float]]) -> None:
    scaling = parse_scaling(text.encode(), "scaling.yaml")
    assert [(one.batch_size, one.memory_mib) for one in scaling.observations["a"]] == sizes
    assert parse_scaling(scaling_text(scaling, {}).encode(), "again.yaml").observations == scaling.observations


def test_a_batch_size_that_is_none_is_told_with_its_place() -> None:
    with pytest.raises(ConfigError) as error:
        parse_scaling(b"a: {model: {many: 100 MiB}}", "scaling.yaml")
    assert str(error.value) == "scaling.yaml:1:19: a.model.many.batch_size: expected a whole number, got 'many'"


def test_the_capacity_to_fill_may_be_all() -> None:
    for capacity, mib in (("All", None), ("64Go", 61_035)):
        system = located({"options": {"sizer": {"auto": 1, "capacity": capacity}}}, BUILT_IN)
        assert sizer_options(Origins(system)).capacity_mib == mib
