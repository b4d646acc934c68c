from __future__ import annotations

from milabench.pinning.compiled_locks import PinInput, PinSpec, lock_text, pin_command, pin_specs
from milabench.plan.requirements import RequirementFile, parse_requirements

A = PinInput(requirements="a/requirements.in", lock="a/requirements.cpu.txt")
B = PinInput(requirements="b/requirements.in", lock="b/requirements.cpu.txt")


def spec(variant: str = "cpu", backend: str | None = "cpu") -> PinSpec:
    return PinSpec(group="g", variant=variant, python="3.11", inputs=(A,), benchmate=("voir",), backend=backend)


def test_the_benchmarks_of_a_group_are_resolved_together() -> None:
    limits = RequirementFile(name="c.txt", text="")
    found = pin_specs([("g", A), ("h", B), ("g", B)], "cpu", python="3.11", benchmate=["voir"], constraints=limits)
    said = [(each.group, each.variant, [one.lock for one in each.inputs], each.constraints) for each in found]
    assert said == [
        ("g", "cpu", ["a/requirements.cpu.txt", "b/requirements.cpu.txt"], limits),
        ("h", "cpu", ["b/requirements.cpu.txt"], limits),
    ]


def test_a_constraints_file_may_choose_the_torch_index() -> None:
    limits = RequirementFile(name="c.txt", text="# torch-backend: cu126\ntorch==2.13.0\n")
    chosen = pin_specs([("g", A)], "cuda", python="3.11", benchmate=[], constraints=limits)
    plain = pin_specs([("g", A)], "cuda", python="3.11", benchmate=[], constraints=None)
    assert (chosen[0].backend, plain[0].backend) == ("cu126", None)


def test_the_command_is_for_the_locks_python_not_for_ours() -> None:
    argv = pin_command("uv", spec(), inputs=["i"], constraints=["c"], output="o", backend="cpu", hashes=True)
    assert " ".join(argv) == (
        "uv pip compile --no-header --no-annotate --python-version 3.11 --python-platform x86_64-manylinux_2_28 "
        "--generate-hashes --torch-backend cpu --constraints c --output-file o i"
    )


def test_every_file_of_the_pinned_version_is_accepted_and_no_other() -> None:
    files = {
        "numpy": [
            ("numpy-2.4.6-cp311-cp311-manylinux_2_28_x86_64.whl", "22"),
            ("numpy-2.4.6.tar.gz", "33"),
            ("numpy-2.4.5.tar.gz", "44"),
            ("numpy-broken.exe", "55"),
        ]
    }
    text = lock_text("numpy==2.4.6 \\\n    --hash=sha256:11\n", spec(), files)
    assert parse_requirements(text).pins[0].hashes == ("sha256:11", "sha256:22", "sha256:33")


def test_a_cpu_lock_never_accepts_the_cuda_build_of_torch() -> None:
    files = {
        "torch": [
            ("torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl", "cuda"),
            ("torch-2.13.0-cp311-cp311-macosx_14_0_arm64.whl", "mac"),
            ("torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_aarch64.whl", "arm"),
        ]
    }
    assert lock_text("torch==2.13.0+cpu --hash=sha256:x86\n", spec(), files) == (
        "# python: 3.11\n# platform: linux x86_64\n# variant: cpu\n# made by: milabench pin\n"
        'torch==2.13.0 ; sys_platform == "darwin" \\\n    --hash=sha256:mac\n'
        'torch==2.13.0+cpu ; sys_platform == "linux" \\\n    --hash=sha256:arm \\\n    --hash=sha256:x86\n'
    )


def test_a_lock_for_an_index_that_could_not_be_asked_says_so_and_leaves_torchs_own_needs_open() -> None:
    compiled = "".join(
        f"{name} --hash=sha256:11\n" for name in ("numpy==2", "nvidia-cublas==13", "torch==2.13.0", "triton==3")
    )
    lock = parse_requirements(
        lock_text(compiled, spec("rocm", "rocm7.2"), {}, unverified="the index could not be reached")
    )
    assert [pin.line for pin in lock.pins] == ["numpy==2", "torch==2.13.0+rocm7.2"]
    assert (lock.is_hashed, lock.header["unverified"]) == (False, "the index could not be reached")
