"""One benchmark at several sizes: which keys hold, what wins over what, what is told of a mistake."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from milabench.cli import run
from milabench.config.read import read_suite
from milabench.config.schema import BenchmarkConfig, Suite
from milabench.config.select import select
from milabench.config.show import explain, to_yaml
from milabench.config.sizes import SIZES
from milabench.errors import ConfigError

SUITE = """\
_t:
  definition: x
  tags: [language]
  argv: {--lr: 1, --batch: 8}
  sizes:
    device: {argv: {--batch: 64}, weight: 2}
dpo:
  inherits: _t
  argv: {--seed: 3}
  sizes:
    tiny: {argv: {--batch: 2}, tags: [small], max_duration: 20}
    device: {argv: {--hidden: 4096}}
    node: {plan: {method: multigpu}}
    cluster: {plan: {method: multinode}}
"""


class Read:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def suite(self, text: str, *overrides: str, name: str = "suite.yaml", **more: Any) -> Suite:
        path = self.folder / name
        path.write_text(text)
        return read_suite([path], overrides=overrides, **more)

    def bench(self, text: str, *overrides: str, **more: Any) -> BenchmarkConfig:
        return self.suite(text, *overrides, **more).benchmarks["dpo"]

    def error(self, text: str, *overrides: str, **more: Any) -> str:
        with pytest.raises(ConfigError) as caught:
            self.suite(text, *overrides, **more)
        return str(caught.value).replace(f"{self.folder}/", "")

    def unusable(self, text: str, *overrides: str, **selection: str) -> str:
        with pytest.raises(ConfigError) as caught:
            select(self.suite(text, *overrides), **selection)
        return str(caught.value).replace(f"{self.folder}/", "")


@pytest.fixture
def read(tmp_path: Path) -> Read:
    return Read(tmp_path)


@pytest.mark.parametrize(
    ("size", "argv", "method"),
    [
        ("tiny", {"--lr": 1, "--batch": 2, "--seed": 3}, "per_gpu"),
        ("device", {"--lr": 1, "--batch": 64, "--seed": 3, "--hidden": 4096}, "per_gpu"),
        ("node", {"--lr": 1, "--batch": 64, "--seed": 3, "--hidden": 4096}, "multigpu"),
        ("cluster", {"--lr": 1, "--batch": 64, "--seed": 3, "--hidden": 4096}, "multinode"),
    ],
)
def test_a_size_is_laid_over_the_benchmark(read: Read, size: str, argv: dict[str, int], method: str) -> None:
    for bench in (read.bench(SUITE, f"size={size}"), read.bench(f"size: {size}\n{SUITE}")):
        assert (dict(bench.argv), bench.plan.method, bench.size) == (argv, method, size)


def test_a_node_is_the_device_with_more_over_all_devices(read: Read) -> None:
    assert [read.bench(SUITE, f"size={size}").weight for size in ("tiny", "device", "node", "cluster")] == [0, 2, 2, 2]


def test_without_a_word_of_it_the_size_is_device(read: Read) -> None:
    assert read.bench(SUITE) == read.bench(SUITE, "size=device")


def test_the_last_file_that_names_a_size_wins(read: Read) -> None:
    read.suite(f"size: device\n{SUITE}", name="standard.yaml")
    suite = read.suite("include: standard.yaml\nsize: tiny\n")
    assert (suite.size, suite.benchmarks["dpo"].size) == ("tiny", "tiny")


def test_tags_of_a_size_are_added(read: Read) -> None:
    assert read.bench(SUITE, "size=tiny").tags == ("language", "small")
    assert read.bench(SUITE).tags == ("language",)


@pytest.mark.parametrize("size", ["tiny", "device"])
def test_a_benchmark_without_sizes_stays_as_it_is(read: Read, size: str) -> None:
    plain = "dpo: {definition: x, argv: {--batch: 8}}\n"
    assert read.bench(plain, f"size={size}") == read.bench(plain)
    assert read.bench(plain, f"size={size}").size == ""


def test_an_override_of_the_benchmark_wins_over_its_size_and_the_size_over_the_star(read: Read) -> None:
    sized = {"--lr": 1, "--batch": 2, "--seed": 3}
    assert dict(read.bench(SUITE, "size=tiny", "dpo.argv.--batch=5").argv) == {**sized, "--batch": 5}
    assert dict(read.bench(SUITE, "size=tiny", "*.argv.--batch=5").argv) == sized


def test_an_override_reaches_one_size(read: Read) -> None:
    changed = "dpo.sizes.tiny.argv.--batch=5"
    assert dict(read.bench(SUITE, "size=tiny", changed).argv)["--batch"] == 5
    assert read.bench(SUITE, changed) == read.bench(SUITE)
    # And one of a template's, which its children inherit.
    assert dict(read.bench(SUITE, "_t.sizes.device.argv.--batch=7").argv)["--batch"] == 7


def test_a_size_deletes_and_appends(read: Read) -> None:
    text = """\
