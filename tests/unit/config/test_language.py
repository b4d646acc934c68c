"""The suite language, from files and overrides to benchmarks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milabench.config.definition import GitDefinition, PyPIDefinition
from milabench.config.kinds import capacity_mib
from milabench.config.read import read_suite
from milabench.config.schema import BENCHMARK, BenchmarkConfig, Suite
from milabench.errors import ConfigError
from tests.examples import examples


class Files:
    """Writes suite files and reads them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def suite(self, text: str, *overrides: str, **more: Any) -> Suite:
        return read_suite([self.write("suite.yaml", text)], overrides=overrides, **more)

    def bench(self, text: str, *overrides: str, name: str = "a", **more: Any) -> BenchmarkConfig:
        return self.suite(text, *overrides, **more).benchmarks[name]

    def error(self, text: str, *overrides: str, **more: Any) -> str:
        with pytest.raises(ConfigError) as caught:
            self.suite(text, *overrides, **more)
        return str(caught.value).replace(f"{self.folder}/", "")


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


# --- files ---------------------------------------------------------------------------------------------------------


def test_defaults_are_filled_in(files: Files) -> None:
    bench = files.bench("a: {definition: x}", detected_arch="rocm")
    shown = (bench.group, bench.install_group, bench.install_variant, bench.max_duration, bench.weight, bench.enabled)
    assert shown == ("a", "a", "rocm", 600, 0.0, True)


def test_install_group_defaults_to_the_group(files: Files) -> None:
    assert files.bench("a: {definition: x, group: g}").install_group == "g"


def test_includes_come_first_depth_first_and_relative_to_the_including_file(files: Files) -> None:
    files.write("sub/base.yaml", "include: deeper.yaml\na: {definition: x, weight: 1, max_duration: 1}\n")
    files.write("sub/deeper.yaml", "a: {weight: 9, max_duration: 9, url: u}\n")
    bench = files.bench("include: [sub/base.yaml]\na: {weight: 2}\n")
    assert (bench.weight, bench.max_duration, bench.url) == (2, 1, "u")


def test_later_files_win(files: Files) -> None:
    first, second = files.write("1.yaml", "a: {definition: x, weight: 1}"), files.write("2.yaml", "a: {weight: 2}")
    assert read_suite([first, second]).benchmarks["a"].weight == 2


def test_a_definition_is_relative_to_the_file_that_wrote_it(files: Files) -> None:
    files.write("sub/base.yaml", "_t: {definition: ../benchmarks/x}\n")
    assert files.bench("include: sub/base.yaml\na: {inherits: _t}").definition == files.folder / "benchmarks" / "x"


def test_a_definition_may_be_in_git_or_on_the_index(files: Files) -> None:
    suite = files.suite("a: {definition: {git: u/r.git, rev: abc}}\nb: {definition: {pypi: p, version: 1.2}}")
    assert [bench.definition for bench in suite.benchmarks.values()] == [
        GitDefinition(url="u/r.git", rev="abc"),
        PyPIDefinition(project="p", version="1.2"),
    ]


def test_the_files_that_were_read_are_listed_once_each(files: Files) -> None:
    files.write("base.yaml", "_x: {}")
    suite = files.suite("include: [base.yaml, base.yaml]\na: {definition: x}")
    assert [path.name for path in suite.files] == ["suite.yaml", "base.yaml"]


def test_what_has_neither_definition_nor_command_is_left_out_with_a_warning(files: Files) -> None:
    suite = files.suite("a: {definition: x}\nb: {enabled: true}")
    assert list(suite.benchmarks) == ["a"]
    assert "it has neither a definition nor a command" in str(suite.warnings[0])


# --- inheritance ---------------------------------------------------------------------------------------------------

CHAIN = """
_base: {definition: x, tags: [t1], weight: 1, argv: {--a: 1, --b: 1}}
_mid: {inherits: _base, tags: [t2], weight: 2, argv: {--b: 2, --c: 2}}
a: {inherits: _mid, tags: [t3, t1], argv: {--c: 3}}
"""


def test_the_child_wins_along_the_chain_and_tags_are_united(files: Files) -> None:
    bench = files.bench(CHAIN)
    assert (bench.weight, bench.tags, bench.argv) == (2, ("t1", "t2", "t3"), (("--a", 1), ("--b", 2), ("--c", 3)))


