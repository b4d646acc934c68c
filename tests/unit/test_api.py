"""`import milabench`: what it costs, what it offers, how results print, and the page that describes it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

import milabench
from milabench.errors import EnvironmentFailed, NothingSelected, UsageError
from milabench.workflow.options import CollectingReporter
from tests.recorded_run import Recorded, rates, record

SUITE = Path(__file__).resolve().parents[1] / "suite" / "odd.yaml"
SHAPE = (1.0, 1.01, 0.99, 1.005)


def recorded(base: Path, name: str, level: float = 100.0) -> Path:
    steps = [Recorded(repeat=k, events=rates(*[level * factor] * 5)) for k, factor in enumerate(SHAPE)]
    return record(base, *steps, name=name).path


def test_importing_it_imports_nothing_else() -> None:
    program = "import sys, milabench; print(sorted(name for name in sys.modules if name.startswith('milabench.')))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "['milabench.version']\n"


def test_a_benchfile_imports_only_what_it_declares() -> None:
    program = (
        "import sys; from milabench import Benchmark; print([n for n in ('click', 'msgspec') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("name", milabench.__all__)
def test_every_public_name_exists_and_has_a_docstring(name: str) -> None:
    member = getattr(milabench, name)
    assert isinstance(member, str) or member.__doc__
    assert name in dir(milabench)


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        milabench.nonsense  # noqa: B018


def test_a_run_is_loaded_by_path_by_name_and_from_a_report(tmp_path: Path) -> None:
    path = recorded(tmp_path, "a")
    by_path, by_name = milabench.load(path), milabench.load("a", base=tmp_path)
    assert by_path == by_name
    assert by_path.path == path
    assert [bench.bench for bench in by_path.summary.benchmarks] == ["digits"]
    assert str(by_path).startswith("run ")
    assert by_path._repr_html_().startswith('<iframe srcdoc="&lt;!')
    with pytest.raises(NothingSelected):
        milabench.load("b", base=tmp_path)


def test_two_runs_are_compared(tmp_path: Path) -> None:
    a, b = recorded(tmp_path, "a"), recorded(tmp_path, "b", 120.0)
    compared = milabench.compare(a, b)
    [row] = compared.comparison.rows
    assert [contrast.verdict for contrast in row.contrasts if contrast] == ["FASTER"]
    assert str(compared).startswith("b compared with a\n")
    assert "&lt;table" in compared._repr_html_()
    assert milabench.compare(a, b, weights={"digits": 2.0}).comparison.rows[0].weight == 2.0


def test_a_list_is_several_runs_of_one_system(tmp_path: Path) -> None:
    a, b = ([recorded(tmp_path, name, level) for level in (100.0, 102.0)] for name in "ab")
    compared = milabench.compare(a, b)
    assert [len(system.sessions) for system in compared.comparison.systems] == [2, 2]
    alone = milabench.compare(a[:1], b[0]).comparison
    assert [len(system.sessions) for system in alone.systems] == [1, 1]
    assert any("The intervals do not include the drift between sessions" in warning for warning in alone.warnings)
    with pytest.raises(UsageError):
        milabench.compare(a, [])


def test_a_comparison_needs_two_runs_and_a_margin(tmp_path: Path) -> None:
    a = recorded(tmp_path, "a")
    with pytest.raises(UsageError, match="two or more runs"):
        milabench.compare(a)
    with pytest.raises(UsageError, match="margin"):
        milabench.compare(a, a, margin=0.0)


def test_warnings_reach_the_reporter(tmp_path: Path) -> None:
    a, reporter = recorded(tmp_path, "a"), CollectingReporter()
    milabench.compare(a, a, reporter=reporter)
    [warning] = reporter.texts("warning")
    assert "compared with itself" in warning


def test_a_run_is_checked_against_criteria(tmp_path: Path) -> None:
    criteria = tmp_path / "criteria.yaml"
    criteria.write_text("benchmarks: {digits: {minimum: 50 images/s}}\n")
    accepted = milabench.accept(recorded(tmp_path, "a"), criteria)
    assert accepted.acceptance.verdict == "PASS"
    assert "PASS" in str(accepted)


def test_a_suite_is_planned_also_while_an_event_loop_runs(tmp_path: Path) -> None:
    def plan() -> milabench.PlanResult:
        return milabench.plan_suite(SUITE, select="good", base=tmp_path, use_current_env=True, repeat=2)

    async def cell() -> milabench.PlanResult:
        return plan()

    planned = plan()
    assert {step.bench for step in planned.plan.steps} == {"good"}
    assert "estimate" not in str(planned).splitlines()[0]
    assert str(planned).startswith("run plan ")
    assert asyncio.run(cell()).plan.hash == planned.plan.hash


def test_a_run_of_what_is_not_installed_is_refused_with_the_command_to_give(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailed, match=r"not installed: .*. Run `milabench install --config"):
        milabench.run(SUITE, select="good", base=tmp_path)


def test_the_page_is_what_the_docstrings_say(root: Path) -> None:
    printed = subprocess.run(
        [sys.executable, str(root / "docs" / "api_page.py")], capture_output=True, text=True, check=True
    )
    assert (root / "docs" / "reference" / "api.md").read_text() == printed.stdout, "out of date: say make docs"
    for name in milabench.__all__:
        assert name == "__version__" or f"### `{name}`" in printed.stdout


def test_the_example_runs(root: Path, tmp_path: Path) -> None:
    runs = [str(recorded(tmp_path, name, level)) for name, level in (("a", 100.0), ("b", 80.0))]
    example = root / "docs" / "examples" / "compare_two_runs.py"
    done = subprocess.run([sys.executable, str(example), *runs], capture_output=True, text=True, check=True)
    assert "b compared with a" in done.stdout
    assert done.stdout.endswith("digits: SLOWER, 0.800 times as fast\n")
