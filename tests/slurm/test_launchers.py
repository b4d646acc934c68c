"""Jobs over two nodes of a real Slurm: their ranks meet, whoever starts them, in one allocation and in a job."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import Said, milabench_in
from tests.processes import started, until
from tests.slurm.cluster import Cluster

Milabench = Callable[..., Said]

BENCHFILE = """
from milabench import Benchmark

benchmark = Benchmark(script="main.py", voirfile=None, prepare=None)
"""
# The ranks meet as those of torch do: the first listens at the job's address, the others report to it, and all get the list.
MEET = """
import json, os, socket, sys, time
import benchmate

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
me = [rank, int(os.environ["LOCAL_RANK"]), os.environ["SLURMD_NODENAME"], os.environ.get("CUDA_VISIBLE_DEVICES")]
if rank == 0:
    with socket.create_server(place) as server:
        peers = [server.accept()[0] for _ in range(world - 1)]
        met = [me, *(json.loads(peer.makefile().readline()) for peer in peers)]
        for peer in peers:
            peer.sendall(b"all\\n")
    print("met", json.dumps(sorted(met)), flush=True)
else:
    until = time.monotonic() + 60
    while True:
        try:
            peer = socket.create_connection(place)
            break
        except ConnectionRefusedError:
            assert time.monotonic() < until
            time.sleep(0.05)
    peer.sendall(json.dumps(me).encode() + b"\\n")
    assert peer.makefile().readline() == "all\\n"
if "--wait" in sys.argv:
    time.sleep(600)
benchmate.metric("ranks", world, units="1")
"""
SUITE = """
profile: quick
system: {arch: cpu, gpu: {count: 2}}
_meet: {definition: meet, install_variant: unpinned, max_duration: 60, num_machines: 2}
srun: {inherits: _meet, plan: {method: multinode, launcher: srun}}
ranks: {inherits: _meet, plan: {method: multinode, launcher: ranks}}
command:
  install_variant: unpinned
  max_duration: 60
  num_machines: 2
  plan: {method: multinode, launcher: srun}
  shell: true
  command: ["echo met $RANK of $WORLD_SIZE, $LOCAL_RANK on $SLURMD_NODENAME with $1"]
  argv: [word]
waiting: {inherits: _meet, plan: {method: multinode, launcher: srun}, argv: [--wait]}
"""


@pytest.fixture
def milabench(slurm: Cluster, tmp_path: Path) -> Milabench:
    (tmp_path / "meet").mkdir()
    (tmp_path / "meet" / "benchfile.py").write_text(BENCHFILE)
    (tmp_path / "meet" / "main.py").write_text(MEET)
    (tmp_path / "suite.yaml").write_text(SUITE)
    run = milabench_in(environ(tmp_path))
    return lambda *words, **more: run(*words, cwd=tmp_path, **more)


def environ(tmp_path: Path) -> dict[str, str]:
    return {
        **os.environ,
        "MILABENCH_LOCK_DIR": str(tmp_path / "locks"),
        "MILABENCH_BASE": str(tmp_path / "base"),
        "MILABENCH_CONFIG": str(tmp_path / "suite.yaml"),
        "MILABENCH_USE_CURRENT_ENV": "1",
    }


WORDS = ("run", "--engine", "slurm", "--slurm-arg", "nodes=2", "--slurm-arg", "gpus_per_node=2", "--display", "plain")


def met(tmp_path: Path, step: str) -> list[list[object]]:
    """What the first rank says of all of them."""
    (file,) = (tmp_path / "base" / "runs").glob(f"*/{step}.data")
    records = map(json.loads, file.read_text().splitlines())
    lines = "".join(record["data"] for record in records if record["event"] == "line").splitlines()
    (line,) = (line for line in lines if line.startswith("met "))
    found: list[list[object]] = json.loads(line.removeprefix("met "))
    return found


ALL = [[0, 0, "n1", "0,1"], [1, 1, "n1", "0,1"], [2, 0, "n2", "0,1"], [3, 1, "n2", "0,1"]]


@pytest.mark.parametrize("more", [(), ("--submit",)], ids=["allocation", "job"])
@pytest.mark.parametrize(("launcher", "step"), [("srun", "srun"), ("ranks", "ranks.D0.node0")])
def test_the_ranks_of_two_nodes_meet_and_see_the_devices_that_slurm_gives(
    milabench: Milabench, tmp_path: Path, launcher: str, step: str, more: tuple[str, ...]
) -> None:
    ran = milabench(*WORDS, "--select", launcher, *more)
    assert ran.code == 0, ran.err
    assert [place[:3] for place in met(tmp_path, step)] == [place[:3] for place in ALL]
    if launcher == "srun":
        assert met(tmp_path, step) == ALL


@pytest.mark.parametrize("more", [(), ("--submit",)], ids=["allocation", "job"])
def test_a_command_is_started_by_srun_on_every_device_of_two_nodes(
    milabench: Milabench, tmp_path: Path, more: tuple[str, ...]
) -> None:
    ran = milabench(*WORDS, "--select", "command", *more)
    assert ran.code == 0, ran.err
    (file,) = (tmp_path / "base" / "runs").glob("*/command.stdout")
    ranks = [f"met {rank} of 4, {local} on {node} with word" for rank, local, node, _ in ALL]
    assert sorted(file.read_text().splitlines()) == ranks


def test_a_job_of_srun_that_is_interrupted_leaves_no_rank_on_any_node(
    milabench: Milabench, slurm: Cluster, tmp_path: Path
) -> None:
    words = [sys.executable, "-m", "milabench", *WORDS, "--select", "waiting"]
    here = str(tmp_path).encode()

    def ranks() -> int:
        found = 0
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                argv = path.read_bytes().split(b"\0")
            except OSError:
                continue
            found += b"python" in argv[0] and any(word.startswith(here) and word.endswith(b"/main.py") for word in argv)
        return found

    with started(words, cwd=tmp_path, env=environ(tmp_path), stderr=subprocess.PIPE, text=True) as running:
        until(lambda: ranks() == 4 or running.poll() is not None, "four ranks run")
        assert running.poll() is None, running.stderr.read()
        running.send_signal(signal.SIGINT)
        assert running.stderr is not None
        assert "cancelled" in running.stderr.read()
    assert running.returncode == 130
    until(lambda: ranks() == 0, "no rank is left")
    until(lambda: not slurm.run("squeue", "-h"), "the nodes are given back")
