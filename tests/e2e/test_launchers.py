"""A job over two machines by every launcher: gradients are exchanged by gloo between hosts with addresses of their own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from milabench.workflow.environments import requirements_of
from tests.processes import started, until
from tests.single_records import single_records
from tests.ssh.demo_cluster import system_file
from tests.ssh.hosts import Hosts, in_namespaces, why_no_namespaces

# One environment, made once.
pytestmark = [pytest.mark.e2e, pytest.mark.long]

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Place:
    """Two machines that share a base, and the suite that is run on them."""

    cluster: Hosts
    folder: Path

    @property
    def base(self) -> Path:
        """The base that the machines and we share."""
        return self.folder / "base"

    def words(self, verb: str, *more: str) -> list[str]:
        """The command of a verb."""
        system = self.folder / "cluster.yaml"
        given = ["--config", str(self.folder / "launchers.yaml"), "--system", str(system), "--base", str(self.base)]
        # mpirun logs in by itself.
        login = f"ssh -i {self.cluster.key} -o UserKnownHostsFile={self.cluster.known_hosts} -o BatchMode=yes"
        override = ["-s", f"mpirun.env.OMPI_MCA_plm_rsh_agent={login}"]
        return [sys.executable, "-m", "milabench", verb, *given, *override, *more]

    def environ(self) -> dict[str, str]:
        """The user's variables."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("MILABENCH_")}
        return {**kept, "MILABENCH_LOCK_DIR": str(self.folder / "locks")}

    def milabench(self, verb: str, *more: str) -> subprocess.CompletedProcess[str]:
        """Run a verb to its end."""
        return subprocess.run(
            self.words(verb, *more), env=self.environ(), cwd=ROOT, capture_output=True, text=True, check=False
        )

    def ranks(self) -> list[int]:
        """The processes that run the job's program."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if str(self.folder).encode() in (words := (path / "cmdline").read_bytes()) and b"main.py" in words:
                    found.append(int(path.name))
            except OSError:
                continue
        return found


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """The suite, installed; its environment is one with accelerate."""
    if (why := why_no_namespaces()) is not None:
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("launchers")
    shutil.copy(ROOT / "tests" / "suite" / "launchers.yaml", folder)
    shutil.copytree(ROOT / "tests" / "suite" / "allreduce", folder / "allreduce")
    for name in ("requirements.in", "requirements.cpu.txt"):
        shutil.copy(requirements_of(ROOT / "benchmarks" / "trl") / name, folder / "allreduce")
    with in_namespaces(2) as cluster:
        machines = {host.name: host.ip for host in cluster.hosts}
        (folder / "cluster.yaml").write_text(system_file(cluster.key, cluster.known_hosts, machines))
        made = Place(cluster, folder)
        installed = made.milabench("install")
        assert installed.returncode == 0, installed.stderr
        yield made
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("launcher", ["c10d", "static", "accelerate", "ranks", "mpirun"])
def test_a_job_spans_two_machines(place: Place, launcher: str) -> None:
    if launcher == "mpirun" and shutil.which("mpirun") is None:
        pytest.skip("mpirun is not installed (Debian: openmpi-bin)")
    ran = place.milabench("run", "--select", launcher, "--run-name", launcher)
    assert ran.returncode == 0, ran.stderr
    (run,) = (place.base / "runs").glob(f"{launcher}.*")
    manifest = json.loads((run / "manifest.json").read_text())
    steps = manifest["plan"]["steps"]
    # mpirun is one command, whose ranks on other machines do not report.
    assert [step["node"] for step in steps] == (["n0"] if launcher == "mpirun" else ["n0", "n1"])
    for step in steps:
        file = run / f"{manifest['files'][step['id']]}.data"
        records = single_records(file.read_text())
        rates = [one["data"] for one in records if one["event"] == "data" and "rate" in one["data"]]
        assert sum("warmup" not in one for one in rates) > 0
        assert records[-1]["data"]["outcome"] == "passed"


@pytest.mark.parametrize("launcher", ["static", "accelerate", "mpirun"])
def test_a_job_that_is_interrupted_leaves_no_rank_on_any_machine(place: Place, launcher: str) -> None:
    if launcher == "mpirun" and shutil.which("mpirun") is None:
        pytest.skip("mpirun is not installed (Debian: openmpi-bin)")
    endless = ("-s", f"{launcher}.argv=[--steps, 50000]", "-s", f"{launcher}.voir.options.stop=1000000")
    words = place.words("run", "--select", launcher, *endless)
    with started(words, env=place.environ(), cwd=ROOT, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        until(lambda: "first observation" in running.stderr.readline(), "it measures")
        assert len(place.ranks()) >= 2
        running.send_signal(signal.SIGINT)
        assert "cancelled" in running.stderr.read()
    assert running.returncode == 130
    until(lambda: not place.ranks(), "no rank is left")
