from __future__ import annotations

from pathlib import Path

import pytest

from milabench.errors import EnvironmentFailed
from milabench.execute.install_session import Installed
from milabench.execute.inventory import installed_packages, unmet_requirements
from milabench.execute.venv_build import benchmate_requirements
from milabench.pinning.compiled_locks import PinInput, pin_specs
from milabench.pinning.pinned_locks import Pinned, pin_locks
from milabench.plan.pin import inputs_digest
from milabench.plan.requirements import RequirementFile, parse_requirements
from tests.process.install.places import Place, wheel


def pin(place: Place, folder: Path, wanted: dict[str, str], constraints: str = "") -> tuple[Pinned, ...]:
    inputs = []
    for bench, text in wanted.items():
        (folder / f"{bench}.in").write_text(text)
        inputs.append(
            (
                "g",
                PinInput(requirements=str(folder / f"{bench}.in"), lock=str(folder / f"{bench}.cpu.txt")),
            )
        )
    (folder / "constraints.txt").write_text(constraints)
    specs = pin_specs(
        inputs,
        "cpu",
        python="3.11",
        benchmate=benchmate_requirements(place.benchmate),
        constraints=RequirementFile(name=str(folder / "constraints.txt"), text=constraints),
    )
    environ = {**place.environ, "PIP_FIND_LINKS": str(place.wheels), "PIP_NO_INDEX": "1"}
    return pin_locks(specs, environ=environ, report=place.said.append)


def test_a_lock_holds_the_benchmark_the_instruments_and_no_path(place: Place, tmp_path: Path) -> None:
    pin(place, tmp_path, {"a": "tool\n"}, constraints="tool<2\n")
    text = (tmp_path / "a.cpu.txt").read_text()
    lock = parse_requirements(text)
    assert lock.header == {
        "python": "3.11",
        "platform": "linux x86_64",
        "variant": "cpu",
        "made by": "milabench pin",
        "inputs": inputs_digest("tool\n", "tool<2\n"),
    }
    assert [each.line for each in lock.pins] == ["tool==1", "voir==1"]
    assert lock.is_hashed
    assert str(tmp_path) not in text


def test_a_second_time_changes_nothing(place: Place, tmp_path: Path) -> None:
    (first,) = pin(place, tmp_path, {"a": "tool\n"})
    (second,) = pin(place, tmp_path, {"a": "tool\n"})
    assert (first.has_changed, second.has_changed) == (True, False)


def test_benchmarks_that_share_an_environment_get_the_same_versions(place: Place, tmp_path: Path) -> None:
    pin(place, tmp_path, {"a": "tool\n", "b": "tool<2\n"})
    assert [parse_requirements((tmp_path / f"{bench}.cpu.txt").read_text()).pins[0].line for bench in "ab"] == [
        "tool==1",
        "tool==1",
    ]


def test_a_lock_that_was_made_installs(place: Place, tmp_path: Path) -> None:
    pin(place, tmp_path, {"a": "tool\n"})
    (outcome,) = place.install(place.spec((tmp_path / "a.cpu.txt").read_text()))
    assert outcome == Installed(name="g", is_new=True)


def test_a_package_that_is_left_out_is_in_no_lock_of_the_group_and_need_not_exist(place: Place, tmp_path: Path) -> None:
    wheel(place.wheels, "model", "1", needs=("tool", "codec"))
    pin(place, tmp_path, {"a": "# exclude: codec other\nmodel\n", "b": "model\n"})
    locks = {name: parse_requirements((tmp_path / f"{name}.cpu.txt").read_text()) for name in "ab"}
    assert {name: [each.line for each in lock.pins] for name, lock in locks.items()} == {
        name: ["model==1", "tool==2", "voir==1"] for name in "ab"
    }
    assert all(lock.is_hashed for lock in locks.values())


def test_what_cannot_be_resolved_is_named_and_the_old_lock_stays(place: Place, tmp_path: Path) -> None:
    (tmp_path / "a.cpu.txt").write_text("old\n")
    with pytest.raises(EnvironmentFailed, match=r"g \(cpu\): requirement nosuch does not exist"):
        pin(place, tmp_path, {"a": "nosuch\n"})
    assert (tmp_path / "a.cpu.txt").read_text() == "old\n"


def test_the_running_interpreter_is_asked_what_it_has() -> None:
    version = installed_packages()["pytest"]
    lock = RequirementFile(name="a.txt", text=f"pytest=={version}\nhypothesis==0.0.1\nnosuch-package==1\n")
    assert unmet_requirements([lock], {**installed_packages(), "benchmate": "0.1"}) == {
        "hypothesis==0.0.1": f"{installed_packages()['hypothesis']} is installed",
        "nosuch-package==1": "not installed",
    }
    assert unmet_requirements([], {}) == {"benchmate": "not installed"}