def test_templates_are_no_benchmarks(files: Files) -> None:
    assert list(files.suite(CHAIN).benchmarks) == ["a"]


def test_a_missing_parent_is_an_error_with_the_nearest_name(files: Files) -> None:
    text = files.error("_resnet18: {definition: x}\na: {inherits: _resnet50}")
    assert text == (
        "suite.yaml:2:15: a.inherits: no benchmark or template named '_resnet50'. Did you mean '_resnet18'?"
    )


def test_the_star_is_merged_into_every_benchmark_last(files: Files) -> None:
    suite = files.suite('"*": {max_duration: 5}\na: {definition: x, max_duration: 9}\nb: {inherits: a}')
    assert [bench.max_duration for bench in suite.benchmarks.values()] == [5, 5]


def test_delete_takes_away_what_a_parent_gives(files: Files) -> None:
    bench = files.bench(
        "_t: {definition: x, url: u, argv: {--a: 1, --b: 2}}\na: {inherits: _t, url: !delete , argv: {--a: !delete }}"
    )
    assert (bench.url, bench.argv) == ("", (("--b", 2),))


@pytest.mark.parametrize(("dirs", "data"), [("null", "{milabench_data}"), ("{cache: /c}", "/x"), ("{data: /y}", "/y")])
def test_folders_that_are_taken_back_are_the_default_ones(files: Files, dirs: str, data: str) -> None:
    parent = "_t: {definition: x, dirs: {data: /x}, argv: {--data: '${dirs.data}'}}"
    assert files.bench(f"{parent}\na: {{inherits: _t, dirs: {dirs}}}").argv == (("--data", data),)


def test_a_long_chain_of_parents_resolves(files: Files) -> None:
    links = "\n".join(f"_t{n}: {{inherits: _t{n + 1}}}" for n in range(3000))
    assert files.bench(f"a: {{inherits: _t0}}\n{links}\n_t3000: {{definition: x, weight: 7}}").weight == 7


# --- overrides -----------------------------------------------------------------------------------------------------


def test_an_override_of_a_template_reaches_its_children_and_loses_to_them(files: Files) -> None:
    bench = files.bench(CHAIN, "_base.argv.--a=9", "_base.argv.--b=9", "_base.max_duration=9")
    assert (bench.argv, bench.max_duration) == ((("--a", 9), ("--b", 2), ("--c", 3)), 9)


def test_an_override_that_names_a_benchmark_wins_over_everything(files: Files) -> None:
    text = '"*": {max_duration: 5}\na: {definition: x, max_duration: 9}\nb: {inherits: a}'
    suite = files.suite(text, "a.max_duration=1", "*.weight=3", "a.weight=4")
    assert [(bench.max_duration, bench.weight) for bench in suite.benchmarks.values()] == [(1, 4), (5, 3)]


def test_an_override_of_a_parent_benchmark_reaches_its_children(files: Files) -> None:
    suite = files.suite("a: {definition: x}\nb: {inherits: a}", "a.url=u")
    assert [bench.url for bench in suite.benchmarks.values()] == ["u", "u"]


@pytest.mark.parametrize(
    ("override", "argv"),
    [
        ("bert-fp16.argv.--batch-size=8", (("--batch-size", 8),)),
        ("bert-fp16.argv.--batch-size='8'", (("--batch-size", "8"),)),
        ("bert-fp16.argv.--batch-size=[1, 2]", (("--batch-size", (1, 2)),)),
        ("bert-fp16.argv.--batch-size=", (("--batch-size", None),)),
        ("bert-fp16.argv.--batch-size=!delete", ()),
        ("bert-fp16.argv.--other=a=b", (("--batch-size", 1), ("--other", "a=b"))),
        ('bert-fp16.argv."train.lr=1"=true', (("--batch-size", 1), ("train.lr=1", True))),
        ("bert-fp16.argv={--x: 1}", (("--batch-size", 1), ("--x", 1))),
        ("bert-fp16.argv=[--x]", ("--x",)),
    ],
)
def test_an_override_names_any_key_and_its_value_is_yaml(files: Files, override: str, argv: Any) -> None:
    text = "bert-fp16: {definition: x, argv: {--batch-size: 1}}"
    assert files.bench(text, override, name="bert-fp16").argv == argv


