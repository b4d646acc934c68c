"""The arithmetic of benchmarks/machine that needs no torch: bad links, rounds, sizes of arguments, fio's JSON."""

from __future__ import annotations

import argparse
import ast
import importlib
import itertools
import json
import random
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.commands import PYTHON, ROOT

FOLDER = ROOT / "benchmarks" / "machine"
MODULES = ("bad_links", "command", "file_system")


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    """The modules of the folder, which is where a program finds them; forgotten afterwards."""
    monkeypatch.syspath_prepend(FOLDER)
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield {name: importlib.import_module(name) for name in MODULES}
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("count", range(2, 12))
def test_rounds_have_every_pair_once_and_no_rank_twice_in_a_round(programs: dict[str, ModuleType], count: int) -> None:
    rounds = list(programs["bad_links"].rounds(count))
    for pairs in rounds:
        ranks = [rank for pair in pairs for rank in pair]
        assert len(ranks) == len(set(ranks))
    met = [pair for pairs in rounds for pair in pairs]
    assert sorted(met) == list(itertools.combinations(range(count), 2))


def links(module: ModuleType, kind: str, values: list[float]) -> list[Any]:
    pairs = itertools.combinations(range(100), 2)
    return [module.Link(*pair, kind, value) for pair, value in zip(pairs, values, strict=False)]


def test_a_slow_link_is_bad_whatever_the_others_scatter(programs: dict[str, ModuleType]) -> None:
    module = programs["bad_links"]
    rng = random.Random(1)
    values = [rng.gauss(100, 3) for _ in range(28)]
    values[5] = 40.0
    (found,) = module.bad_links(links(module, "rail", values), limit=0.1)
    assert found.link.bandwidth == 40.0
    assert found.median == sorted(values)[13] / 2 + sorted(values)[14] / 2


def test_several_bad_links_do_not_hide_each_other_and_the_worst_comes_first(programs: dict[str, ModuleType]) -> None:
    module = programs["bad_links"]
    values = [100.0, 101.0, 99.0, 100.5, 99.5, 100.0, 98.9, 10.0, 12.0, 11.0]
    found = module.bad_links(links(module, "node", values), limit=0.1)
    assert [bad.link.bandwidth for bad in found] == [10.0, 11.0, 12.0]


def test_a_link_of_a_thousandth_is_bad_even_where_the_others_scatter_by_half(programs: dict[str, ModuleType]) -> None:
    module = programs["bad_links"]
    (found,) = module.bad_links(links(module, "node", [0.6, 0.3, 0.2, 0.35, 0.15, 0.0003]), limit=0.1)
    assert found.link.bandwidth == 0.0003


def test_links_that_scatter_widely_or_little_are_not_bad(programs: dict[str, ModuleType]) -> None:
    module = programs["bad_links"]
    assert module.bad_links(links(module, "node", [50, 150, 80, 120, 100, 60, 140]), limit=0.1) == []
    # A hundred deviations below the median, and within the limit of it.
    assert module.bad_links(links(module, "node", [100.0, 100.0, 100.0, 100.0, 95.0]), limit=0.1) == []


def test_links_are_compared_with_their_kind_alone(programs: dict[str, ModuleType]) -> None:
    module = programs["bad_links"]
    mixed = links(module, "node", [400.0] * 6) + links(module, "rail", [50.0] * 6) + links(module, "across", [9.0, 1.0])
    assert module.bad_links(mixed, limit=0.1) == []


def test_a_bad_link_is_named_with_ranks_and_hosts(programs: dict[str, ModuleType]) -> None:
    module = programs["bad_links"]
    places = [module.Place("a", 0), module.Place("b", 0)]
    assert module.kind_of(*places) == "rail"
    text = module.describe(module.BadLink(module.Link(0, 1, "rail", 10.0), 40.0, 9.0), places)
    assert text == (
        "bad link: ranks 0-1 (a:0 and b:0): 10 GB/s, where the median of its kind (rail) is 40 GB/s"
    )  # fmt: skip