_t: {definition: x, argv: {--lr: 1, --batch: 8}, sizes: {tiny: {argv: {--lr: !delete }}}}
dpo:
  inherits: _t
  requires_capabilities: [gpu_count > 0]
  sizes: {tiny: {requires_capabilities: {append: [cpu_count > 1]}}}
"""
    bench = read.bench(text, "size=tiny")
    assert dict(bench.argv) == {"--batch": 8}
    assert bench.requires_capabilities == ("gpu_count > 0", "cpu_count > 1")


def test_an_inherited_size_that_is_deleted_is_gone(read: Read) -> None:
    text = "_t: {definition: x, sizes: {tiny: {weight: 2}, device: {weight: 3}}}\ndpo: {inherits: _t, sizes: {tiny: !delete }}\n"
    assert read.bench(text).weight == 3
    assert "dpo.sizes: the size 'tiny' is missing. It has device." in read.unusable(text, "size=tiny")


def test_the_variants_of_a_matrix_have_its_sizes(read: Read) -> None:
    text = """\
m:
  definition: x
  matrix: {p: [fp32, bf16]}
  job: {name: "m-{p}", sizes: {tiny: {argv: {--dtype: "{p}"}}, device: {}}}
"""
    benches = read.suite(text, "size=tiny").benchmarks
    assert {name: dict(bench.argv) for name, bench in benches.items()} == {
        "m-fp32": {"--dtype": "fp32"},
        "m-bf16": {"--dtype": "bf16"},
    }


LACKING = """\
dpo: {definition: x, sizes: {tiny: {}, device: {}}}
_t: {definition: x, tags: small, sizes: {tiny: {}}}
sft: {inherits: _t}
kto 2: {inherits: _t}
plain: {definition: x}
"""


def test_a_size_that_is_missing_is_told_with_the_way_out(read: Read) -> None:
    assert read.unusable(LACKING, "size=node", select="dpo") == (
        "suite.yaml:1:29: dpo.sizes: the size 'node' is missing. It has tiny, device. Add it, as `{}` where nothing changes, "
        "or leave the benchmark out with --exclude dpo"
    )
    # Of those that share their sizes, one is named; what leaves all of them out is said.
    assert read.unusable(LACKING, "size=device").splitlines() == [
        "suite.yaml:2:41: sft.sizes: the size 'device' is missing. It has tiny",
        "error: the size 'device' is missing in 2 benchmarks. Add it, as `{}` where nothing changes, or leave them out with "
        "--exclude 'sft,\"kto 2\"'",
    ]


def test_what_is_not_selected_may_lack_a_size(read: Read) -> None:
    suite = read.suite(LACKING, "size=device")
    for words in ({"exclude": "sft,'kto 2'"}, {"exclude": "small"}, {"select": "dpo, plain"}):
        assert [bench.name for bench in select(suite, **words)] == ["dpo", "plain"]


def test_what_is_disabled_may_lack_a_size_but_not_be_selected_by_its_name(read: Read) -> None:
    text = "plain: {definition: x}\ndpo: {definition: x, enabled: false, sizes: {device: {weight: 4}}}"
    assert [bench.name for bench in select(read.suite(text, "size=tiny"))] == ["plain"]
    assert "dpo.sizes: the size 'tiny' is missing" in read.unusable(text, "size=tiny", select="dpo")
    assert read.bench(text).weight == 4


@pytest.mark.parametrize(
    ("sizes", "what"),
    [
        (
            "{tiny: {argvs: {}}, device: {}}",
            "suite.yaml:2:11: dpo.sizes.tiny: unknown key 'argvs'. Did you mean 'argv'?",
        ),
        ("{tiny: {weight: heavy}, device: {}}", "dpo.sizes.tiny.weight: expected a number, got 'heavy'"),
        ("{device: {}, tinny: {}}", "dpo.sizes: unknown size 'tinny'. Did you mean 'tiny'?"),
        ("{device: {}, tiny: 4}", "dpo.sizes.tiny: expected a mapping, got 4"),
        ("4", "dpo.sizes: expected a mapping from tiny, device, node, cluster to keys, got 4"),
        ("{device: {}, tiny: {definition: y}}", "dpo.sizes.tiny: 'definition' cannot differ between sizes"),
        ("{device: {}, tiny: {command: y}}", "dpo.sizes.tiny: 'command' cannot differ between sizes"),
        ("{device: {}, tiny: {sizes: {}}}", "dpo.sizes.tiny: 'sizes' cannot differ between sizes"),
    ],
)
def test_what_is_wrong_in_a_size_that_is_not_chosen_is_told_too(read: Read, sizes: str, what: str) -> None:
    assert what in read.error(f"dpo: {{definition: x, sizes:\n  {sizes}}}", declared=lambda _: frozenset())


def test_a_template_that_nobody_inherits_is_checked(read: Read) -> None:
    said = read.error("_t: {definition: x, sizes: {tiny: {argvs: 1}}}\n", declared=lambda _: frozenset())
    assert "_t.sizes.tiny: unknown key 'argvs'. Did you mean 'argv'?" in said


def test_what_the_benchfile_declares_may_stand_in_a_size(read: Read) -> None:
    text = "dpo: {definition: x, sizes: {tiny: {documents: 10}, device: {documents: 99}}}"
    for size, documents in (("tiny", 10), ("device", 99)):
        bench = read.bench(text, f"size={size}", declared=lambda _: frozenset({"documents"}))
        assert bench.options == {"documents": documents}


def test_a_word_that_is_no_size_is_told(read: Read) -> None:
    assert "size: expected one of tiny, device, node, cluster, got 'huge'" in read.error(f"size: huge\n{SUITE}")


def test_explain_says_which_size_gave_a_value(read: Read) -> None:
    lines = explain(read.suite(SUITE, "size=tiny"), "dpo.argv.--batch")
    assert lines[0] == "dpo.argv.--batch = 2"
    assert lines[1].endswith("suite.yaml:11:28, by the size tiny")
    assert lines[2].endswith("suite.yaml:4:28")


@pytest.mark.parametrize(
    ("suite", "overrides"),
    [
        ("dpo: {definition: x}", ["{dpo: {max_duration: 60, sizes: {device: {argv: {--n: 1}}}}}"]),
        ("dpo: {definition: x, max_duration: &n 60, sizes: {device: {weight: *n, argv: {--n: 1}}}}", []),
    ],
)
def test_explain_names_no_size_where_a_value_only_has_the_place_of_one_of_its_values(
    read: Read, suite: str, overrides: list[str]
) -> None:
    given = read.suite(suite, *overrides)
    assert not any("by the size" in line for line in explain(given, "dpo.max_duration"))
    assert any("by the size device" in line for line in explain(given, "dpo.argv.--n"))


def test_what_cannot_differ_between_sizes_is_told_in_one_order(read: Read) -> None:
    said = read.error(
        "dpo: {definition: x, sizes: {device: {task: a, driver: b, command: c}}}", declared=lambda _: frozenset()
    )
    places = [said.index(f"'{key}' cannot differ") for key in ("command", "driver", "task")]
    assert places == sorted(places)


def test_explain_says_what_stands_in_a_size_that_is_not_chosen(read: Read) -> None:
    lines = explain(read.suite(SUITE), "dpo.sizes.tiny.argv")
    assert [line.replace(f"{read.folder}/", "") for line in lines] == [
        "dpo.sizes.tiny.argv = {--batch: 2}",
        "  set at suite.yaml:11:18",
    ]
    assert not any("by the size" in line for line in explain(read.suite(SUITE, "size=tiny"), "dpo.sizes.tiny.argv"))
    assert not any("sizes" in line for line in explain(read.suite(SUITE), "dpo"))


def test_explain_says_that_a_size_is_missing_or_that_there_are_none(read: Read) -> None:
    suite = read.suite(LACKING, "size=device")
    assert explain(suite, "sft.size") == (
        'sft.size = ""',
        "  the size device is chosen by --override 'size=device'",
        "  the size 'device' is missing. It has tiny",
    )
    for key, value in (("size", '""'), ("sizes", "{}")):
        lines = (f"plain.{key} = {value}", "  it has no sizes: it is the same at each")
        assert explain(suite, f"plain.{key}") == lines


@pytest.mark.parametrize("size", ["", "tiny", "cluster"])
def test_what_is_shown_reads_back_at_the_same_size(read: Read, size: str) -> None:
    suite = read.suite(SUITE, *([f"size={size}"] if size else []))
    again = read.suite(to_yaml(suite), name="shown.yaml")
    assert again.benchmarks == suite.benchmarks
    assert (again.size, again.benchmarks["dpo"].size) == (size, size or "device")


# --- from the command line


@pytest.fixture
def planned(tmp_path: Path, milabench: Callable[..., Any]) -> Callable[..., Any]:
    (tmp_path / "x").mkdir()
    line = "from milabench import Benchmark\nbenchmark = Benchmark(script='main.py', voirfile=None, prepare=None)\n"
    (tmp_path / "x" / "benchfile.py").write_text(line)
    (tmp_path / "suite.yaml").write_text(SUITE)

    def plan(*words: str) -> dict[str, Any]:
        said = milabench("plan", "run", "--json", "--use-current-env", "--config", str(tmp_path / "suite.yaml"), *words)
        assert said.code == 0, said.err
        plan: dict[str, Any] = json.loads(said.out)
        return plan

    return plan


def test_the_option_and_its_variable_choose_the_size_and_the_plan_says_it(
    planned: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def sizes(*words: str) -> set[str]:
        return {step["config"]["size"] for step in planned(*words)["steps"]}

    assert sizes() == {"device"}
    assert sizes("--size", "tiny") == {"tiny"}
    monkeypatch.setenv("MILABENCH_SIZE", "node")
    assert sizes() == {"node"}
    assert sizes("--size", "tiny") == {"tiny"}


def test_explain_says_what_chose_the_size(
    planned: Callable[..., Any], tmp_path: Path, milabench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def explained(*words: str, key: str = "size") -> list[str]:
        said = milabench("config", "explain", "--config", "suite.yaml", f"dpo.{key}", *words)
        assert said.code == 0, said.err
        lines: list[str] = said.out.splitlines()
        return lines

    device = "  device changes argv, weight, at suite.yaml:12:13"
    assert explained() == [
        "dpo.size = device",
        "  the size device is the default: no file, --size or MILABENCH_SIZE chooses a size",
        device,
    ]
    (tmp_path / "suite.yaml").write_text(f"{SUITE}size: cluster\n")
    by_file = "the size cluster is chosen by suite.yaml:15:7"
    others = [device, "  node changes plan, at suite.yaml:13:11", "  cluster changes plan, at suite.yaml:14:14"]
    assert explained() == ["dpo.size = cluster", f"  {by_file}", *others]
    assert explained(key="sizes")[1:] == [f"  {by_file}", *others]
    monkeypatch.setenv("MILABENCH_SIZE", "device")
    replaced = "  replaces cluster, set at suite.yaml:15:7"
    assert explained() == ["dpo.size = device", "  the size device is chosen by MILABENCH_SIZE", replaced, device]
    assert explained("--size", "node")[1:3] == ["  the size node is chosen by --size", replaced]


def test_a_benchmark_without_the_size_keeps_no_other_from_running(
    planned: Callable[..., Any], tmp_path: Path, milabench: Callable[..., Any]
) -> None:
    (tmp_path / "suite.yaml").write_text(f"{SUITE}lone: {{definition: x, sizes: {{tiny: {{}}}}}}\n")
    assert {step["config"]["name"] for step in planned("--size", "node", "--exclude", "lone")["steps"]} == {"dpo"}
    here = ("--config", "suite.yaml", "--size", "node")
    for verb in (("list",), ("plan", "run"), ("config", "check"), ("config", "show"), ("config", "show", "lone")):
        said = milabench(*verb, *here)
        assert said.code == 2
        assert "lone.sizes: the size 'node' is missing. It has tiny. " in said.err
        assert said.err.rstrip().splitlines()[0].endswith("--exclude lone")


def test_the_option_has_the_words_of_the_language() -> None:
    # They are written there again: help must not wait for the modules that read suites.
    (option,) = (one for one in run.command.params if one.name == "size")
    assert isinstance(option.type, click.Choice)
    assert tuple(option.type.choices) == SIZES