def test_an_override_finds_names_with_dots_and_names_of_jobs(files: Files) -> None:
    text = "v1.2: {definition: x}\nm: {matrix: {lr: [0.1, 0.2]}, job: {name: 'm-lr{lr}', definition: x}}"
    suite = files.suite(text, "v1.2.weight=1", "m-lr0.1.weight=2", "m.job.url=u")
    assert [(bench.weight, bench.url) for bench in suite.benchmarks.values()] == [(1, ""), (2, "u"), (0.0, "u")]


def test_an_override_can_change_the_parent(files: Files) -> None:
    assert (
        files.bench("_p: {definition: x}\n_q: {definition: y, weight: 3}\na: {inherits: _p}", "a.inherits=_q").weight
        == 3
    )


def test_an_override_that_appends_does_so_once(files: Files) -> None:
    text = "a: {definition: x, tags: [t]}\nb: {inherits: a}"
    suite = files.suite(text, "a.tags={append: [u]}")
    assert [bench.tags for bench in suite.benchmarks.values()] == [("t", "u"), ("t", "u")]


def test_an_override_of_an_unknown_benchmark_is_an_error_with_the_nearest_name(files: Files) -> None:
    text = files.error("resnet50: {definition: x}", "resnet5.weight=1")
    assert text == "--override 'resnet5.weight=1': no benchmark or template named 'resnet5'. Did you mean 'resnet50'?"


@pytest.mark.parametrize("override", ["a", "=1", "a..b=1", "a.=1", "a=1", "a.x=[", ".a=1", 'a."x=1', "include=x"])
def test_an_override_that_cannot_be_read_is_an_error(files: Files, override: str) -> None:
    assert files.error("a: {definition: x}", override).startswith("--override ")


def test_an_override_on_whose_value_yaml_1_1_and_1_2_disagree_is_warned_about(files: Files) -> None:
    assert [warning.where for warning in files.suite("a: {definition: x}", "a.enabled=no").warnings] == [
        "--override 'a.enabled=no'"
    ]


def test_the_system_and_the_profile_can_be_overridden(files: Files) -> None:
    suite = files.suite("a: {definition: x, url: '${system.arch}'}", "system.arch=xpu", "profile=quick")
    assert (suite.system.arch, suite.profile, suite.benchmarks["a"].url) == ("xpu", "quick", "xpu")


# --- errors --------------------------------------------------------------------------------------------------------


def test_a_wrong_value_is_told_with_its_place_and_the_value_that_it_replaces(files: Files) -> None:
    files.write("base.yaml", "resnet50:\n  definition: x\n  max_duration: 600\n")
    assert files.error("include: base.yaml\nresnet50:\n  max_duration: ten\n") == (
        "suite.yaml:3:17: resnet50.max_duration: expected a number of seconds, got 'ten'\n"
        "       it replaces 600, set at base.yaml:3:17"
    )


def test_an_unknown_key_is_told_with_its_place_and_the_nearest_one(files: Files) -> None:
    assert files.error("a:\n  definition: x\n  max_durration: 3\n") == (
        "suite.yaml:3:3: a: unknown key 'max_durration'. Did you mean 'max_duration'?"
    )


def test_all_problems_are_told_at_once(files: Files) -> None:
    text = files.error("a: {definition: x, weight: no-number}\nb: {inherits: c}\nd: 3\n", "e.weight=1")
    assert [line.split(": ")[0] for line in text.split("\nerror: ")] == [
        "suite.yaml:3:4",
        "--override 'e.weight=1'",
        "suite.yaml:2:15",
        "suite.yaml:1:28",
    ]


def test_a_problem_of_a_template_is_told_once_for_all_its_children(files: Files) -> None:
    text = files.error(
        "_t: {definition: x, plan: {method: nowhere}}\n" + "\n".join(f"b{n}: {{inherits: _t}}" for n in range(9))
    )
    assert text.count("plan.method") == 1


def test_keys_that_a_benchfile_declares_are_kept(files: Files) -> None:
    bench = files.bench("a: {definition: x, use_deepspeed: true}", declared=lambda folder: frozenset(["use_deepspeed"]))
    assert bench.options == {"use_deepspeed": True}


