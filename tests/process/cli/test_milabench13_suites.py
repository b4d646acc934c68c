"""Suites of milabench 1.3: all of its own, where MILABENCH13 names a checkout, and small ones in its style."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from tests.commands import ROOT, Said

Milabench = Callable[..., Said]
Answers = Callable[..., Any]

PLAIN = ROOT / "tests" / "programs" / "milabench13" / "plain"
CHECKOUT = Path(os.environ.get("MILABENCH13", "/nonexistent"))
needs_checkout = pytest.mark.skipif(not CHECKOUT.is_dir(), reason="MILABENCH13 names no checkout of milabench 1.3")
# Of each suite: its benchmarks, and how many of them are enabled. resnet50.yaml also disables four that nobody defines.
SUITES = {
    "all": (54, 51),
    "standard": (54, 51),
    "4nodes": (54, 51),
    "ci": (54, 47),
    "inference": (6, 5),
    "training": (43, 0),
    "base": (43, 0),
    "synthetic": (5, 0),
    "resnet50": (149, 143),
    "vllm": (61, 61),
}
# What milabench 1.3 cannot load either, by the one line that says so.
REFUSED = {
    "config/retired.yaml": "no benchmark or template named '_accelerate_opt', which 1 more inherits",
    "config/clusters/clusters.yaml": "not YAML: could not find expected ':'",
    "config/clusters/slurm.yaml": "this is not a suite: 22 of its 25 keys hold lists",
    "config/fidelity/efficiency.yaml": "the included file cannot be read",
    "config/fidelity/fast.yaml": "the included file cannot be read",
    "config/fidelity/high.yaml": "the included file cannot be read",
    "config/fidelity/medium.yaml": "the included file cannot be read",
}
SYSTEMS: dict[str, dict[str, Any]] = {
    "one": {"arch": "cuda", "gpu": {"count": 1, "capacity": "80 GiB"}},
    "eight": {"arch": "cuda", "gpu": {"count": 8, "capacity": "80 GiB"}},
    "nodes": {
        "arch": "cuda",
        "gpu": {"count": 8, "capacity": "80 GiB"},
        "nodes": [{"name": f"n{rank}", "ip": f"10.0.0.{rank}", "user": "me", "main": rank == 1} for rank in (1, 2)],
    },
    "cpu": {"arch": "cpu"},
}


def files() -> list[str]:
    """Every YAML file of the checkout that milabench 1.3 is given, relative to it."""
    patterns = ("config/**/*.yaml", "benchmarks/*/dev.yaml", "tests/config/*.yaml")
    return sorted(str(path.relative_to(CHECKOUT)) for pattern in patterns for path in CHECKOUT.glob(pattern))


@needs_checkout
@pytest.mark.parametrize("file", files())
def test_every_file_is_read_or_refused_in_one_line(milabench: Milabench, file: str) -> None:
    said = milabench("config", "check", str(CHECKOUT / file))
    if file in REFUSED:
        first, last = said.err.splitlines()
        assert (said.code, last) == (2, "error: 1 of 1 files cannot be used")
        assert REFUSED[file] in first
        return
    assert (said.code, said.err.splitlines()[-1]) == (0, "1 file is valid")
    assert len(said.err.splitlines()) <= 7, said.err
    if "scaling" not in file:
        assert milabench("config", "show", "--config", str(CHECKOUT / file)).code == 0


@needs_checkout
@pytest.mark.parametrize(("name", "counts"), SUITES.items())
def test_its_suites_have_the_benchmarks_that_they_have_there(
    milabench: Milabench, name: str, counts: tuple[int, int]
) -> None:
    suite = ("--config", str(CHECKOUT / "config" / f"{name}.yaml"))
    shown = yaml.safe_load(milabench("config", "show", *suite).out)
    enabled = sum(bench.get("enabled", True) for bench in shown.values())
    assert (len(shown), enabled) == counts
    listed = json.loads(milabench("list", *suite, "--json").out)["benchmarks"]
    assert len(listed) == (enabled or len(shown))


@needs_checkout
@pytest.mark.parametrize(
    ("name", "system"),
    [
        *(("standard", system) for system in SYSTEMS),
        *((name, "eight") for name in ("ci", "inference", "vllm", "resnet50")),
        ("4nodes", "nodes"),
    ],
)
def test_its_suites_are_planned_with_its_arguments(
    milabench: Milabench, tmp_path: Path, name: str, system: str
) -> None:
    suite = CHECKOUT / "config" / f"{name}.yaml"
    (tmp_path / "system.yaml").write_text(json.dumps({"system": SYSTEMS[system]}))
    words = ("--config", str(suite), "--system", str(tmp_path / "system.yaml"), "--repeat", "1", "--json")
    said = milabench("plan", "run", *words)
    assert said.code == 0, said.err
    plan = json.loads(said.out)
    benches = dict(described(suite))
    devices = SYSTEMS[system].get("gpu", {}).get("count", 1)
    placed = {step["bench"] for step in plan["steps"]}
    assert placed | {entry["bench"] for entry in plan["skipped"]} == {
        name for name, bench in benches.items() if bench.get("enabled", True) and "definition" in bench
    }
    for step in plan["steps"]:
        bench = benches[step["bench"]]
        expected = [filled(word, step, devices) for word in arguments_of(bench)]
        argv = step["argv"]
        assert any(argv[at : at + len(expected)] == expected for at in range(len(argv))) or not expected, step["id"]


VALUES = [
    *("1", "-3", "0.9", "1.0", "1e-5", "1e3", "1.5e-4", "2_000", "0x10", "inf", "true", "yes", "on", "null", "~"),
    *("text", "'quoted, text'", '"1"', "''", "no-dash", "-1.5", "a=b", "[1, 2]", "[a, 0.5]", "[1e-5, true]", "[]"),
    *("""'{"image":10}'""", "'a b'", "'$HOME'", "https://x/y", "'*'", "facebook/opt-1.3b"),
]
NAMES = ["--lr", "--batch_size", "-n", "p", "train.steps=3", "--n-jobs", "q", "bench/a.py", "--x", "-vv"]


def random_argv(random: Random) -> str:
    """The text of an `argv` in YAML: a list, or a mapping with some of the forms that one may have."""
    if random.random() < 0.1:
        return f"[{', '.join(random.choices(['--lr', '1', '0.5', 'text', '1e-5'], k=3))}]"
    lines = [f"{name}: {random.choice(VALUES)}" for name in random.sample(NAMES, random.randint(0, len(NAMES)))]
    if random.random() < 0.3:
        lines.insert(random.randint(0, len(lines)), "--: [-params, n_envs:16]")
    return "{}" if not lines else "".join(f"\n    {line}" for line in lines)


def test_arguments_are_the_words_that_milabench_13_makes_of_them(milabench: Milabench, tmp_path: Path) -> None:
    random = Random(13)
    written = {f"b{number}": random_argv(random) for number in range(150)}
    text = "".join(f"{name}:\n  definition: {PLAIN}\n  argv: {argv}\n" for name, argv in written.items())
    (tmp_path / "suite.yaml").write_text(text)
    said = milabench(
        "plan", "run", "--config", str(tmp_path / "suite.yaml"), "--repeat", "1", "--json", "--arch", "cpu"
    )
    assert said.code == 0, said.err
    plan = json.loads(said.out)
    described = yaml.safe_load(text)
    for step in plan["steps"]:
        expected = words_of(described[step["bench"]]["argv"])
        assert step["argv"][-len(expected) :] == expected or not expected, written[step["bench"]]
    assert len(plan["steps"]) == len(written)


# --- what milabench 1.3 makes of a suite, written from its description -----------------------------------------------


def described(suite: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the benchmarks of a suite with what they inherit."""
    entries: dict[str, Any] = {}
    for name, entry in merged_files(suite).items():
        if "job" not in entry:
            entries[name] = entry
            continue
        matrix = {key: value if isinstance(value, list) else [value] for key, value in entry["matrix"].items()}
        for values in itertools.product(*matrix.values()):
            job = with_values(entry["job"], dict(zip(matrix, values, strict=True)))
            entries[job.pop("name")] = job
    for name in entries:
        if not name.startswith("_"):
            yield name, inherited(entries, name)


