"""Several suites in one base: each has its own environments, also of one name; the last used one is the default."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from milabench.execute.venv_build import benchmate_requirements
from tests.commands import ROOT, Said
from tests.process.cli.installable import Pair
from tests.processes import started, until


@pytest.mark.e2e
@pytest.mark.long
def test_installing_one_suite_leaves_the_environment_of_another(milabench: Callable[..., Said], pair: Pair) -> None:
    for name in "ab":
        said = milabench("install", *pair.config(name))
        assert said.code == 0, said.err
    for name, version in (("a", "1"), ("b", "2")):
        for verb in ("prepare", "run"):
            said = milabench(verb, *pair.config(name))
            assert said.code == 0, said.err
        prefix, seen = pair.saw(name)
        assert seen == version
        assert Path(prefix).parent == pair.base / "venv" / ".store"
        code = "import sys, tool; print(sys.prefix, tool.__version__)"
        dev = milabench("dev", name, *pair.config(name), "--", "python", "-c", code)
        assert dev.out.split() == [prefix, version]
    assert pair.saw("a")[0] != pair.saw("b")[0]


@pytest.mark.e2e
@pytest.mark.long
def test_the_link_is_that_of_the_suite_installed_last_and_nothing_is_built_again(
    milabench: Callable[..., Said], pair: Pair
) -> None:
    for name in "aba":
        said = milabench("install", *pair.config(name))
        assert said.code == 0, said.err
    assert "nothing to do" in said.err
    python = pair.base / "venv" / "shared" / "bin" / "python"
    done = subprocess.run(
        [python, "-c", "import tool; print(tool.__version__)"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "1"


@pytest.mark.e2e
def test_one_suite_is_measured_with_two_locks_in_turn(
    milabench: Callable[..., Said], pair: Pair, environ: dict[str, str]
) -> None:
    needs = "\n".join(need.replace(">=", "==") for need in benchmate_requirements(ROOT / "benchmate"))
    locks = [str(pair.folder / f"{name}.lock") for name in ("old", "new")]
    for version, lock in enumerate(locks, start=1):
        Path(lock).write_text(f"{needs}\ntool=={version}\n")
    said = milabench("run", *pair.config("a"), "--ab", *locks)
    assert said.code == 4
    assert f"--lock {locks[0]}`" in said.err  # the command that installs it
    for lock in locks:
        said = milabench("install", *pair.config("a"), "--lock", lock)
        assert said.code == 0, said.err
    said = milabench("run", *pair.config("a"), "--ab", *locks, "--no-gate")
    assert said.code == 0, said.err
    report = json.loads(milabench("report", "--json").out)
    assert report["ab"]["differs"].startswith("tool 1 / 2")
    assert [pair["pairs"] for pair in report["ab"]["pairs"]] == [5]
    (line,) = [line for line in milabench("report").out.splitlines() if line.startswith("next:")]
    again = shlex.split(line.split("`")[1])
    assert again[again.index("--ab") + 1 :][:2] == locks and "--config" in again
    assert milabench(*again[1:], "--dry-run").code == 0


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--ab", "old.lock", "suite.yaml"), "two suites or two lock files"),
        (("--lock", "old.lock", "--use-current-env"), "Leave out --lock or --use-current-env"),
        (("--ab", "no.lock", "such.lock"), "no.lock: cannot be read"),
    ],
)
def test_what_locks_do_not_go_with_is_said(
    milabench: Callable[..., Said], pair: Pair, words: tuple[str, ...], why: str
) -> None:
    said = milabench("run", *(pair.config("a") if "suite.yaml" not in words else ()), *words)
    assert said.code in (2, 4) and why in said.err


def test_a_suite_is_installed_while_another_runs(
    milabench: Callable[..., Said], pair: Pair, environ: dict[str, str]
) -> None:
    flags = pair.folder / "flags"
    waiting = (pair.folder / "timed" / "main.py").read_text()
    (pair.folder / "a" / "main.py").write_text(waiting)
    assert milabench("install", *pair.config("a")).code == 0
    (pair.folder / "a" / "prepare.py").unlink()
    (pair.folder / "a" / "benchfile.py").write_text(
        'from milabench import Benchmark\nbenchmark = Benchmark(script="main.py", voirfile=None, prepare=None)\n'
    )
    command = [sys.executable, "-m", "milabench", "run", *pair.config("a")]
    with started(command, env=environ, cwd=ROOT, stderr=subprocess.PIPE, text=True) as run:
        until((flags / "up").exists)
        said = milabench("install", *pair.config("b"))
        assert said.code == 0, said.err
        (flags / "go").touch()
        _, err = run.communicate()
    assert run.returncode == 0, err


def test_an_interrupted_run_of_an_older_version_which_named_the_link_is_resumed(
    milabench: Callable[..., Said], timed: tuple[tuple[str, ...], Path], environ: dict[str, str]
) -> None:
    here, flags = timed
    (flags / "go").touch()
    assert milabench("prepare", *here).code == 0
    (flags / "go").unlink()
    base = Path(environ["MILABENCH_BASE"])
    command = [sys.executable, "-m", "milabench", "run", *here]
    with started(command, env=environ, cwd=ROOT, stderr=subprocess.DEVNULL) as run:
        until((flags / "up").exists)
        run.kill()
    (manifest,) = (base / "runs").glob("run.*/manifest.json")
    (store,) = (base / "venv" / ".store").glob("timed-*/")
    manifest.write_text(manifest.read_text().replace(f"/.store/{store.name}", "/timed"))
    (flags / "go").touch()
    said = milabench("resume")
    assert said.code == 0, said.err
    # Not so one whose environment is another one by now.
    manifest.write_text(manifest.read_text().replace(store.name.removeprefix("timed-"), "0" * 16))
    journal = manifest.with_name("journal.jsonl")
    journal.write_text("".join(line + "\n" for line in journal.read_text().splitlines() if "passed" not in line))
    said = milabench("resume")
    assert said.code == 6
    assert said.err.splitlines()[1:-1] == ["         environment timed: changed"]


def test_two_suites_with_environments_of_one_name_are_measured_in_turn(
    milabench: Callable[..., Said], pair: Pair
) -> None:
    same = (pair.folder / "b.yaml").read_text().replace("b: {", "a: {")
    (pair.folder / "b.yaml").write_text(same)
    for verb in ("install", "prepare"):
        for name in "ab":
            assert milabench(verb, *pair.config(name)).code == 0
    said = milabench("run", "--ab", str(pair.folder / "a.yaml"), str(pair.folder / "b.yaml"), "--repeat", "1")
    assert said.code == 0, said.err
    assert pair.saw("a")[1] == "1"
    assert pair.saw("b")[1] == "2"
    (manifest,) = (pair.base / "runs").glob("run.*/manifest.json")
    locks = json.loads(manifest.read_text())["locks"]
    assert sorted(locks) == ["shared@A", "shared@B"]
    bundled = milabench("bundle", str(manifest.parent), "-o", str(pair.folder / "run.tar"))
    assert (bundled.code, "is gone" in bundled.err) == (0, False), bundled.err


def test_the_suite_last_used_in_a_base_is_the_default_and_said(milabench: Callable[..., Said], pair: Pair) -> None:
    assert milabench("install", *pair.config("a")).code == 0
    said = milabench("prepare", cwd=pair.folder)
    assert (said.code, said.err.splitlines()[0]) == (
        0,
        "suite: a.yaml, the last used in base. Choose another with --config",
    )
    for verb in ("install", "prepare", "run"):
        assert milabench(verb, *pair.config("b")).code == 0
    # What only reads takes the default, and leaves it.
    listed = milabench("list", "--json", *pair.config("a"))
    assert ([bench["name"] for bench in json.loads(listed.out)["benchmarks"]], listed.err) == (["a"], "")
    listed = milabench("list", "--json", cwd=pair.folder)
    assert [bench["name"] for bench in json.loads(listed.out)["benchmarks"]] == ["b"]
    assert listed.err == "suite: b.yaml, the last used in base. Choose another with --config\n"
    # Nor does what brings a suite of its own.
    assert milabench("bench", "--runs", "1", "true").code == 0
    assert milabench("list", cwd=pair.folder).err.startswith("suite: b.yaml, the last used")
    assert milabench("list", MILABENCH_CONFIG=str(pair.folder / "a.yaml")).err == ""
    # Nor do files that are named.
    assert milabench("config", "check", "a.yaml", cwd=pair.folder).err == "1 file is valid\n"
    assert milabench("run").code == 0


@pytest.mark.e2e
@pytest.mark.long
def test_another_suite_than_the_last_used_is_never_meant_silently(milabench: Callable[..., Said], pair: Pair) -> None:
    system = pair.folder / "system.yaml"
    system.write_text("system: {arch: cpu}\n")
    assert milabench("install", *pair.config("a")).code == 0
    assert milabench("install", *pair.config("b"), "--system", str(system)).code == 0
    system.unlink()
    said = milabench("list", cwd=pair.folder)
    assert (said.code, said.err) == (
        2,
        f"error: the system file system.yaml of the suite last used in base, {pair.folder / 'b.yaml'}, is gone. "
        "Choose another with --system or --config\n",
    )
    (pair.folder / "b.yaml").rename(pair.folder / "moved.yaml")
    for command in (["install"], ["prepare"], ["run"], ["plan", "run"], ["list"], ["dev", "b"]):
        said = milabench(*command, cwd=pair.folder)
        assert (said.code, said.err) == (
            2,
            "error: the suite last used in base, b.yaml, is gone. Choose a suite with --config\n",
        ), command
    assert milabench("list", *pair.config("a")).code == 0
    # Nor after its environment was removed, twice.
    for _ in range(2):
        assert milabench("gc", "--remove").code == 0
        assert milabench("list", cwd=pair.folder).err.startswith("error: the suite last used in base, b.yaml, is gone")
    record = pair.base / "suites.json"
    record.write_text(record.read_text()[:-40])
    said = milabench("run", cwd=pair.folder)
    assert (said.code, said.err) == (
        6,
        f"error: {record}: was not written by milabench. Remove it, and `milabench install` writes it again. "
        "Name another suite with --config\n",
    )
    assert milabench("list", *pair.config("a")).code == 0


def test_the_default_keeps_its_size_and_says_it(milabench: Callable[..., Said], pair: Pair) -> None:
    sized = pair.folder / "sized.yaml"
    sized.write_text("a: {command: echo, sizes: {tiny: {weight: 1}, device: {weight: 2}}}\n")
    said = milabench("install", "--config", str(sized), "--size", "tiny")
    assert said.code == 0, said.err
    for words, size in (((), "tiny"), (("--size", "device"), "device")):
        said = milabench("plan", "run", "--json", *words, cwd=pair.folder)
        assert {step["config"]["size"] for step in json.loads(said.out)["steps"]} == {size}, said.err
        at = "" if words else " at size tiny"
        assert said.err.startswith(f"suite: sized.yaml{at}, the last used in base. Choose another with --config\n")
    said = milabench("config", "explain", "a.size", cwd=pair.folder)
    assert said.out.splitlines()[1] == "  the size tiny is chosen by the last use of the suite in base"
    # An override says more than what is remembered.
    said = milabench("config", "explain", "a.size", "--override", "size=device", cwd=pair.folder)
    assert said.out.splitlines()[1] == "  the size device is chosen by --override 'size=device'"


def test_a_record_of_a_newer_version_is_left_as_it_is(milabench: Callable[..., Said], pair: Pair) -> None:
    assert milabench("install", *pair.config("a")).code == 0
    record = pair.base / "suites.json"
    newer = json.dumps({"schema": 2, "suites": []})
    record.write_text(newer)
    why = f"{record}: was written by a newer version of milabench. Use that version in this base"
    for command in (["gc"], ["gc", "--remove"]):
        said = milabench(*command)
        assert (said.code, said.err) == (6, f"error: {why}\n")
    assert milabench("list").code == 6
    said = milabench("install", *pair.config("a"))
    assert (said.code, f"warning: {why}" in said.err) == (0, True), said.err
    assert record.read_text() == newer
    assert list((pair.base / "venv" / ".store").glob("shared-*/"))


def test_the_default_keeps_its_system_file_and_no_secret_is_recorded(
    milabench: Callable[..., Said], pair: Pair
) -> None:
    system = pair.folder / "my system.yaml"
    system.write_text("system: {arch: cpu}\n")
    override = "a.env.API_TOKEN=s3cret-of-mine-123"
    said = milabench("install", *pair.config("a"), "--system", str(system), "--override", override)
    assert said.code == 0, said.err
    assert "s3cret" not in (pair.base / "suites.json").read_text()
    assert milabench("list", cwd=pair.folder).err.startswith("suite: a.yaml with my system.yaml, the last used in base")
