"""Suites that stand for more than anybody means: `config check` answers with bounded memory, or names the limit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import Said, milabench_in

pytestmark = pytest.mark.slow

MEMORY_MIB = 700
"""Address space; an interpreter with what it imports has a hundred and fifty before it reads anything."""


def matrix(keys: int, extra: str = "") -> str:
    axes = "".join(f"    k{number}: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]\n" for number in range(keys))
    name = "-".join(f"{{k{number}}}" for number in range(keys))
    return f"m{extra}:\n  matrix:\n{axes}  job: {{name: 'j{extra}-{name}', command: echo}}\n"


def chain(length: int, keys: str) -> str:
    first = "b0: {command: echo}\n"
    return first + "".join(f"b{i}: {{inherits: b{i - 1}, {keys % i}}}\n" for i in range(1, length))


WIDE = ", ".join(f"X{number}: '${{name}}'" for number in range(1000))
SUITES = {
    "processes": (
        "a: {command: echo, plan: {method: njobs, n: 1e8}}",
        "a.plan.n: expected a whole number that is at most 10000",
    ),
    "devices": (
        "a: {command: echo}\nsystem: {arch: cuda, gpu: {count: 1000000000, capacity: 80 GiB}}",
        "system.gpu.count: expected a whole number that is at most 1000, got 1000000000",
    ),
    "devices of nodes": (
        "a: {command: echo}\nsystem:\n  gpu: {count: 1000}\n  nodes:\n"
        + "".join(f"  - {{name: n{i}, ip: 10.0.{i // 250}.{i % 250}}}\n" for i in range(1000)),
        "system.nodes: 1000000 devices are more than the limit of 100000",
    ),
    "parents with tags": (chain(3000, "tags: [t%d]"), "more than 1000000 values, inherited ones included"),
    "parents with variables": (chain(3000, "env: {X%d: v}"), "more than 1000000 values, inherited ones included"),
    "parents": (chain(15000, "argv: {--x: %d}"), "more than 1000000 values, inherited ones included"),
    "children": (
        f"_t: {{command: echo, env: {{{WIDE}}}}}\n" + "".join(f"b{i}: {{inherits: _t}}\n" for i in range(15000)),
        "more than 1000000 values, inherited ones included",
    ),
    "a text": (f"a: {{command: '{'x' * 10_000_000}'}}", "a.command: a text of more than 1000000 characters"),
    "a number": (f"a: {{command: x, weight: {'1' * 10_000_000}}}", "a.weight: a text of more than 1000000 characters"),
    "values": (f"a: {{command: echo, argv: [{'x,' * 5_000_000}]}}", "more than 200000 values in a file"),
    "matrix": (
        matrix(9),
        "1000000000 benchmarks are more than the limit of 20000. Allow them with --max-benchmarks 1000000000",
    ),
    "matrices": (
        "".join(matrix(4, str(number)) for number in range(30)),
        "the suite has more benchmarks than the limit of 20000. Allow more with --max-benchmarks N",
    ),
    "benchmarks": (
        "".join(f"b{i}: {{command: echo}}\n" for i in range(50_000)),
        "more benchmarks than the limit of 20000",
    ),
    "multirun": (
        "a: {command: echo}\nmultirun:\n  runs:\n  - name: r\n    matrix:\n"
        + "".join(f"      k{number}: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]\n" for number in range(9)),
        "multirun.runs: 1000000000 runs are more than the limit of 1000",
    ),
    "nesting": ("a: " + "[" * 10_000 + "]" * 10_000, "nested more than 64 deep"),
    "aliases": (
        "_a: &a [x, x, x, x, x, x, x, x, x]\n"
        + "".join(f"_{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)),
        "aliases expand to more than 500000 values",
    ),
    "mistakes": (
        "".join(f"b{i}: {{inherits: c{i}}}\n" for i in range(15_000)),
        "b100.inherits: no benchmark or template",
    ),
}


@pytest.mark.parametrize("name", SUITES)
def test_a_suite_beyond_a_limit_is_told_the_limit(environ: dict[str, str], tmp_path: Path, name: str) -> None:
    text, expected = SUITES[name]
    file = tmp_path / "suite.yaml"
    file.write_text(text)
    said = milabench_in(environ, memory_mib=MEMORY_MIB)("config", "check", str(file))
    assert said.code == 2
    assert expected in said.err
    assert len(said.err) < 20_000


@pytest.mark.e2e
def test_the_largest_suite_that_is_allowed_is_checked_and_shown(environ: dict[str, str], tmp_path: Path) -> None:
    axes = "".join(f"    k{number}: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]\n" for number in range(4))
    file = tmp_path / "suite.yaml"
    file.write_text(
        f"m:\n  matrix:\n    z: [0, 1]\n{axes}  job: {{name: 'j{{z}}{{k0}}{{k1}}{{k2}}{{k3}}', command: echo}}\n"
    )
    bounded = milabench_in(environ, memory_mib=MEMORY_MIB)
    for words in (("config", "check", str(file)), ("config", "show", "--config", str(file))):
        assert bounded(*words).code == 0


def test_a_plan_of_too_many_steps_is_told_the_limit(environ: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "suite.yaml"
    file.write_text("a: {command: echo, plan: {method: njobs, n: 10000}}\n")
    bounded: Callable[..., Said] = milabench_in(environ, memory_mib=MEMORY_MIB)
    said = bounded("plan", "run", "--use-current-env", "--config", str(file), "--repeat", "1000000000")
    assert said.code == 2
    assert "a.plan: with it, the plan has more than the limit of 100000 steps" in said.err


def test_a_task_file_beyond_a_limit_is_told_the_limit(environ: dict[str, str], tmp_path: Path) -> None:
    file, tasks = tmp_path / "suite.yaml", tmp_path / "tasks.cfg"
    file.write_text("a: {driver: tasks.cfg}\n")
    bounded = milabench_in(environ, memory_mib=MEMORY_MIB)
    names = [f"'l{number}'" for number in range(20_000)]
    lists = (("metrics", names), ("patterns", names), ("compute_method", ["'last'"] * len(names)))
    tasks.write_text("[a]\ncommand_to_execute = x\n" + "".join(f"{key} = [{', '.join(v)}]\n" for key, v in lists))
    said = bounded("config", "check", str(file))
    assert (said.code, "20000 metrics are more than the limit of 1000" in said.err) == (2, True), said.err
    tasks.write_text("[a]\n" + "x = 1\n" * 1_000_000)
    said = bounded("config", "check", str(file))
    assert (said.code, "tasks.cfg: cannot be read: larger than the limit of 1048576 bytes" in said.err) == (2, True)