def test_a_key_that_no_benchfile_can_be_asked_about_is_kept_with_a_warning(files: Files) -> None:
    suite = files.suite("a: {definition: x, use_deepspeed: true}", declared=lambda folder: None)
    assert suite.benchmarks["a"].options == {"use_deepspeed": True}
    assert "unknown key 'use_deepspeed'" in str(suite.warnings[0])


def test_a_slip_is_an_error_even_where_no_benchfile_can_be_asked(files: Files) -> None:
    text = files.error("a: {definition: x, max_durration: 3}", declared=lambda folder: None)
    assert "Did you mean 'max_duration'?" in text


def test_an_unknown_key_of_a_template_without_children_is_an_error(files: Files) -> None:
    assert "_t: unknown key 'wieght'. Did you mean 'weight'?" in files.error("_t: {wieght: 1}\na: {definition: x}")
    assert "a: unknown key 'use_deepspeed'" in files.error("a: {command: x, use_deepspeed: 1}")
    assert files.error('"a\\nb": {command: x}').count("\n") == 0


def test_the_same_file_twice_in_a_chain_of_includes_is_told_with_the_chain(files: Files) -> None:
    files.write("b.yaml", "include: suite.yaml")
    text = files.error("include: b.yaml")
    assert text == "b.yaml:1:10: include: the includes form a cycle: suite.yaml -> b.yaml -> suite.yaml"


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be read: no such file or directory. Is the path right"):
        read_suite([tmp_path / "nowhere.yaml"])
    with pytest.raises(ConfigError, match="cannot be read: is a directory"):
        read_suite([tmp_path])


def test_includes_without_end_are_refused(files: Files) -> None:
    for number in range(12):
        files.write(f"f{number}.yaml", f"include: [f{number + 1}.yaml, f{number + 1}.yaml, f{number + 1}.yaml]")
    files.write("f12.yaml", "")
    assert "more than 1000 files are included" in files.error("include: f0.yaml")


def test_files_that_include_one_another_in_a_long_chain_are_refused(files: Files) -> None:
    for number in range(985):
        files.write(f"f{number}.yaml", f"include: f{number + 1}.yaml")
    files.write("f985.yaml", "")
    assert "files include each other more than 100 deep: suite.yaml -> f0.yaml -> " in files.error("include: f0.yaml")
    assert not files.suite("include: f890.yaml").benchmarks


# --- values --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "argv"),
    [
        ("{--a: null, --b: true, --c: false}", (("--a", None), ("--b", True), ("--c", False))),
        ("{--l: [1, x, 2.5]}", (("--l", (1, "x", 2.5)),)),
        ("{'--': [-params, n_envs:16]}", (("--", ("-params", "n_envs:16")),)),
        ("[--lr, 1e-5, 3, true]", ("--lr", "1e-5", "3", "True")),
    ],
)
def test_arguments_keep_their_order_and_their_values(files: Files, written: str, argv: Any) -> None:
    assert files.bench(f"a: {{definition: x, argv: {written}}}").argv == argv


def test_a_benchmark_may_have_a_server_a_client_a_command_and_metrics(files: Files) -> None:
    bench = files.bench(
        "a: {command: run it, shell: true, server: {argv: [s], ready: 80}, client: {argv: {-c: 1}}, "
        "metrics: {speed: {pattern: '(.*) GB', direction: higher}}}"
    )
    assert (bench.command, bench.shell, bench.definition) == (("run it",), True, None)
    assert bench.server is not None and (bench.server.argv, bench.server.ready.condition) == (("s",), "80")
    assert bench.client is not None and bench.client.argv == (("-c", 1),)
    assert (bench.metrics["speed"].reduce, bench.metrics["speed"].direction) == ("last", "higher")


def test_a_plan_keeps_the_keys_that_a_launcher_understands(files: Files) -> None:
    plan = files.bench("a: {definition: x, plan: {method: njobs, n: 2, mixed_precision: bf16}}").plan
    assert (plan.method, plan.n, plan.extra) == ("njobs", 2, {"mixed_precision": "bf16"})


def test_the_reference_spelling_of_a_method_is_understood(files: Files) -> None:
    assert files.bench("a: {definition: x, plan: {method: per-gpu}}").plan.method == "per_gpu"


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("80 GiB", 81920),
        ("4Go", 3814),
        ("1 MB", 0),
        ("81559 MiB", 81559),
        ("2048", 2048),
        ("1.5TiB", 1572864),
        ("All", None),
    ],
)
def test_amounts_of_memory_are_understood(text: str, mib: int | None) -> None:
    assert capacity_mib(text) == mib


