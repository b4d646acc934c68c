"""A matrix and its job become benchmarks; the matrix of a multirun becomes runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from milabench.config.matrix import combinations, runs
from milabench.config.read import read_suite
from milabench.config.schema import Multirun, Suite
from milabench.errors import ConfigError


def suite(tmp_path: Path, text: str, **more: int) -> Suite:
    path = tmp_path / "s.yaml"
    path.write_text(text, encoding="utf-8")
    return read_suite([path], **more)  # type: ignore[arg-type]


def error(tmp_path: Path, text: str, **more: int) -> str:
    with pytest.raises(ConfigError) as caught:
        suite(tmp_path, text, **more)
    return str(caught.value).replace(f"{tmp_path}/", "")


def test_every_combination_is_a_benchmark_and_a_lone_value_is_one_value(tmp_path: Path) -> None:
    made = suite(tmp_path, "m: {matrix: {x: [1, 2], y: [a, b], z: 3}, job: {name: 'm{x}{y}{z}', definition: d}}")
    assert list(made.benchmarks) == ["m1a3", "m1b3", "m2a3", "m2b3"]
    assert made.benchmarks["m2a3"].matrix == {"x": 2, "y": "a", "z": 3}


JOB = """
m:
  matrix: {batch-size: [32], lr: [1e-5]}
  job:
    name: "m-{batch-size}"
    definition: d
    max_duration: "{batch-size}"
    url: "u/{lr}/{gpu_count}"
    tags: ["bs{batch-size}"]
    argv:
      --bs: "{batch-size}"
      bs={batch-size}: true
      --e: "expr({batch-size} * 10)"
      --j: '{"image":10}'
      --l: "{{x}}"
    client: {argv: ["--n={batch-size}", "{milabench_data}/{lr}"]}
    server: {argv: {--m: "{batch-size}"}}
"""


def test_every_string_below_job_is_formatted_and_other_fields_are_left_for_planning(tmp_path: Path) -> None:
    bench = suite(tmp_path, JOB).benchmarks["m-32"]
    assert bench.argv == (
        ("--bs", "32"),
        ("bs=32", True),
        ("--e", "expr(32 * 10)"),
        ("--j", '{"image":10}'),
        ("--l", "{{x}}"),
    )
    assert (bench.max_duration, bench.url, bench.tags) == (32, "u/1e-5/{gpu_count}", ("bs32",))
    assert bench.client is not None and bench.client.argv == ("--n=32", "{milabench_data}/1e-5")
    assert bench.server is not None and bench.server.argv == (("--m", "32"),)


def test_jobs_inherit_and_may_be_inherited(tmp_path: Path) -> None:
    text = "_t: {definition: d, weight: 3}\nm: {matrix: {x: [1]}, job: {name: 'm{x}', inherits: _t}}\nb: {inherits: m1}"
    assert [bench.weight for bench in suite(tmp_path, text).benchmarks.values()] == [3, 3]


def test_keys_beside_the_matrix_hold_for_every_job(tmp_path: Path) -> None:
    text = "m: {enabled: false, weight: 1, matrix: {x: [1, 2]}, job: {name: 'm{x}', definition: d, weight: 2}}"
    assert [(bench.enabled, bench.weight) for bench in suite(tmp_path, text).benchmarks.values()] == [(False, 2)] * 2


def test_a_field_may_have_a_format_and_an_index(tmp_path: Path) -> None:
    text = "m: {matrix: {x: [[7, 8]], y: 3}, job: {name: 'm{x[1]}-{y:03d}', definition: d}}"
    assert list(suite(tmp_path, text).benchmarks) == ["m8-003"]


def test_the_limit_of_jobs_names_the_way_on(tmp_path: Path) -> None:
    text = "m: {matrix: {x: [1, 2, 3], y: [1, 2]}, job: {name: 'm{x}{y}', definition: d}}"
    assert error(tmp_path, text, max_benchmarks=5) == (
        "s.yaml:1:13: m.matrix: 6 benchmarks are more than the limit of 5. Allow them with --max-benchmarks 6"
    )
    assert len(suite(tmp_path, text, max_benchmarks=6).benchmarks) == 6


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ("{matrix: {x: [1, 2]}, job: {name: m, definition: d}}", "two benchmarks are named 'm'"),
        ("{matrix: {x: [1]}, job: {definition: d}}", "a job needs a name that is text"),
        ("{matrix: {x: []}, job: {name: 'm{x}', definition: d}}", "an empty list gives no job"),
        ("{matrix: [1], job: {name: m, definition: d}}", "expected a mapping from name to values"),
        ("{matrix: {x: [1]}, job: 3}", "expected a mapping"),
        ("{matrix: {x: [1, 2]}, definition: d}", "a matrix needs a job"),
        ("{matrix: {x: [[1]]}, job: {name: 'm{x[4]}', definition: d}}", "{x[4]} is not there"),
        ("{matrix: {x: [a]}, job: {name: 'm{x:d}', definition: d}}", "a value cannot be formatted"),
        ("{matrix: {x: [a]}, job: {name: 'm', argv: {'{x}': 1, a: 2}}}", "two keys become 'a'"),
        ("{matrix: {x: [system]}, job: {name: '{x}', definition: d}}", "a job cannot be named 'system'"),
    ],
)
def test_a_matrix_that_means_nothing_is_an_error(tmp_path: Path, description: str, message: str) -> None:
    assert message in error(tmp_path, f"m: {description}")


def test_a_multirun_is_one_run_for_each_combination_with_its_name(tmp_path: Path) -> None:
    one = Multirun(name="bs{sizer.mult}.{time}", matrix={"sizer.auto": 1, "sizer.mult": [0.5, 2]})
    assert list(runs([one], {"time": "T"})) == [
        ("bs0.5.T", {"sizer.auto": 1, "sizer.mult": 0.5}),
        ("bs2.T", {"sizer.auto": 1, "sizer.mult": 2}),
    ]


def test_a_multirun_whose_name_has_an_unknown_field_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"multirun\.runs"):
        list(runs([Multirun(name="{nowhere}", matrix={"a": 1})], {}))


def test_an_empty_matrix_is_one_combination() -> None:
    assert list(combinations({})) == [{}]
