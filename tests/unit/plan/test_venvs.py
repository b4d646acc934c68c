from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from milabench.errors import ConfigError
from milabench.plan.requirements import RequirementFile, parse_requirements
from milabench.plan.venvs import VenvRequest, VenvSpec, agreeing_groups, plan_venvs


def request(
    bench: str = "a",
    text: str = "numpy==2.4.6 --hash=sha256:aa\n",
    *,
    group: str = "g",
    variant: str = "cpu",
    constraints: str | None = None,
    pip: Mapping[str, str] | None = None,
) -> VenvRequest:
    return VenvRequest(
        bench=bench,
        group=group,
        variant=variant,
        requirements=(RequirementFile(name=f"{bench}/requirements.{variant}.txt", text=text),),
        constraints=None
        if constraints is None
        else RequirementFile(name=f"constraints/{variant}.txt", text=constraints),
        pip=pip or {},
        arch="cpu",
    )


def plan(*requests: VenvRequest, selected: set[str] | None = None, benchmate: str = "bm") -> tuple[VenvSpec, ...]:
    return plan_venvs(requests, benchmate=benchmate, python="3.12", platform="linux-x86_64", selected=selected)


def refusal(*requests: VenvRequest) -> str:
    with pytest.raises(ConfigError) as caught:
        plan(*requests)
    return str(caught.value)


def test_benchmarks_of_one_group_share_an_environment_with_all_their_requirements() -> None:
    (spec,) = plan(request("a", "x==1 --hash=sha256:11\n"), request("b", "y==2 --hash=sha256:22\n"))
    assert spec.benches == ("a", "b")
    assert [pin.line for pin in spec.lock.pins] == ["x==1", "y==2"]
    assert spec.is_hashed


def test_selecting_one_benchmark_of_a_group_does_not_change_its_environment() -> None:
    requests = (request("a", "x==1\n"), request("b", "y==2\n"), request("c", group="other"))
    assert plan(*requests, selected={"b"}) == plan(*requests)[:1]


def test_everything_that_shapes_an_environment_changes_its_digest() -> None:
    (spec,) = plan(request())
    others = [
        *plan(request(text="numpy==2.4.5 --hash=sha256:aa\n")),
        *plan(request(constraints="numpy<3\n")),
        *plan(request(variant="cuda")),
        *plan(request(pip={"find-links": "wheels"})),
        *plan(request(), benchmate="another"),
        replace(spec, python="3.13"),
        replace(spec, platform="linux-aarch64"),
        replace(spec, overrides=("voir==1",)),
        replace(spec, pip_args=("--pre",)),
    ]
    digests = {each.digest for each in (spec, *others)}
    assert len(digests) == len(others) + 1


def test_neither_the_name_of_a_file_nor_the_order_of_the_benchmarks_changes_the_digest() -> None:
    (first,) = plan(request("a", "x==1\n"), request("b", "y==2\n"))
    (second,) = plan(request("c", "y==2\n"), request("d", "x==1\n"))
    assert first.digest == second.digest


def test_the_folder_is_named_by_group_and_digest() -> None:
    (spec,) = plan(request(group="torch"))
    assert spec.folder == f"torch-{spec.digest[:16]}"


def test_the_python_of_the_lock_wins_over_the_one_that_runs() -> None:
    assert plan(request(text="# python: 3.11\nx==1\n"))[0].python == "3.11"
    assert plan(request())[0].python == "3.12"


def test_conflicting_pins_are_an_error_that_names_both_files() -> None:
    said = refusal(request("a", "x==1\n"), request("b", "x==2\n"))
    assert "x==1 in a/requirements.cpu.txt (a), x==2 in b/requirements.cpu.txt (b)" in said
    assert "different install_groups" in said


def test_different_variants_pips_and_pythons_in_one_group_are_all_told() -> None:
    said = refusal(
        request("a", "# python: 3.11\nx==1\n"),
        request("b", "# python: 3.12\ny==1\n", variant="cuda", pip={"no-index": "1"}),
    )
    assert "a wants the variant 'cpu', b wants 'cuda'" in said
    assert "different `pip` settings" in said
    assert "a/requirements.cpu.txt for 3.11, b/requirements.cuda.txt for 3.12" in said


def test_a_lock_of_another_variant_is_an_error() -> None:
    assert "is a lock of the variant 'cuda', not 'cpu'" in refusal(request(text="# variant: cuda\nx==1\n"))


def test_a_lock_that_breaks_its_constraints_is_an_error() -> None:
    said = refusal(request(constraints="numpy<2\n"))
    assert "numpy==2.4.6 breaks the constraint numpy<2 of constraints/cpu.txt. Rewrite the lock" in said


@pytest.mark.parametrize(
    ("text", "variant", "backend"),
    [
        ("torch==2.13.0+cpu\n", "cpu", "cpu"),
        ("torch==2.13.0 ; sys_platform == 'darwin'\ntorch==2.13.0+cpu ; sys_platform == 'linux'\n", "cpu", "cpu"),
        ("torch==2.13.0\n", "cpu", "cpu"),
        ("torch==2.13.0\n", "cuda", None),
        ("torch==2.13.0+cu130\n", "cuda", "cu130"),
        ("torch==2.13.0+rocm7.2\n", "rocm", "rocm7.2"),
        ("torch\n", "unpinned", "cpu"),
        ("numpy==2.4.6\n", "cpu", None),
    ],
)
def test_the_build_of_torch_decides_where_it_is_looked_for(text: str, variant: str, backend: str | None) -> None:
    assert plan(request(text=text, variant=variant))[0].torch_backend == backend


def test_the_commit_of_a_repository_changes_what_is_installed_and_not_what_is_asked_for() -> None:
    (spec,) = plan(request(text="x @ git+https://example.org/x@main\n"))
    ((_, git),) = spec.moving
    resolved = replace(spec, commits={git.text: "a" * 40})
    assert resolved.digest == spec.digest
    assert not resolved.moving
    assert [pin.line for pin in resolved.lock.pins] == [f"x @ git+https://example.org/x@{'a' * 40}"]


def test_locks_that_agree_share_an_environment_and_what_has_none_is_alone() -> None:
    locks = {
        "a": parse_requirements("x==1\ny==1\n"),
        "b": None,
        "c": parse_requirements("x==2\n"),
        "d": parse_requirements("y==1\nz==1\n"),
        "e": parse_requirements("x==2\nz==2\n"),
    }
    assert agreeing_groups(locks) == (("a", "d"), ("b",), ("c", "e"))


def test_the_constraints_of_all_benchmarks_of_a_group_hold() -> None:
    (spec,) = plan(request("a", "x\n", constraints="y<2\n"), request("b", "z\n", constraints="y<2\nx<3\n"))
    assert spec.constraints is not None
    assert spec.constraints.text == "y<2\nx<3\n"