# --- system files --------------------------------------------------------------------------------------------------

SYSTEM = """
system:
  arch: cuda
  docker_image: image:${system.arch}-nightly
  docker: {base: /w, args: ['${system.docker.base}/data']}
  gpu: {count: 8, capacity: 80 GiB}
  nodes:
    - {name: n1, ip: 10.0.0.2, user: u}
    - {name: n0, ip: 10.0.0.1, main: true, sshport: 5000}
  price: {hour: 3.5}
multirun:
  runs: [{name: "bs{sizer.mult}", matrix: {sizer.auto: 1, sizer.mult: [0.5, 2]}}]
"""


def test_a_system_file_says_what_the_machines_are(files: Files) -> None:
    system = read_suite([files.write("s.yaml", "a: {definition: x}")], system=files.write("sys.yaml", SYSTEM)).system
    assert [(node.name, node.port, node.main) for node in system.nodes] == [("n0", 5000, True), ("n1", 22, False)]
    assert (system.arch, system.gpu.count, system.gpu.capacity_mib) == ("cuda", 8, 81920)
    assert (system.docker_image, system.extra["docker"]["args"]) == ("image:cuda-nightly", ["/w/data"])
    assert system.extra["price"] == {"hour": 3.5}


def test_the_arch_is_detected_where_the_system_file_is_silent(files: Files) -> None:
    suite = files.suite("a: {definition: x, url: '${system.arch}'}", detected_arch="hpu")
    assert (suite.system.arch, suite.benchmarks["a"].url, suite.system.raw["arch"]) == (None, "hpu", "hpu")


def test_a_benchmark_in_a_system_file_is_an_error(files: Files) -> None:
    with pytest.raises(ConfigError, match="unknown key 'a' in a system file"):
        read_suite([files.write("s.yaml", "a: {definition: x}")], system=files.write("sys.yaml", "a: {definition: x}"))


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ("[{name: a, ip: i}, {name: a, ip: j}]", "two nodes are named 'a'"),
        ("[{ip: i, main: true}, {ip: j, main: true}]", "2 nodes are main"),
        ("[{name: a}]", "the key 'ip' is missing"),
        ("[{name: a, ip: i, main: false}, {name: b, ip: j}]", "none of a, b is main"),
        ("[{name: ../a, ip: i}]", "nodes.0.name: expected a name of letters, digits and . _ - : @, got '../a'"),
        ("[{name: '', ip: ''}]", "nodes.0.name: expected a name of letters, digits and . _ - : @, got ''"),
        ("[{name: a, ip: '-oProxyCommand=x'}]", "nodes.0.ip: expected an address, which has no - at its start, got '-"),
        ("[{name: a, ip: '\\${x}'}]", "nodes.0.ip: expected an address, which has no - at its start, got '${x}'"),
        ("[{name: a, ip: i, user: '-x y'}]", "nodes.0.user: expected a user, with no - at the start, got '-x y'"),
        (
            "[{name: a, ip: i, proxy_jump: 'b c'}]",
            "nodes.0.proxy_jump: expected a jump host, user@host:port, got 'b c'",
        ),
        ("[{name: a, ip: i, base: '~/x'}]", "nodes.0.base: expected an absolute path, got '~/x'"),
        ("[{ip: i, port: 0}]", "expected a port that is at least 1, got 0"),
        ("[{ip: i, prot: 22}]", "unknown key 'prot'. Did you mean 'port'?"),
    ],
)
def test_a_wrong_node_is_an_error(files: Files, nodes: str, message: str) -> None:
    assert message in files.error(f"a: {{definition: x}}\nsystem: {{nodes: {nodes}}}")