def merged_files(file: Path) -> dict[str, Any]:
    own = yaml.safe_load(file.read_text())
    includes = own.pop("include", [])
    entries: dict[str, Any] = {}
    for include in [includes] if isinstance(includes, str) else includes:
        entries = merged(entries, merged_files(file.parent / include))
    return merged(entries, own)  # type: ignore[no-any-return]


def merged(low: Any, high: Any) -> Any:
    if not (isinstance(low, dict) and isinstance(high, dict)):
        return high
    return {**low, **{key: merged(low[key], value) if key in low else value for key, value in high.items()}}


def inherited(entries: Mapping[str, Any], name: str) -> dict[str, Any]:
    own = entries[name]
    parent = own.get("inherits")
    return merged(inherited(entries, parent), own) if parent in entries else own  # type: ignore[no-any-return]


def with_values(node: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(node, dict):
        return {key: with_values(value, values) for key, value in node.items()}
    if isinstance(node, str):
        return re.sub(r"\{([\w-]+)\}", lambda name: str(values.get(name[1], name[0])), node)
    return node


def arguments_of(bench: Mapping[str, Any]) -> list[str]:
    """The words of a benchmark; those of a server and its client stand on both sides of a `--`."""
    if "server" in bench:
        return [*words_of(bench["server"]["argv"]), "--", *words_of(bench["client"]["argv"])]
    return words_of(bench.get("argv", {}))


def words_of(argv: Mapping[str, Any] | list[str]) -> list[str]:
    """The words that milabench 1.3 makes of an `argv`: positional ones first, then the others in their order."""
    if isinstance(argv, list):
        return [str(word) for word in argv]
    words = [key for key, value in argv.items() if value is True and not key.startswith("-")]
    for key, value in argv.items():
        if key == "--":
            words += value
        elif value is True:
            words += [key] if key.startswith("-") else []
        elif value is not None:
            words += [key, ",".join(map(str, value)) if isinstance(value, list) else str(value)]
    return words


def filled(word: str, step: Mapping[str, Any], devices: int) -> str:
    """A word with its placeholders resolved, on a node with so many devices and without any sizing."""
    base = step["env"]["MILABENCH_DIR_BASE"]
    word = re.sub(r"^(|.*?=)auto\([^,]*, *([^)]*)\)$", r"\1\2", word)
    word = re.sub(r"^(|.*?=)auto_batch\(([^)]*)\)$", r"\1\2", word)
    if product := re.fullmatch(r"expr\((\d+) \* (\d+)\)", word):
        word = str(int(product[1]) * int(product[2]))
    arch = "cuda" if "CUDA_VISIBLE_DEVICES" in step["env"] else "cpu"
    names = {
        "milabench_data": f"{base}/data",
        "milabench_cache": f"{base}/cache",
        "milabench_extra": step["env"]["MILABENCH_DIR_EXTRA"],
        "milabench_code": step["cwd"],
        "benchmark_folder": step["cwd"],
        "gpu_count": str(devices),
        "device_name": arch,
    }
    return re.sub(r"\{(\w+)\}", lambda name: names.get(name[1], name[0]), word)
