"""Command lines of programs, taken apart and put together under the runner."""

from __future__ import annotations

import pytest

from milabench.errors import UsageError
from milabench.own_program.program import Program, parse_program


@pytest.mark.parametrize(
    ("words", "program"),
    [
        (["my train.py", "--lr", "1"], Program(script="my train.py", arguments=("--lr", "1"))),
        (["python3.12", "-u", "a/train.py"], Program(script="a/train.py", start=("python3.12", "-u"))),
        (["python", "-m", "pkg.train", "-v"], Program(module="pkg.train", start=("python",), arguments=("-v",))),
        (
            ["torchrun", "--nproc-per-node", "2", "train.py", "x.py"],
            Program(script="train.py", start=("torchrun", "--nproc-per-node", "2"), arguments=("x.py",)),
        ),
        (["torchrun", "-m", "pkg"], Program(module="pkg", start=("torchrun",))),
        (["accelerate", "launch", "train.py"], Program(script="train.py", start=("accelerate", "launch"))),
        (["./heat", "100"], Program(start=("./heat",), arguments=("100",))),
    ],
)
def test_a_command_line_is_taken_apart(words: list[str], program: Program) -> None:
    assert parse_program(words) == program


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["python"], "or -m and a module"),
        (["python", "-m"], "or -m and a module"),
        (["python", "-c", "1"], "python -c: only scripts and modules"),
        (["python", "--module", "x"], "python --module: only scripts and modules"),
        (["torchrun", "--x"], "or -m and a module"),
        (["accelerate", "train.py"], "expected `accelerate launch`"),
    ],
)
def test_a_command_line_without_a_program_is_refused(words: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_program(words)


@pytest.mark.parametrize(
    ("words", "observed"),
    [
        (["t.py", "1"], "/py -m benchmate.run --voirfile v t.py 1"),
        (["python", "-u", "-m", "x"], "/py -u -m benchmate.run --voirfile v -m x"),
        (["torchrun", "--standalone", "t.py"], "torchrun --standalone -m -- benchmate.run --voirfile v t.py"),
        (["accelerate", "launch", "t.py"], "accelerate launch -m benchmate.run --voirfile v t.py"),
    ],
)
def test_the_runner_stands_where_the_launcher_starts_it(words: list[str], observed: str) -> None:
    assert " ".join(parse_program(words).observed("/py", "v")) == observed


@pytest.mark.parametrize("words", [["t.py", "1"], ["python", "-m", "x"]])
def test_a_program_is_started_by_the_interpreter_that_was_found(words: list[str]) -> None:
    assert parse_program(words).plain("/py")[0] == "/py"


def test_a_launched_program_is_started_as_typed() -> None:
    words = ("torchrun", "--nproc-per-node", "2", "train.py", "--lr", "1")
    assert parse_program(words).plain("/py") == words
