"""The processes that a benchfile of another system starts: what the plan makes of their words."""

from __future__ import annotations

from pathlib import Path

import pytest

from milabench.bench.api import RUNNER, ForeignBenchmark, StartedProcess
from milabench.config.read import read_suite
from milabench.facts.model import Device, Node, SystemFacts
from milabench.plan.context import PlanContext, ResolvedBenchmark, dirs_under
from milabench.plan.model import Step
from milabench.plan.profile import PROFILES
from milabench.plan.run import plan_run

PYTHON = "/base/venv/b/bin/python"
RUN = ("benchmate.run", "--voirfile", "/suite/b/voirfile.py")
MAIN = ("/suite/b/main.py", "--n", "3")


def steps(tmp_path: Path, *processes: StartedProcess, argv: str = "{}") -> tuple[Step, ...]:
    path = tmp_path / "suite.yaml"
    path.write_text(f"b: {{definition: x, env: {{C: suite}}, plan: {{method: njobs}}, argv: {argv}}}\n")
    suite = read_suite([path])
    node = Node(name="one", cpu_count=8, devices=(Device(index=0, uuid="u", name="X9", arch="cuda"),))
    where = PlanContext(
        facts=SystemFacts(arch="cuda", nodes=(node,)),
        system=suite.system,
        dirs=dirs_under("/base", {}),
        profile=PROFILES["quick"],
        repeats=1,
    )
    declared = ForeignBenchmark(
        format="__pack__", voirfile="voirfile.py", prepare=None, processes={"one/0": tuple(processes)}
    )
    return plan_run(
        [ResolvedBenchmark(config=suite.benchmarks["b"], folder="/suite/b", declared=declared)], where
    ).steps


@pytest.mark.parametrize(
    ("words", "argv"),
    [
        ((RUNNER, *MAIN), (PYTHON, "-m", *RUN, *MAIN)),
        ((RUNNER, "-m", "bench"), (PYTHON, "-m", *RUN, "-m", "bench")),
        (("env", "A=1", RUNNER, *MAIN), ("env", "A=1", PYTHON, "-m", *RUN, *MAIN)),
        (("/v/torchrun", "--nnodes=1", "--", RUNNER, *MAIN), ("/v/torchrun", "--nnodes=1", "-m", "--", *RUN, *MAIN)),
        (("/v/torchrun", "-m", RUNNER, *MAIN), ("/v/torchrun", "-m", *RUN, *MAIN)),
        (("/v/accelerate", "launch", RUNNER, *MAIN), ("/v/accelerate", "launch", "-m", *RUN, *MAIN)),
        (MAIN, (PYTHON, "-m", "benchmate.milabench13.relay", "--", *MAIN)),
    ],
)
def test_the_runner_stands_where_the_words_have_it(
    tmp_path: Path, words: tuple[str, ...], argv: tuple[str, ...]
) -> None:
    (step,) = steps(tmp_path, StartedProcess(words=words, cwd="/suite/b", tag="0"))
    assert step.argv == argv
    assert (step.cwd, step.id) == ("/suite/b", "b.0")


def test_arguments_of_the_suite_are_filled_in_where_the_words_have_them(tmp_path: Path) -> None:
    words = (RUNNER, "main.py", "--workers", "{n_worker}", "--image", '{"image":10}')
    (step,) = steps(tmp_path, StartedProcess(words=words, cwd="/suite/b", tag="0"), argv="{--workers: '{n_worker}'}")
    assert step.argv[-4:] == ("--workers", "8", "--image", '{"image":10}')
    assert step.config["argv"] == ["--workers", "8"]  # once more for the program, not once more in its words


def test_each_process_of_a_place_is_a_step(tmp_path: Path) -> None:
    first = StartedProcess(words=("a",), cwd="/x", tag="0.left")
    second = StartedProcess(
        words=("b",), cwd="/y", tag="0.right", literal_env={"A": "{x}"}, env={"B": "{n_worker}", "C": "class"}
    )
    planned = steps(tmp_path, first, second)
    assert [(step.id, step.argv[-1], step.cwd) for step in planned] == [
        ("b.0.left", "a", "/x"),
        ("b.0.right", "b", "/y"),
    ]
    assert (planned[1].env["A"], planned[1].env["B"]) == ("{x}", "8")
    assert planned[1].env["C"] == "suite"  # the suite's wins
    assert len({step.group for step in planned}) == 1