@pytest.mark.parametrize("url", ["x", "${system.arch}", "a {a} ${.group}, ${system.arch}"])
def test_reading_a_suite_imports_no_omegaconf_unless_more_than_a_key_is_referred_to(tmp_path: Path, url: str) -> None:
    suite = tmp_path / "s.yaml"
    suite.write_text(f"a: {{definition: x, url: '{url}'}}")
    program = (
        "import sys; from pathlib import Path; from milabench.config.read import read_suite; "
        f"read_suite([Path({str(suite)!r})]); "
        "print([name for name in ('omegaconf', 'rich', 'asyncssh') if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


FRAGMENTS = {
    "names": ["a", "_t", "*", "m", "include", "system", "multirun", "profile"],
    "keys": [*BENCHMARK.keys, "job", "name", "append", "x"],
    "scalars": [
        "_t",
        "a",
        "${a}",
        "${.x}",
        "{x}",
        "x",
        "",
        None,
        0,
        -1,
        1.5,
        True,
        "!",
        "per_gpu",
        "len(nodes) > 1",
        "~",
        "(",
    ],
}
VALUES = st.recursive(
    st.sampled_from(FRAGMENTS["scalars"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(FRAGMENTS["keys"]), inner, max_size=3)
    ),
    max_leaves=8,
)
BENCHMARKS = st.dictionaries(st.sampled_from(FRAGMENTS["keys"]), VALUES, max_size=5)


@examples(400)
@given(
    st.dictionaries(st.sampled_from(FRAGMENTS["names"]), st.one_of(BENCHMARKS, VALUES), max_size=4),
    st.lists(
        st.sampled_from(
            ["a.argv.x=1", "*.tags={append: [u]}", "_t.inherits=a", "m.job=", "a=!delete", "system.nodes=3"]
        ),
        max_size=2,
    ),
)
def test_no_suite_crashes_the_reader(
    tmp_path_factory: pytest.TempPathFactory, content: dict[str, Any], overrides: list[str]
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_text(json.dumps(content), encoding="utf-8")
    try:
        read_suite([path], overrides=overrides)
    except ConfigError as error:
        assert str(error)


def test_a_key_of_the_system_at_a_node_is_warned_about_and_others_are_not(tmp_path: Path) -> None:
    file = tmp_path / "system.yaml"
    file.write_text(
        "system:\n  nodes:\n  - {name: a, ip: h, interface: eth0, transport: openssh, sshport: 23}\n"
        "  - ip: g\n    sshkey: k\na: {command: x}\n"
    )
    warned = [str(warning).replace(f"{file}:", "") for warning in read_suite([file]).warnings]
    assert warned == [
        "3:39: system.nodes.0.transport: does nothing at a node. Write it as system.transport, for all nodes",
        "5:5: system.nodes.1.sshkey: does nothing at a node. Write it as system.sshkey, for all nodes",
    ]


def test_a_benchmark_that_only_appends_is_no_mapping(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("a: {append: [1]}\nb: {command: x, inherits: a}\n")
    with pytest.raises(ConfigError, match=r"s\.yaml:1:4: a: expected a mapping, got a list to append"):
        read_suite([file])


COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_what_people_read_of_a_benchmark_is_merged_like_any_key(files: Files) -> None:
    text = """
_base: {definition: x, describe: {model: decoder, unit: tokens}, tags: [x]}
a: {inherits: _base, describe: {parameters: 1.1 B, mlperf: [llama31_8b]}}
"""
    describe = files.bench(text).describe
    assert (describe.model, describe.parameters, describe.unit, describe.mlperf) == (
        "decoder",
        "1.1 B",
        "tokens",
        ("llama31_8b",),
    )


def test_gated_weights_are_named_by_a_commit_and_by_the_page_of_their_terms(files: Files) -> None:
    gated = files.bench(f"a: {{definition: x, gated: {{repository: o/n, revision: {COMMIT}}}}}").gated
    assert gated is not None
    assert gated.page == "https://huggingface.co/o/n"
    with pytest.raises(ConfigError, match=r"a\.gated\.revision: expected a full commit, 40 digits .* got 'main'"):
        files.bench("a: {definition: x, gated: {repository: o/n, revision: main}}")


def test_the_benchmark_for_which_there_is_no_more_room_is_named(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("milabench.config.layers.MAX_VALUES", 30)
    text = "_t:\n  definition: x\n  env: {A: 1, B: 2, C: 3}\n" + "".join(f"b{n}: {{inherits: _t}}\n" for n in range(4))
    assert (
        "suite.yaml:6:5: b2: with it, the benchmarks have more than 30 values, inherited ones included"
        in files.error(text)
    )