@pytest.mark.parametrize(("text", "value"), [("1", 1), ("64K", 65536), ("3M", 3 << 20), ("2G", 2 << 30)])
def test_sizes_are_whole_numbers_with_powers_of_1024(programs: dict[str, ModuleType], text: str, value: int) -> None:
    assert programs["command"].whole(text) == value


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5M", "K", "1T", "0G", "1 M"])
def test_another_size_is_refused_with_an_example(programs: dict[str, ModuleType], text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a whole number above zero such as"):
        programs["command"].whole(text)


def fio_job(**sides: dict[str, Any]) -> dict[str, Any]:
    idle = {"total_ios": 0, "bw_bytes": 0, "iops": 0.0, "clat_ns": {"mean": 0.0}}
    return {"jobs": [{"jobname": "x", "error": 0, "read": idle, "write": idle, **sides}]}


def test_fios_numbers_are_in_si_units(programs: dict[str, ModuleType]) -> None:
    latency = {"mean": 250_000.0, "percentile": {"50.000000": 240_000, "99.000000": 1_500_000}}
    result = fio_job(read={"total_ios": 9, "bw_bytes": 2_500_000_000, "iops": 2384.18, "clat_ns": latency})
    found = {(number.name, number.value, number.units) for number in programs["file_system"].numbers(result)}
    assert found == {
        ("bandwidth", 2.5, "GB/s"),
        ("operations", 2384.18, "operations/s"),
        ("latency", 0.00025, "s"),
        ("latency_p99", 0.0015, "s"),
    }


FIO = """\
import json, sys
options = dict(word[2:].split("=", 1) for word in sys.argv[1:] if "=" in word)
side = "write" if options["rw"].endswith("write") else "read"
idle = {"total_ios": 0, "bw_bytes": 0, "iops": 0.0, "clat_ns": {"mean": 0.0}}
busy = {"total_ios": 1, "bw_bytes": len(options["rw"]) * 10**9, "iops": 5.0, "clat_ns": {"mean": 1000.0}}
print("fio: a note in front of the JSON")
print(json.dumps({"jobs": [{"jobname": options["name"], "error": 0, "read": idle, "write": idle, side: busy}]}))
"""


def file_system(tmp_path: Path, fio: str | None) -> subprocess.CompletedProcess[str]:
    programs = tmp_path / "bin"
    programs.mkdir()
    if fio is not None:
        (programs / "fio").write_text(f'#!/bin/sh\nexec {PYTHON} -c {shlex.quote(fio)} "$@"\n')
        (programs / "fio").chmod(0o755)
    command = [sys.executable, FOLDER / "file_system.py", "--folder", tmp_path / "files", "--bytes", "1M"]
    return subprocess.run(command, env={"PATH": str(programs)}, capture_output=True, text=True, check=False)


def test_each_case_of_fio_is_a_metric_and_its_files_are_removed(tmp_path: Path) -> None:
    done = file_system(tmp_path, FIO)
    assert done.returncode == 0, done.stderr
    printed = [line for line in done.stdout.splitlines() if "bandwidth" in line]
    assert printed == [
        "stream_write: bandwidth 5 GB/s",
        "stream_read: bandwidth 4 GB/s",
        "random_write: bandwidth 9 GB/s",
        "random_read: bandwidth 8 GB/s",
    ]
    assert not (tmp_path / "files").exists()


@pytest.mark.parametrize(
    ("fio", "line"),
    [
        (None, "error: file_system: the program fio is not on the PATH"),
        (
            "import sys; sys.exit('fio: engine libaio not loadable')",
            "fio ended with 1: fio: engine libaio not loadable",
        ),
        (FIO.replace('"error": 0', '"error": 28'), "error: file_system: fio reports error 28 in stream_write"),
    ],
)
def test_a_fio_that_is_missing_or_fails_is_one_line(tmp_path: Path, fio: str | None, line: str) -> None:
    done = file_system(tmp_path, fio)
    assert done.returncode == 1
    assert line in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "files").exists()


def test_the_samples_of_a_recipe_are_made_once_and_continue(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(
        json.dumps({"options": {"program": "sample_reads", "samples": {"files": 5, "bytes": 100, "format": "raw"}}})
    )
    env = {"MILABENCH_BENCH_CONFIG": str(config), "MILABENCH_DIR_DATA": str(tmp_path)}

    def prepare() -> str:
        command = [sys.executable, FOLDER / "prepare.py"]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "5 of 5 files made" in prepare()
    files = sorted((tmp_path / "samples-5x100-raw").rglob("*.raw"))
    contents = [path.read_bytes() for path in files]
    assert [len(content) for content in contents] == [100] * 5 and len(set(contents)) == 5
    files[2].unlink()
    assert "1 of 5 files made" in prepare()
    assert [path.read_bytes() for path in files] == contents


def test_the_sizes_of_collectives_end_at_the_largest(programs: dict[str, ModuleType]) -> None:
    sizes = programs["command"].sizes
    assert sizes(1024, 2**30, 8, 16)[-2:] == [2**28, 2**30]
    assert sizes(1024, 2**16, 8, 16) == [1024, 8192, 65536]
    assert sizes(1024, 1024, 8, 4 * 3) == [1020]


def imported_names() -> Iterator[tuple[str, str, str]]:
    """Of each program of benchmarks/: its file, a module of benchmate that it imports from, and a name."""
    for file in sorted((ROOT / "benchmarks").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("benchmate."):
                yield from ((str(file.relative_to(ROOT)), str(node.module), alias.name) for alias in node.names)


def names_of(module: str) -> set[str]:
    """What a module of benchmate defines or imports at its own level, and the modules in it."""
    path = ROOT.joinpath("benchmate", "src", *module.split("."))
    file = path.with_suffix(".py") if path.with_suffix(".py").is_file() else path / "__init__.py"
    names = {each.stem for each in path.glob("*")}
    waiting: list[ast.AST] = [*ast.parse(file.read_text()).body]
    for node in waiting:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        else:
            found = (
                getattr(each, "asname", None) or getattr(each, "id", None) or getattr(each, "name", None)
                for each in ast.iter_child_nodes(node)
            )
            names |= {each for each in found if each}
            waiting += ast.iter_child_nodes(node)
    return names


def test_what_programs_import_from_benchmate_is_there() -> None:
    """Without torch, which most of them need: a name that is gone is found before a machine runs them."""
    assert [each for each in imported_names() if each[2] not in names_of(each[1])] == []
