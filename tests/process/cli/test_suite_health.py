"""`make suite-health`: each benchmark's outcome by itself, whatever the others do; shards that make the whole."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import ROOT, Said
from tests.suite_health import miscounted, plain_reason, shard_of, united

GROUPS = {"a": "torch", "b": "trl", "c": "torch", "d": "jax", "e": "vision"}


def test_shards_hold_whole_environments_and_together_everything() -> None:
    shards = [shard_of(GROUPS, f"{number}/3") for number in (1, 2, 3)]
    assert sorted(name for shard in shards for name in shard) == sorted(GROUPS)
    assert [{GROUPS[name] for name in shard} for shard in shards] == [{"jax", "vision"}, {"torch"}, {"trl"}]
    for wrong in ("0/3", "4/3", "3", "a/b", "", "²/4", "1/²"):
        with pytest.raises(SystemExit, match="not a shard"):
            shard_of(GROUPS, wrong)


def test_a_reason_names_no_folder_of_the_machine() -> None:
    assert plain_reason("prepare: /home/joe/x y/z.py: no\n such file") == "prepare: x y/z.py: no such file"
    assert len(plain_reason("word " * 100)) <= 200


def test_shards_are_united() -> None:
    good, bad = {"outcome": "passed", "why": ""}, {"outcome": "failed", "why": "run: exit"}
    first = {"date": "2026-11-21", "versions": {"torch": "2.13.0"}, "benchmarks": {"b": good}}
    second = {"date": "2026-11-22", "versions": {"torch": "2.12.0", "jax": "0.10"}, "benchmarks": {"a": bad}}
    assert united([second, first]) == {
        "date": "2026-11-22",
        "versions": {"jax": "0.10", "torch": "2.12.0, 2.13.0"},
        "benchmarks": {"a": bad, "b": good},
    }


@pytest.mark.parametrize(
    ("units", "audit", "items", "why"),
    [
        ("images/s", 1.0, 1.0, []),
        ("images/s", 0.25, 1.0, []),  # of four loaders' batches, or optimizers' steps, one is a step
        ("images/s", 0.958, 1.0, ["0.958 steps are observed for each of the program's"]),
        ("images/s", 1.0, 0.375, ["0.375 items are counted for each sample of the program's loaders"]),
        ("tokens/s", 1.0, 128.0, []),
    ],
)
def test_a_count_that_the_program_does_not_share_is_told(
    units: str, audit: float, items: float, why: list[str]
) -> None:
    metrics: list[dict[str, object]] = [
        {"metric": "rate", "value": 100.0, "units": units},
        {"metric": "audit", "value": audit, "units": ""},
        {"metric": "audit_items", "value": items, "units": ""},
    ]
    assert list(miscounted(metrics)) == why


@pytest.mark.e2e
@pytest.mark.long
@pytest.mark.slow
def test_one_that_fails_is_named_and_the_others_are_measured(
    milabench: Callable[..., Said],
    environ: dict[str, str],
    tmp_path: Path,
) -> None:
    for name in ("good", "unprepared", "failing", "never"):
        assert milabench("new", name, "--into", str(tmp_path)).code == 0
    (tmp_path / "unprepared" / "prepare.py").write_text("raise OSError('no such disk')\n")
    (tmp_path / "failing" / "main.py").write_text("raise ValueError('not today')\n")
    suite = tmp_path / "suite.yaml"
    suite.write_text(
        "".join(f"{name}: {{definition: {name}}}\n" for name in ("good", "unprepared", "failing"))
        + "never: {definition: never, requires_capabilities: ['1 > 2']}\n"
    )
    argv = [sys.executable, str(ROOT / "tests" / "suite_health.py"), "run", "--config", str(suite), "--use-current-env"]
    where = ["--base", str(tmp_path / "base"), "--output", str(tmp_path / "found.json")]
    said = subprocess.run([*argv, *where], env=environ, cwd=ROOT, capture_output=True, text=True, check=False)
    assert said.returncode == 1, said.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert {name: entry["outcome"] for name, entry in found["benchmarks"].items()} == {
        "good": "passed",
        "unprepared": "failed",
        "failing": "failed",
        "never": "skipped",
    }
    assert "prepare" in found["benchmarks"]["unprepared"]["why"]
    assert "ValueError" in found["benchmarks"]["failing"]["why"]
    assert found["versions"]["milabench"]
    assert str(tmp_path) not in (tmp_path / "found.json").read_text()


def health(*words: str, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, str(ROOT / "tests" / "suite_health.py"), *words]
    return subprocess.run(argv, env=environ, cwd=ROOT, capture_output=True, text=True, check=False)


def test_what_cannot_run_here_is_skipped_and_an_empty_shard_is_no_failure(
    environ: dict[str, str],
    tmp_path: Path,
) -> None:
    (tmp_path / "suite.yaml").write_text(
        "site: {command: [no-such-program], timed: true, requires_programs: [no-such-program]}\n"
    )
    where = ["--base", str(tmp_path / "base"), "--output", str(tmp_path / "found.json")]
    suite = ["--config", str(tmp_path / "suite.yaml"), "--use-current-env"]
    said = health("run", *suite, *where, environ=environ)
    assert said.returncode == 0, said.stderr
    entry = json.loads((tmp_path / "found.json").read_text())["benchmarks"]["site"]
    assert entry["outcome"] == "skipped"
    assert entry["why"].startswith("requires the program no-such-program")
    said = health("run", *suite, *where, "--shard", "2/2", environ=environ)
    assert said.returncode == 0
    assert "shard 2/2 has no benchmark" in said.stdout


def test_wrong_input_is_one_line(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "empty.json").write_text("{}")
    (tmp_path / "text.json").write_text("no JSON")
    for words, what in (
        (["run", "--config", str(tmp_path / "none.yaml"), "--base", str(tmp_path / "base")], "none.yaml"),
        (["write", str(tmp_path / "none.json")], "No such file"),
        (["write", str(tmp_path / "empty.json")], "lacks date"),
        (["write", str(tmp_path / "text.json")], "is not JSON"),
    ):
        said = health(*words, environ=environ)
        assert said.returncode in (1, 2)
        assert len(said.stderr.splitlines()) == 1, said.stderr
        assert said.stderr.startswith("error: ")
        assert what in said.stderr
    assert not (tmp_path / "base").exists()
