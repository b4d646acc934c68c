"""Completion as the shells ask for it: words and a position in the environment, candidates on stdout."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import PYTHON, ROOT, Said

Milabench = Callable[..., Said]
QUICKSTART = "config/quickstart.yaml"


def candidates(milabench: Milabench, *words: str, **environ: str) -> list[str]:
    """What bash would offer for the last of the words."""
    line = {"COMP_WORDS": " ".join(("milabench", *words)), "COMP_CWORD": str(len(words))}
    said = milabench(_MILABENCH_COMPLETE="bash_complete", **line, **environ)
    assert (said.code, said.err) == (0, "")
    return [line.partition(",")[2] for line in said.out.splitlines() if line]


def test_commands_are_completed(milabench: Milabench) -> None:
    assert candidates(milabench, "re") == ["resume", "replay", "report"]
    assert {"install", "run", "size", "completion"} <= set(candidates(milabench, ""))


@pytest.mark.parametrize("verb", ["run", "install", "prepare", "report", "list", "doctor", "dev", "pin", "size"])
def test_options_of_each_command_are_completed(milabench: Milabench, verb: str) -> None:
    assert "--base" in candidates(milabench, verb, "--ba")


def test_values_of_an_option_are_completed(milabench: Milabench) -> None:
    assert candidates(milabench, "run", "--profile", "r") == ["rigorous"]
    assert candidates(milabench, "plan", "pre") == ["prepare"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("run", "--config", QUICKSTART, "--select", "f"), ["flax", "flops", "finetuning"]),
        (("run", "--config", QUICKSTART, "--exclude", "digits,p"), ["digits,pykeen", "digits,ppo", "digits,pytorch"]),
        (("config", "show", "--config", QUICKSTART, "di"), ["digits"]),
        (("config", "explain", "--config", QUICKSTART, "pp"), ["ppo"]),
        (("dev", "--config", QUICKSTART, "sf"), ["sft"]),
        (("size", "--config", "tests/suite/sized.yaml", "s"), ["sized"]),
        (
            ("list", "--config", "tests/suite/imaginary.yaml", "--select", "convnet-bs64"),
            ["convnet-bs64-pytorch", "convnet-bs64-dali"],
        ),
        (("list", "--config", "no/such/file.yaml", "--select", ""), []),
    ],
)
def test_names_and_tags_of_the_suite_are_completed(
    milabench: Milabench, words: tuple[str, ...], expected: list[str]
) -> None:
    assert candidates(milabench, *words) == expected


def test_shipped_suites_are_completed_beside_files(milabench: Milabench) -> None:
    assert candidates(milabench, "run", "--config", "qui") == ["quickstart", "qui"]


def test_runs_are_completed(milabench: Milabench, tmp_path: Path) -> None:
    base = ("--base", str(tmp_path))
    assert candidates(milabench, "report", *base, "") == []
    for name in ("day", "night"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    assert sorted(candidates(milabench, "report", *base, "")) == ["day", "latest", "night"]
    assert candidates(milabench, "logs", *base, "--run", "ni") == ["night"]
    assert candidates(milabench, "status", *base, "da") == ["day"]


OBEYED = ("a$(touch X)", "b`touch X`", "c;touch X", "d&e", "f|g", "h>i", "j\nk", "l!m", "n\\o", "p\x1b[31m")


def test_a_name_of_which_a_shell_would_run_something_is_not_offered(milabench: Milabench, tmp_path: Path) -> None:
    for name in (*OBEYED, "plain name.2"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    suite = tmp_path / "suite.yaml"
    suite.write_text("".join(f"{json.dumps(name)}: {{definition: x}}\n" for name in (*OBEYED, "plain")))
    for matrix in ("", "many: {definition: x, matrix: {a: [1, 2]}}\n"):
        suite.write_text(suite.read_text() + matrix)
        offered = candidates(milabench, "run", "--config", str(suite), "--select", "")
        assert "plain" in offered
        assert not {char for name in offered for char in name} & set("$`;&>\n\x1b")
    assert candidates(milabench, "report", "--base", str(tmp_path), "") == ["latest", "plain name.2"]


def test_the_suite_may_come_from_the_environment(milabench: Milabench) -> None:
    assert candidates(milabench, "run", "--select", "ti", MILABENCH_CONFIG="tests/suite/sized.yaml") == ["tiny"]


def test_a_glance_finds_the_names_that_reading_finds(milabench: Milabench, tmp_path: Path) -> None:
    (tmp_path / "more.yaml").write_text("'single quoted': {definition: x}\nfrom-include: {definition: x}\n")
    suite = tmp_path / "suite.yaml"
    suite.write_text(
        "# a comment: no name\ninclude:\n  - more.yaml\nsystem: {arch: cpu}\nprofile: quick\n_template: {definition: x}\n"
        '"*": {weight: 1.0}\n"double \\"quoted": {definition: x}\nplain.name: {definition: x}\nmapping:\n  definition: x\n'
    )
    read = json.loads(milabench("list", "--config", str(suite), "--json").out)
    said = candidates(milabench, "config", "show", "--config", str(suite), "")
    assert set(said) == {row["name"] for row in read["benchmarks"]}
    assert len(said) == 5


def test_nothing_heavy_is_imported_to_complete(environ: dict[str, str]) -> None:
    program = (
        "import sys, runpy, atexit\n"
        "heavy = ('asyncio', 'asyncssh', 'rich', 'yaml', 'omegaconf', 'milabench.execute.api', 'milabench.config.read')\n"
        "atexit.register(lambda: print([m for m in heavy if m in sys.modules]))\n"
        "runpy.run_module('milabench', run_name='__main__')"
    )
    words = f"milabench run --config {QUICKSTART} --select f"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**environ, "_MILABENCH_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": "5"},
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.stdout.splitlines()[-1] == "[]", done.stdout + done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_asks_with_the_protocol_of_its_shell(milabench: Milabench, shell: str) -> None:
    said = milabench("completion", shell)
    assert said.code == 0
    assert f"_MILABENCH_COMPLETE={shell}_complete" in said.out
    if found := shutil.which(shell):
        assert subprocess.run([found, "-n"], input=said.out, text=True, check=False).returncode == 0


def test_bash_itself_completes_with_the_script(milabench: Milabench, environ: dict[str, str], tmp_path: Path) -> None:
    if (bash := shutil.which("bash")) is None:
        pytest.skip("bash is not installed")
    command = tmp_path / "milabench"
    command.write_text(f'#!/bin/sh\nexec {PYTHON} -m milabench "$@"\n')
    command.chmod(0o755)
    script = milabench("completion", "bash").out.replace("complete -o", "complete 2>/dev/null -o")
    ask = (
        f"{script}\nCOMP_WORDS=(milabench run --config {QUICKSTART} --select di); COMP_CWORD=5\n"
        "_milabench_completion milabench; printf '%s\\n' \"${COMPREPLY[@]}\"\n"
    )
    done = subprocess.run(
        [bash, "--norc", "-c", ask],
        env={**environ, "PATH": f"{tmp_path}:{environ['PATH']}", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.stdout.splitlines() == ["digits"], done.stderr


def test_an_unknown_shell_is_refused(milabench: Milabench) -> None:
    said = milabench("completion", "tcsh")
    assert said.code == 2
    assert "bash" in said.err
