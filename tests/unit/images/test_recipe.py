"""Recipes of images: the same bytes for the same inputs, everything by its hash, and one line for what cannot be made."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from milabench.images.recipe import ControlPlane, apptainer_definition, base_image, containerfile, image_lock
from milabench.plan.requirements import Lock, RequirementFile, broken_constraints, parse_requirements
from milabench.plan.venvs import VenvSpec

ROOT = Path(__file__).resolve().parents[3]
HASH = "--hash=sha256:" + "0" * 64
DIGEST = "sha256:" + "1" * 64
CONTROL = ControlPlane(
    file="milabench-1.0-py3-none-any.whl",
    version="1.0",
    sha256="2" * 64,
    requirements=("click>=8.1", "uv>=0.9"),
    lock=parse_requirements(f"click==8.3 {HASH}\nuv==0.9 {HASH}\nflit-core==3.12 {HASH}\n"),
)


def spec(*lines: str, python: str = "3.12", group: str = "torch") -> VenvSpec:
    text = f"# python: {python}\n# variant: cpu\n" + "".join(f"{line}\n" for line in lines)
    return VenvSpec(
        group=group,
        variant="cpu",
        python=python,
        platform="linux-x86_64",
        benches=("b", "a"),
        requirements=(RequirementFile(name="requirements.cpu.txt", text=text),),
        constraints=None,
        benchmate="3" * 64,
    )


def definition(one: VenvSpec, base: str = "python:3.12", index: str | None = None) -> str:
    return apptainer_definition(one, CONTROL, base, index)


def test_the_same_inputs_give_the_same_bytes_and_others_do_not() -> None:
    lines = (f"torch==2.0 {HASH}", f"numpy==1.0 {HASH}")
    assert definition(spec(*lines)) == definition(spec(*reversed(lines))).replace(
        spec(*reversed(lines)).digest, spec(*lines).digest
    )
    assert definition(spec(*lines)) == definition(spec(*lines))
    assert definition(spec(*lines)) != definition(spec(*lines[:1]))
    assert containerfile(CONTROL, "python:3.11") == containerfile(CONTROL, "python:3.11")


def test_a_definition_says_what_it_is_made_from() -> None:
    text = definition(spec(f"torch==2.0 {HASH}"), "python:3.12@" + DIGEST, "https://example.org/whl/cpu/")
    assert f"From: python:3.12@{DIGEST}\n" in text
    assert f"milabench.environment.digest {spec(f'torch==2.0 {HASH}').digest}\n" in text
    assert "sys.version_info[:2] == (3, 12)" in text
    assert "--extra-index-url https://example.org/whl/cpu/ --requirement requirements.txt" in text
    assert "torch==2.0 \\\n    --hash=sha256:" in text


def test_a_package_of_both_is_installed_once_as_the_environment_has_it() -> None:
    lock = image_lock(spec(f"click==8.2 {HASH}"), CONTROL)
    assert [pin.line for pin in lock.pins] == ["click==8.2", "flit-core==3.12", "uv==0.9"]
    assert lock.is_hashed


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (spec("torch==2.0", f"numpy==1.0 {HASH}"), "its lock has no hash for torch"),
        (spec(f"click==7.0 {HASH}"), "its lock has click==7.0, and the control plane needs click>=8.1"),
        (spec(f"numpy==1.0 {HASH}", python="3.10"), "its lock is for python 3.10"),
        (spec("--find-links x", f"numpy==1.0 {HASH}"), "has the option --find-links x"),
    ],
)
def test_what_no_image_can_be_made_of_is_one_line(one: VenvSpec, why: str) -> None:
    with pytest.raises(ValueError, match=why) as caught:
        definition(one)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["a b", "x\nRUN y", "-x", "a@sha256:12", "", "$(x)", "'", "{{ x }}"])
def test_what_is_no_image_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not the name of an image"):
        base_image(name)


@pytest.mark.parametrize("name", ["python:3.12", "nvcr.io/nvidia/pytorch:25.01-py3", f"localhost:5000/a/b@{DIGEST}"])
def test_names_of_images_are_taken_as_they_are(name: str) -> None:
    assert base_image(name) == name


def test_by_default_the_base_has_the_python_of_the_lock() -> None:
    assert base_image(None, "3.12") == "docker.io/library/python:3.12-slim-bookworm"


def test_a_group_in_a_definition_opens_no_section() -> None:
    one = replace(spec(f"numpy==1.0 {HASH}"), benches=("a\n%post\nx",))
    assert definition(one).count("\n%post\n") == 1


def shipped_lock() -> Lock:
    return parse_requirements((ROOT / "constraints" / "milabench.txt").read_text())


def test_the_shipped_lock_holds_all_dependencies_of_the_control_plane_with_hashes() -> None:
    needs = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    lock, wanted = shipped_lock(), parse_requirements("\n".join([*needs, "flit_core>=3.11,<4"]))
    assert {pin.name for pin in wanted.pins} - {pin.name for pin in lock.pins} == set(), "make lock"
    assert list(broken_constraints(lock, wanted)) == [], "make lock"
    assert lock.is_hashed
