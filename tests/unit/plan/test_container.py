"""Steps in containers: the words of each engine, what is seen inside, and what is not said on a command line."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from milabench.bench.api import Benchmark
from milabench.config.read import read_suite
from milabench.config.schema import Suite
from milabench.errors import ConfigError
from milabench.facts.model import Arch, Device, Node, SystemFacts
from milabench.plan.container import FETCHED, Container, Image, container_of, containerize, image_of, outermost
from milabench.plan.context import COMMAND, PlanContext, ResolvedBenchmark, dirs_under
from milabench.plan.model import Step
from milabench.plan.profile import PROFILES
from milabench.plan.run import plan_run
from milabench.plan.step_dir import with_step_dir

DEVICES = tuple(Device(index=index, uuid=f"GPU-{index}", name="X9", arch="cuda", memory_mib=1000) for index in (2, 3))
STEP = Step(
    id="b.D2",
    bench="b",
    phase="run",
    argv=("/base/venv/b/bin/python", "main.py", "--a b"),
    env={
        "CUDA_VISIBLE_DEVICES": "2,3",
        "HF_TOKEN": "secret",
        "MILABENCH_SINK": "@sink",
        "PATH": "/base/venv/b/bin:@path",
    },
    secret_env=("HF_TOKEN",),
    cwd="/base/data/b",
    venv="/base/venv/b",
)
CACHE = "/base/cache"
FOLDERS = ("/base", "/base/data", "/suite/b", "/fast/cache")


def suite(tmp_path: Path, text: str) -> Suite:
    path = tmp_path / "suite.yaml"
    path.write_text(text)
    return read_suite([path])


def chosen(tmp_path: Path, bench: str, system: str) -> Container | None:
    made = suite(tmp_path, f"b: {{command: x, {bench}}}\nsystem: {{{system}}}\n")
    return container_of(made.benchmarks["b"], made.system)


def in_engine(engine: str, arch: Arch = "cuda", args: tuple[str, ...] = (), mounts: tuple[str, ...] = ()) -> Step:
    return containerize(
        STEP, Container(engine=engine, image="r/i:1", args=args, mounts=mounts), arch, DEVICES, FOLDERS, CACHE
    )


# --- which one -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bench", "system", "engine", "image"),
    [
        ("", "docker_image: s", "docker", "s"),
        ("docker_image: b", "docker_image: s", "docker", "b"),
        ("", "container: {engine: podman, image: s}", "podman", "s"),
        ("docker_image: b", "container: {engine: podman, image: s}", "podman", "b"),
        ("container: {engine: apptainer}", "container: {image: s}", "apptainer", "s"),
    ],
)
def test_a_benchmark_wins_over_its_system_key_by_key(
    tmp_path: Path, bench: str, system: str, engine: str, image: str
) -> None:
    found = chosen(tmp_path, bench, system)
    assert found is not None
    assert (found.engine, found.image) == (engine, image)


def test_a_benchmark_may_stay_outside(tmp_path: Path) -> None:
    assert chosen(tmp_path, "container: {engine: none}", "docker_image: s") is None
    assert chosen(tmp_path, "weight: 1", "arch: cpu") is None


def test_an_engine_without_an_image_is_an_error_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"suite\.yaml:1:\d+: b\.container: a container without an image"):
        chosen(tmp_path, "container: {engine: podman}", "arch: cpu")


def test_an_unknown_engine_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"b\.container\.engine: expected one of docker, podman, apptainer, enroot, pyxis, none"
    ):
        chosen(tmp_path, "container: {engine: dokcer}", "arch: cpu")


# --- the words -------------------------------------------------------------------------------------------------------


def test_docker_is_told_everything_once_and_ends_the_container_by_its_name() -> None:
    step = in_engine("docker", mounts=("/models", "/a:/b:ro"))
    path = "/base/venv/b/bin:/usr/local/nvidia/bin:/usr/local/cuda/bin:/opt/rocm/bin"
    assert step.argv == (
        *("docker", "run", "--rm", "--init", "--name=@container", "--label=milabench.marker=@marker"),
        *("--network=host", "--ipc=host", "--user=@user", "--stop-timeout=0", "--pull=never", "--entrypoint="),
        '--gpus="device=GPU-2,GPU-3"',
        *("--volume=/base:/base", "--volume=/suite/b:/suite/b", "--volume=/fast/cache:/fast/cache"),
        *("--volume=/models:/models", "--volume=/a:/b:ro", "--volume=@folder", "--workdir=/base/data/b"),
        f"--env=PATH={path}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        *("--env=CUDA_VISIBLE_DEVICES", "--env=HF_TOKEN", "--env=MILABENCH_RUN_MARKER", "--env=MILABENCH_SINK"),
        *("--env=MILABENCH_STEP", "r/i:1"),
        *STEP.argv,
    )
    assert (step.end_argv, step.container) == (("docker", "rm", "--force", "@container"), "r/i:1")


def test_podman_is_given_devices_by_their_interface_and_keeps_the_user() -> None:
    step = in_engine("podman")
    assert {"--device=nvidia.com/gpu=GPU-2", "--device=nvidia.com/gpu=GPU-3", "--userns=@userns"} <= set(step.argv)
    assert step.end_argv == ("podman", "rm", "--force", "@container")


def test_apptainer_runs_as_a_child_and_inherits_its_environment() -> None:
    step = in_engine("apptainer", args=("--cleanenv",))
    assert step.argv == (
        *("apptainer", "exec", "--nv"),
        *("--bind=/base:/base", "--bind=/suite/b:/suite/b", "--bind=/fast/cache:/fast/cache", "--bind=@folder"),
        *("--pwd=/base/data/b", "--cleanenv", "/base/cache/images/docker%3A%2F%2Fr%2Fi%3A1.sif"),
        *STEP.argv,
    )
    assert step.end_argv == ()
    assert step.env["APPTAINERENV_PREPEND_PATH"] == "/base/venv/b/bin"
    assert step.env["CUDA_VISIBLE_DEVICES"] == "2,3"


INSIDE = "/base/venv/b/bin:/usr/local/nvidia/bin:/usr/local/cuda/bin:/opt/rocm/bin"
INSIDE += ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def test_enroot_starts_the_file_that_it_imported_and_is_told_every_variable_by_name() -> None:
    step = in_engine("enroot", args=("--rw",), mounts=("/a:/b:ro",))
    names = ["CUDA_VISIBLE_DEVICES", "HF_TOKEN", "MILABENCH_RUN_MARKER", "MILABENCH_SINK", "MILABENCH_STEP"]
    assert step.argv == (
        *("enroot", "start", "--mount=/base:/base", "--mount=/suite/b:/suite/b", "--mount=/fast/cache:/fast/cache"),
        *("--mount=/a:/b:none:x-create=auto,rbind,ro", "--mount=@folder", f"--env=PATH={INSIDE}"),
        *(f"--env={name}" for name in [*names, "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_VISIBLE_DEVICES"]),
        *("--rw", "/base/cache/images/docker%3A%2F%2Fr%2Fi%3A1.sqsh"),
        *("/bin/sh", "-c", 'cd "$0" && exec "$@"', "/base/data/b"),
        *STEP.argv,
    )
    assert (step.end_argv, step.env["CUDA_VISIBLE_DEVICES"]) == ((), "2,3")


def test_pyxis_is_a_step_of_the_job_on_the_same_node_with_a_container() -> None:
    step = in_engine("pyxis", args=("--container-writable",), mounts=("/a:/b:ro",))
    assert step.argv[:2] == ("/bin/sh", "-c")
    assert step.argv[3:] == (
        *("srun", "--overlap", "--nodes=1", "--ntasks=1", "--nodelist=local", "--mem=0", "--cpu-bind=none"),
        *("--mpi=none", "--quiet", "--container-image=/base/cache/images/docker%3A%2F%2Fr%2Fi%3A1.sqsh"),
        "--container-mounts=/base:/base,/suite/b:/suite/b,/fast/cache:/fast/cache,/a:/b:ro,@folder",
        *("--container-workdir=/base/data/b", "--no-container-mount-home", "--no-container-entrypoint"),
        "--container-env=CUDA_VISIBLE_DEVICES,HF_TOKEN,MILABENCH_RUN_MARKER,MILABENCH_SINK,MILABENCH_STEP"
        ",NVIDIA_DRIVER_CAPABILITIES,NVIDIA_VISIBLE_DEVICES",
        *("--container-writable", "/usr/bin/env", f"PATH={INSIDE}"),
        *STEP.argv,
    )


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("ubuntu", "docker://ubuntu"),
        ("r/i:1", "docker://r/i:1"),
        ("nvcr.io/nvidia/pytorch:24.01-py3", "docker://nvcr.io#nvidia/pytorch:24.01-py3"),
        ("localhost:5000/i", "docker://localhost:5000#i"),
        ("dockerd://i", "dockerd://i"),
    ],
)
def test_enroot_is_told_where_the_name_of_a_registry_ends(name: str, source: str) -> None:
    image = image_of("pyxis", name, CACHE)
    assert (image.engine, image.source) == ("enroot", source)
    assert image.fetch[2].find("enroot import --output") > 0 and image.fetch[4:] == (image.file, source)


def test_an_image_that_the_user_imported_needs_no_enroot_here() -> None:
    assert image_of("pyxis", "/images/i.sqsh", CACHE) == Image(
        engine="srun", name="/images/i.sqsh", file="/images/i.sqsh"
    )


def test_ranks_of_srun_in_a_container_are_refused(tmp_path: Path) -> None:
    made = suite(
        tmp_path,
        "b: {definition: x, plan: {method: multigpu, launcher: srun}}\n"
        "system: {arch: cuda, container: {engine: pyxis, image: i}}\n",
    )
    where = PlanContext(
        facts=SystemFacts(arch="cuda", nodes=(Node(name="one", devices=DEVICES, main=True),)),
        system=made.system,
        dirs=dirs_under("/base", {}),
        profile=PROFILES["quick"],
    )
    declared = Benchmark(script="main.py", voirfile=None, prepare=None)
    bench = ResolvedBenchmark(config=made.benchmarks["b"], folder="/suite/b", declared=declared)
    with pytest.raises(ConfigError, match=r"b\.plan\.launcher: .*. Use torchrun or ranks with a container"):
        plan_run([bench], where)


@pytest.mark.parametrize("image", ["/images/i.sif", "i.sif", "./i"])
def test_apptainer_takes_files_as_they_are(image: str) -> None:
    step = containerize(STEP, Container(engine="apptainer", image=image), "cpu", DEVICES, (), CACHE)
    assert image in step.argv


@pytest.mark.parametrize("engine", ["docker", "podman", "apptainer", "enroot", "pyxis"])
def test_no_secret_stands_on_a_command_line_and_nothing_is_privileged_unless_asked(engine: str) -> None:
    step = in_engine(engine)
    assert "secret" not in " ".join(step.argv)
    assert step.env["HF_TOKEN"] == "secret"
    assert not any("privileged" in word or "cap-add" in word for word in step.argv)
    assert "--privileged" in in_engine(engine, args=("--privileged",)).argv


@pytest.mark.parametrize(
    ("arch", "engine", "words"),
    [
        ("rocm", "docker", {"--device=/dev/kfd", "--device=/dev/dri", "--group-add=video"}),
        ("rocm", "podman", {"--device=/dev/kfd", "--device=/dev/dri", "--group-add=keep-groups"}),
        ("rocm", "apptainer", {"--rocm"}),
        ("xpu", "docker", {"--device=/dev/dri"}),
        ("hpu", "docker", {"--runtime=habana"}),
    ],
)
def test_each_vendor_has_its_devices(arch: Arch, engine: str, words: set[str]) -> None:
    assert words <= set(in_engine(engine, arch).argv)


def test_a_processor_has_no_device_words() -> None:
    assert not any(word.startswith(("--device", "--gpus", "--nv")) for word in in_engine("docker", "cpu").argv)


def test_inside_docker_the_devices_are_counted_from_zero() -> None:
    assert in_engine("docker").env["CUDA_VISIBLE_DEVICES"] == "0,1"


def test_an_option_of_the_suite_takes_the_place_of_ours() -> None:
    words = in_engine("docker", args=("--network=bridge", "--user=0:0")).argv
    assert ("--network=host" in words, "--user=@user" in words, "--ipc=host" in words) == (False, False, True)


def test_folders_in_others_are_not_mounted_again() -> None:
    assert outermost(["/a/b", "/a", "/ab", "/c/d", "", "relative"]) == ("/a", "/ab", "/c/d")


@pytest.mark.parametrize("engine", ["docker", "podman", "apptainer"])
def test_the_folder_of_a_launch_is_in_the_container_under_its_own_path(tmp_path: Path, engine: str) -> None:
    made = suite(tmp_path, f"b: {{command: [tool, '{{step_dir}}/out'], container: {{engine: {engine}, image: i}}}}")
    where = PlanContext(
        facts=SystemFacts(arch="cuda", nodes=(Node(name="one", devices=DEVICES, main=True),)),
        system=made.system,
        dirs=dirs_under("/base", {}),
        profile=PROFILES["quick"],
    )
    bench = ResolvedBenchmark(config=made.benchmarks["b"], folder="/suite/b", declared=COMMAND)
    planned = plan_run([bench], where).steps[0]
    folder = "/base/runs/r.1/steps/b.D0"
    step = with_step_dir(planned, folder)
    assert step.argv[-1] == f"{folder}/out"
    assert {f"--workdir={folder}", f"--pwd={folder}"} & set(step.argv)
    # It need not be mounted by itself: it is below what is.
    mounted = [
        word.partition("=")[2].partition(":")[0] for word in step.argv if word.startswith(("--volume=", "--bind="))
    ]
    assert any(folder.startswith(f"{outer}/") for outer in mounted)
    assert not any("@{step_dir}" in word for word in step.argv)


@pytest.mark.parametrize("image", ["--privileged", "-v=/:/host", "--pull=always"])
def test_an_image_whose_name_is_that_of_an_option_is_refused(tmp_path: Path, image: str) -> None:
    for bench, system in ((f"docker_image: '{image}'", "arch: cpu"), ("weight: 1", f"docker_image: '{image}'")):
        with pytest.raises(ConfigError, match=r"is no image: it begins as an option does"):
            chosen(tmp_path, bench, system)


def test_an_image_file_that_milabench_did_not_fetch_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "apptainer").write_text('#!/bin/sh\necho fetched > "$3"\n')
    (tmp_path / "apptainer").chmod(0o755)
    image = image_of("apptainer", "r/i:1", str(tmp_path))
    file = Path(image.file)
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    assert subprocess.run(image.fetch, env=environ, check=False).returncode == 0
    assert (file.read_text(), Path(f"{file}{FETCHED}").exists()) == ("fetched\n", True)
    file.write_text("older")
    assert subprocess.run(image.fetch, env=environ, check=False).returncode == 0
    assert file.read_text() == "fetched\n"
    Path(f"{file}{FETCHED}").unlink()
    file.write_text("mine")
    assert subprocess.run(image.fetch, env=environ, check=False, stderr=subprocess.DEVNULL).returncode == 1
    assert file.read_text() == "mine"
