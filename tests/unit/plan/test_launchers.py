"""The launchers: what they are told on one node and on several, and the variables of ranks that nobody else starts."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Literal

import pytest

from milabench.bench.api import Benchmark
from milabench.config.read import read_suite
from milabench.errors import ConfigError
from milabench.facts.model import Device, Node, SystemFacts
from milabench.plan.context import PlanContext, ResolvedBenchmark, dirs_under
from milabench.plan.model import Step
from milabench.plan.profile import PROFILES
from milabench.plan.run import plan_run


def node(name: str, ip: str) -> Node:
    devices = tuple(
        Device(index=index, uuid=f"{name}-{index}", name="X9", arch="cuda", memory_mib=1) for index in (0, 1)
    )
    return Node(name=name, ip=ip, cpu_count=16, devices=devices, main=name == "one")


def steps(
    tmp_path: Path,
    plan: str,
    system: str = "",
    more: str = "num_machines: 2",
    nodes: int = 2,
    arch: Literal["cuda", "cpu"] = "cuda",
    what: str = "definition: x",
) -> tuple[Step, ...]:
    path = tmp_path / "suite.yaml"
    path.write_text(f"b: {{{what}, {more}, plan: {{{plan}}}}}\nsystem: {{arch: {arch}, {system}}}\n")
    suite = read_suite([path])
    facts = SystemFacts(
        arch=arch, nodes=(node("one", "10.0.0.1"), node("two", "10.0.0.2"), node("three", "10.0.0.3"))[:nodes]
    )
    where = PlanContext(
        facts=facts, system=suite.system, dirs=dirs_under("/base", {}), profile=PROFILES["quick"], run_name="r"
    )
    declared = Benchmark(script="main.py", voirfile=None, prepare=None)
    return plan_run(
        [ResolvedBenchmark(config=suite.benchmarks["b"], folder="/suite/b", declared=declared)], where
    ).steps


def test_torchrun_meets_at_a_port_that_is_free_at_the_start(tmp_path: Path) -> None:
    first, second = steps(tmp_path, "method: multinode")
    assert first.argv[1:-2] == (
        *("-m", "torch.distributed.run", "--nnodes=2", "--node-rank=0", "--nproc-per-node=2"),
        *("--rdzv-backend=c10d", "--rdzv-endpoint=10.0.0.1:@port", "--rdzv-id=b", "--rdzv-conf=is_host=1"),
        "--local-addr=10.0.0.1",
    )
    assert (second.argv[4], second.argv[-4]) == ("--node-rank=1", "--rdzv-conf=is_host=0")
    assert second.argv[-3] == "--local-addr=10.0.0.2"


def test_torchrun_is_told_where_the_arguments_of_the_program_begin(tmp_path: Path) -> None:
    """Else it takes `--logs` of a program for one of its two options that begin so, and refuses the line as ambiguous."""
    program = ("--", "/suite/b/main.py")
    assert [step.argv[-2:] for step in steps(tmp_path, "method: multigpu")] == [program, program]
    assert not any("--" in step.argv for step in steps(tmp_path, "method: multigpu, launcher: accelerate"))


def test_a_static_rendezvous_names_the_master(tmp_path: Path) -> None:
    first, _ = steps(tmp_path, "method: multinode, rdzv_backend: static")
    assert first.argv[3:-2] == (
        *("--nnodes=2", "--node-rank=0", "--nproc-per-node=2", "--master-addr=10.0.0.1", "--master-port=@port"),
        "--rdzv_backend=static",
    )


@pytest.mark.parametrize(
    ("system", "port"),
    [
        ("options: {torchrun: {port: 777}}", "777"),
        ("options: {network: {port: 888}}", "888"),
        ("options: {torchrun: {port: 777}, network: {port: 888}}", "777"),
        ("options: {accelerate: {port: 777}}", "@port"),
    ],
)
def test_the_system_file_may_say_the_port(tmp_path: Path, system: str, port: str) -> None:
    assert f"--rdzv-endpoint=10.0.0.1:{port}" in steps(tmp_path, "method: multinode", system)[1].argv


def test_a_job_of_chosen_nodes_has_its_first_one_as_its_master(tmp_path: Path) -> None:
    first, second = steps(tmp_path, "method: multinode, nodes: [two, three]", more="weight: 1", nodes=3)
    assert (first.node, second.node) == ("two", "three")
    assert {"--node-rank=0", "--rdzv-endpoint=10.0.0.2:@port"} <= set(first.argv)
    assert {"--node-rank=1", "--rdzv-endpoint=10.0.0.2:@port"} <= set(second.argv)


def test_the_same_program_on_several_nodes_is_a_job_on_each(tmp_path: Path) -> None:
    for step in steps(tmp_path, "method: multigpu"):
        assert step.argv[1:-2] == ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    for step in steps(tmp_path, "method: multigpu, launcher: accelerate"):
        assert {"--num_processes=2", "--num_machines=1", "--machine_rank=0"} <= set(step.argv)


@pytest.mark.parametrize(
    ("arch", "more", "is_said"),
    [("cuda", "", False), ("cpu", "", True), ("cpu", ", multi-gpu: false", False), ("cpu", ", use_fsdp: true", False)],
)
def test_accelerate_starts_ranks_on_processors_too(
    tmp_path: Path, arch: Literal["cuda", "cpu"], more: str, is_said: bool
) -> None:
    for step in steps(tmp_path, f"method: multinode, launcher: accelerate{more}", arch=arch):
        assert ("--multi_gpu" in step.argv) is is_said


def test_ranks_are_steps_of_their_own_with_the_variables_of_the_job(tmp_path: Path) -> None:
    made = steps(tmp_path, "method: multinode, launcher: ranks")
    assert [step.id for step in made] == ["b.D0.node0", "b.D1.node0", "b.D0.node1", "b.D1.node1"]
    assert {step.argv for step in made} == {("/base/venv/b/bin/python", "/suite/b/main.py")}
    names = ("RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    assert [[step.env[name] for name in names] for step in made] == [
        ["0", "0", "0", "4", "2", "10.0.0.1", "@port"],
        ["1", "1", "0", "4", "2", "10.0.0.1", "@port"],
        ["2", "0", "1", "4", "2", "10.0.0.1", "@port"],
        ["3", "1", "1", "4", "2", "10.0.0.1", "@port"],
    ]
    # A rank holds one device, and picks it by its number among those of the node.
    assert (made[1].devices, made[1].env["CUDA_VISIBLE_DEVICES"]) == ((1,), "0,1")
    assert made[1].env["MILABENCH_DEVICES_HELD"] == "one-1"
    assert len({step.group for step in made}) == 1


def test_mpirun_is_one_command_on_the_first_node_that_hands_the_environment_on(tmp_path: Path) -> None:
    (step,) = steps(tmp_path, "method: multinode, launcher: mpirun, bind-to: none")
    assert step.node == "one"
    assert step.argv[:5] == ("mpirun", "-np", "4", "--host", "10.0.0.1:2,10.0.0.2:2")
    exported = {step.argv[at + 1] for at, word in enumerate(step.argv) if word == "-x"}
    assert "MILABENCH_DIR_DATA" in exported
    assert not exported & {"MILABENCH_SINK", "MILABENCH_BENCH_CONFIG"}
    assert step.argv[-8:-4] == ("--bind-to", "none", "/bin/sh", "-c")
    assert step.argv[-3:] == ("rank", "/base/venv/b/bin/python", "/suite/b/main.py")
    assert (step.env["MASTER_ADDR"], step.env["MASTER_PORT"]) == ("10.0.0.1", "@port")


def test_an_option_of_the_suite_takes_the_place_of_what_mpirun_would_get(tmp_path: Path) -> None:
    (step,) = steps(tmp_path, "method: multinode, launcher: mpirun, np: 2, map-by: node")
    assert step.argv[:3] == ("mpirun", "--host", "10.0.0.1:2,10.0.0.2:2")
    assert "-np" not in step.argv and step.argv[step.argv.index("--np") + 1] == "2"


def test_mpirun_on_one_node_needs_no_hosts(tmp_path: Path) -> None:
    (step,) = steps(tmp_path, "method: multigpu, launcher: mpirun", more="num_machines: 1")
    assert step.argv[:4] == ("mpirun", "-np", "2", "/bin/sh")
    assert step.argv[-2:] == ("/base/venv/b/bin/python", "/suite/b/main.py")


def test_srun_is_one_step_of_the_job_with_ranks_in_the_order_of_our_nodes(tmp_path: Path) -> None:
    (step,) = steps(tmp_path, "method: multinode, launcher: srun, gpu-bind: none, mpi: pmix")
    assert step.node == "one"
    assert step.argv[:2] == ("/bin/sh", "-c") and step.argv[3] == "srun"
    assert step.argv[4:15] == (
        *("--overlap", "--ntasks=4", "--distribution=arbitrary", "--nodelist=one,one,two,two", "--mem=0"),
        *("--cpu-bind=none", "--mpi=pmix", "--kill-on-bad-exit=1", "--gpu-bind=none", "/bin/sh", "-c"),
    )
    assert step.argv[16:] == ("rank", "/base/venv/b/bin/python", "/suite/b/main.py")
    assert (step.env["MASTER_ADDR"], step.env["MASTER_PORT"]) == ("10.0.0.1", "@port")


@pytest.mark.parametrize(("task", "reports"), [("0", True), ("1", True), ("2", False)])
def test_a_task_of_slurm_is_a_rank_and_reports_on_the_first_node_only(tmp_path: Path, task: str, reports: bool) -> None:
    (step,) = steps(tmp_path, "method: multinode, launcher: srun")
    environ = {
        "SLURM_PROCID": task,
        "SLURM_NTASKS": "4",
        "SLURM_LOCALID": "7",
        "PATH": os.environ["PATH"],
        "MILABENCH_SINK": "s",
        "MILABENCH_BENCH_CONFIG": "c",
    }
    words = [*step.argv[step.argv.index("/bin/sh", 1) : -2], "env"]
    said = dict(line.split("=", 1) for line in subprocess.check_output(words, env=environ, text=True).splitlines())
    assert (said["RANK"], said["WORLD_SIZE"], said["LOCAL_RANK"]) == (task, "4", "7")
    assert [name in said for name in ("MILABENCH_SINK", "MILABENCH_BENCH_CONFIG")] == [reports, reports]


def test_srun_gets_nothing_of_the_step_that_it_is_started_in(tmp_path: Path) -> None:
    srun = tmp_path / "srun"
    srun.write_text('#!/bin/sh\necho "$1"\nenv | grep SLURM\n')
    srun.chmod(0o755)
    (step,) = steps(tmp_path, "method: multinode, launcher: srun")
    path = f"{tmp_path}:{os.environ['PATH']}"
    environ = {"SLURM_JOB_ID": "12", "SLURM_NTASKS": "1", "SLURM_NNODES": "1", "SLURM_CONF": "/c", "PATH": path}
    assert subprocess.check_output(step.argv, env=environ, text=True) == "--jobid=12\nSLURM_CONF=/c\n"
    outside = subprocess.run(step.argv, env={"PATH": path}, capture_output=True, text=True, check=False)
    assert outside.returncode != 0
    assert outside.stderr.endswith("SLURM_JOB_ID: not set: srun starts ranks in an allocation of Slurm\n")


COMMAND = "command: [all_reduce_perf, -b, 8], argv: {-e: 1G}"
LINE = 'command: ["all_reduce_perf -b $SIZE"], shell: true'


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (COMMAND, ("all_reduce_perf", "-b", "8", "-e", "1G")),
        (LINE, ("/bin/sh", "-c", "all_reduce_perf -b $SIZE", "b")),
    ],
)
@pytest.mark.parametrize("launcher", ["mpirun", "srun"])
def test_a_command_is_started_by_its_launcher_as_a_program_is(
    tmp_path: Path, launcher: str, what: str, words: tuple[str, ...]
) -> None:
    plan = f"method: multinode, launcher: {launcher}, mpi: pmix"
    (program,) = steps(tmp_path, plan)
    (command,) = steps(tmp_path, plan, what=what)
    assert (command.node, command.job, command.one_job) == (program.node, program.job, True)
    launched = command.argv[: -len(words)]
    assert command.argv[-len(words) :] == words
    assert launched[-1] == "rank" and launched[:4] == program.argv[:4]
    assert "--mpi=pmix" in launched or launched[launched.index("--mpi") + 1] == "pmix"
    assert command.env["MASTER_ADDR"] == "10.0.0.1"


def test_a_command_without_a_launcher_is_a_process_on_each_node(tmp_path: Path) -> None:
    for launcher in ("", ", launcher: none"):
        made = steps(tmp_path, f"method: multinode{launcher}", what="command: [hostname]")
        assert [(step.node, step.argv) for step in made] == [("one", ("hostname",)), ("two", ("hostname",))]


@pytest.mark.parametrize("launcher", ["torchrun", "accelerate"])
def test_a_launcher_of_python_programs_with_a_command_is_an_error(tmp_path: Path, launcher: str) -> None:
    line = rf"b\.plan\.launcher: {launcher} starts Python programs, and the benchmark is a command"
    with pytest.raises(ConfigError, match=line):
        steps(tmp_path, f"method: multinode, launcher: {launcher}", what="command: [hostname]")


@pytest.mark.parametrize("launcher", ["ranks", "mpirun", "srun"])
def test_a_launcher_of_ranks_with_a_method_that_has_none_is_an_error(tmp_path: Path, launcher: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"b\.plan\.launcher: {launcher} starts the ranks of a job that spans devices"
    ):
        steps(tmp_path, f"method: per_gpu, launcher: {launcher}")


def test_the_network_interface_is_the_nodes_own_else_the_systems(tmp_path: Path) -> None:
    system = (
        "options: {network: {interface: ib0}}, "
        "nodes: [{name: one, ip: 10.0.0.1, main: true}, {name: two, ip: 10.0.0.2, interface: eth1}]"
    )
    first, second = steps(tmp_path, "method: multinode", system)
    assert [first.env["NCCL_SOCKET_IFNAME"], second.env["NCCL_SOCKET_IFNAME"]] == ["ib0", "eth1"]
    assert [first.env["GLOO_SOCKET_IFNAME"], second.env["GLOO_SOCKET_IFNAME"]] == ["ib0", "eth1"]
    for step in steps(tmp_path, "method: multigpu", system):
        assert "NCCL_SOCKET_IFNAME" not in step.env
