"""Steps in the containers of real engines: podman and docker, in stores of their own, with an image made of this machine.

Needs root and, on Debian, `apt-get install --no-install-recommends podman catatonit runc docker.io`; no registry.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.single_records import single_records

pytestmark = [pytest.mark.e2e, pytest.mark.long]

ROOT = Path(__file__).resolve().parents[2]
IMAGE = "localhost/milabench-test:1"
SECRET = "a-token-that-nobody-may-read"
CEILING_S = 60.0
# Podman's settings, from the plainest on; virtual machines may lack cgroups of version 2, or the right to raise limits.
SETTINGS = (
    "",
    '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\n',
    '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]\n'
    '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\n',
)
FOREVER = "trap '' TERM INT; echo it runs; while :; do sleep 1; done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A container engine that has the image, and the variables with which it is used."""

    name: str
    env: Mapping[str, str]

    def __call__(self, *words: str, check: bool = True) -> str:
        """What it prints. Raises CalledProcessError."""
        env = {**os.environ, **self.env}
        done = subprocess.run([self.name, *words], env=env, capture_output=True, text=True, check=False)
        if check and done.returncode != 0:
            raise subprocess.CalledProcessError(done.returncode, done.args, done.stdout, done.stderr)
        return done.stdout

    def containers(self) -> list[str]:
        """All that it knows, running or not."""
        return self("ps", "--all", "--format", "{{.Names}}").split()


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A short path: engines keep sockets below it."""
    made = Path(tempfile.mkdtemp(prefix="milabench-engines-"))
    yield made
    mounted = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for place in reversed([place for place in mounted if place.startswith(f"{made}/")]):
        subprocess.run(["umount", "--lazy", place], check=False)  # an engine keeps its store mounted on itself
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def archive(folder: Path) -> Path:
    """The files of an image: this Python, a shell, and the libraries that they need."""

    def libraries(program: Path) -> list[Path]:
        said = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
        return [Path(found) for found in re.findall(r"(/\S+)", said)]

    def wanted(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return (
            None if re.search(r"/(__pycache__|test|site-packages|ensurepip|config-[^/]*)(/|$)", entry.name) else entry
        )

    library = Path(os.__file__).parent
    python = Path(sys.executable).resolve()
    programs = [python, *(Path(found) for name in ("sh", "sleep", "cat") if (found := shutil.which(name)))]
    files = dict.fromkeys(programs)
    for program in (*programs, *library.glob("lib-dynload/*.so")):
        files |= dict.fromkeys(libraries(program))
    path = folder / "image.tar"
    with tarfile.open(path, "w") as tar:
        for name in ("bin", "sbin", "lib", "lib64"):
            if Path("/", name).is_symlink():
                tar.add(f"/{name}", arcname=name, recursive=False)
        for name in ("tmp", "proc", "sys", "dev", "etc"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o777 if name == "tmp" else 0o755
            tar.addfile(entry)
        for file in files:
            tar.add(file.resolve(), arcname=str(file.parent.resolve() / file.name))
        tar.add(library, filter=wanted)
    return path


def podman(folder: Path, archive: Path) -> Engine:
    """Podman with a store of its own, and the first of the settings that work here."""
    storage, settings = folder / "storage.conf", folder / "containers.conf"
    storage.write_text(f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/store"\nrunroot = "{folder}/run"\n')
    made = Engine(name="podman", env={"CONTAINERS_STORAGE_CONF": str(storage), "CONTAINERS_CONF": str(settings)})
    why = ""
    for text in SETTINGS:
        settings.write_text(text)
        try:
            made("import", str(archive), IMAGE)
            made("run", "--rm", "--init", "--network=host", IMAGE, "/bin/sh", "-c", ":")
        except subprocess.CalledProcessError as error:
            why = error.stderr.strip().splitlines()[-1]
        else:
            return made
    pytest.skip(f"podman starts no container here: {why}")


@contextlib.contextmanager
def docker(folder: Path, archive: Path) -> Iterator[Engine]:
    """A docker service of our own, without a network."""
    if shutil.which("dockerd") is None:
        pytest.skip("dockerd is not installed (Debian: apt-get install docker.io)")
    socket = f"unix://{folder}/docker.sock"
    folders = ["--data-root", f"{folder}/docker", "--exec-root", f"{folder}/exec", "--pidfile", f"{folder}/docker.pid"]
    network = ["--bridge", "none", "--iptables=false", "--ip6tables=false"]
    with (folder / "docker.log").open("w") as log:
        service = subprocess.Popen(["dockerd", "--host", socket, *folders, *network], stdout=log, stderr=log)
    made = Engine(name="docker", env={"DOCKER_HOST": socket})
    try:
        if not becomes(lambda: service.poll() is not None or made("info", "--format={{.ID}}", check=False).strip()):
            pytest.skip("dockerd does not answer")
        if service.poll() is not None:
            pytest.skip(f"dockerd does not run here: {(folder / 'docker.log').read_text().splitlines()[-1]}")
        made("import", str(archive), IMAGE)
        yield made
    finally:
        service.terminate()
        service.wait()


@pytest.fixture(scope="module", params=["podman", "docker"])
def engine(request: pytest.FixtureRequest, folder: Path) -> Iterator[Engine]:
    """An engine that has the image."""
    if os.geteuid() != 0:
        pytest.skip("engines of our own need root")
    if shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is not installed (Debian: apt-get install podman catatonit runc docker.io)")
    archive: Path = request.getfixturevalue("archive")
    if request.param == "podman":
        yield podman(folder, archive)
        return
    with docker(folder, archive) as made:
        yield made


def becomes(condition: Callable[[], object], ceiling_s: float = CEILING_S) -> bool:
    """Whether a condition comes to hold."""
    deadline = time.monotonic() + ceiling_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A base, a suite, and the engine that its benchmarks run in."""

    engine: Engine
    folder: Path

    @property
    def env(self) -> dict[str, str]:
        """The environment of the commands."""
        own = {"MILABENCH_LOCK_DIR": str(self.folder / "locks"), "HF_TOKEN": SECRET}
        return {**os.environ, **self.engine.env, **own}

    def words(self, verb: str, *more: str) -> list[str]:
        """A command line."""
        own = [] if verb in ("gc", "report", "resume") else ["--config", str(self.folder / "suite.yaml")]
        words = ["gc", "processes"] if verb == "gc" else [verb]
        return [sys.executable, "-m", "milabench", *words, *own, "--base", str(self.folder / "the base"), *more]

    def milabench(self, verb: str, *more: str) -> subprocess.CompletedProcess[str]:
        """A command carried out."""
        return subprocess.run(
            self.words(verb, *more), cwd=ROOT, env=self.env, capture_output=True, text=True, check=False
        )

    def start(self, *more: str) -> subprocess.Popen[str]:
        """A run that goes on."""
        return subprocess.Popen(
            self.words("run", *more),
            cwd=ROOT,
            env=self.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def run(self) -> Path:
        """The latest run."""
        return max((self.folder / "the base" / "runs").glob("run.*"), key=lambda path: path.stat().st_mtime)

    def text(self, pattern: str) -> str:
        """What stands in files of the latest run."""
        return "".join(path.read_text() for path in sorted(self.run.glob(pattern)))

    def says_that_it_runs(self) -> bool:
        """Whether a program of the only run is in its loop."""
        return any("it runs" in path.read_text() for path in self.folder.glob("the base/runs/*/*.stdout"))

    def ends(self) -> dict[str, dict[str, object]]:
        """How the steps of the latest run ended."""
        entries = [json.loads(line) for line in (self.run / "journal.jsonl").read_text().splitlines()]
        return {entry["step"]: entry for entry in entries if entry.get("state") == "ended"}


@pytest.fixture
def place(engine: Engine, tmp_path: Path) -> Iterator[Place]:
    """A suite whose benchmarks run in containers; no container is left at the end."""
    outside = tmp_path / "out side"
    outside.mkdir()
    (outside / "file").write_text("from the mount\n")
    container = {"engine": engine.name, "image": IMAGE, "mounts": [f"{outside}:/in side:ro"]}
    odd = {"definition": str(ROOT / "tests/suite/odd"), "install_group": "odd", "install_variant": "unpinned"}
    shell = {"shell": True, "plan": {"method": "njobs", "n": 1}, "max_duration": 120}
    once = "test -e '{milabench_data}/flag' && exit; : > '{milabench_data}/flag'; echo it runs; exec sleep 3600"
    suite = {
        "profile": "quick",
        "system": {"arch": "cpu", "container": container},
        "good": {**odd, "argv": ["good"], "max_duration": 120, "weight": 1, "voir": {"options": {"skip": 2}}},
        "said": {
            **shell,
            "command": "cat '/in side/file'; case $HF_TOKEN in a-token-*) echo rate 12; esac",
            "metrics": {"rate": {"pattern": "rate ([0-9]+)", "units": "items/s"}},
        },
        "late": {**shell, "command": FOREVER, "max_duration": 2},
        "long": {**shell, "command": FOREVER},
        "once": {**shell, "command": once},
        "killed": {**shell, "command": "kill -9 $$"},
        "absent": {**shell, "command": "true", "container": {"image": "localhost/milabench-absent:1"}},
        "odd_option": {**shell, "command": "true", "container": {"args": ["--no-such-option"]}},
    }
    (tmp_path / "suite.yaml").write_text(yaml.safe_dump(suite))
    yield Place(engine=engine, folder=tmp_path)
    assert engine.containers() == []


def test_a_program_reports_over_the_sink_and_a_command_over_its_log(place: Place) -> None:
    for verb in ("install", "prepare", "run"):
        done = place.milabench(verb, "--select", "good,said")
        assert done.returncode == 0, done.stderr
    assert "from the mount" in place.text("said*.stdout")
    measured = [record["data"] for record in single_records(place.text("good*.data")) if record["event"] == "data"]
    assert sum("rate" in data for data in measured) >= 30
    assert place.milabench("report").returncode == 0


def test_a_token_comes_in_by_the_environment_and_is_in_no_file(place: Place) -> None:
    done = place.milabench("run", "--select", "said")
    assert done.returncode == 0, done.stderr
    assert "rate 12" in place.text("said*.stdout")
    assert "--env=HF_TOKEN" in place.text("said*.data")
    assert SECRET not in place.text("*") + done.stdout + done.stderr


def test_what_is_too_late_is_ended_by_the_engine_too(place: Place) -> None:
    assert place.milabench("run", "--select", "late").returncode == 1
    (end,) = place.ends().values()
    assert (end["outcome"], end["why"]) == ("failed", "timeout")
    assert place.engine.containers() == []


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("when", ["started", "made", "up"])
def test_an_interrupted_run_leaves_no_container(place: Place, when: str, times: int) -> None:
    run = place.start("--select", "long")
    assert run.stderr is not None
    assert any("started" in line for line in run.stderr)
    assert when != "made" or becomes(place.engine.containers)
    assert when != "up" or becomes(place.says_that_it_runs)
    for _ in range(times):
        run.send_signal(signal.SIGINT)
    _, said = run.communicate()
    assert run.returncode == 130, said
    assert place.engine.containers() == []


def test_the_containers_of_a_killed_orchestrator_are_ended_by_the_agent(place: Place) -> None:
    run = place.start("--select", "long")
    assert becomes(place.says_that_it_runs)
    run.kill()
    run.communicate()
    assert becomes(lambda: place.engine.containers() == [])


@pytest.mark.parametrize("verb", ["gc", "resume"])
def test_the_containers_of_killed_agents_are_found_and_ended(place: Place, verb: str) -> None:
    run = place.start("--select", "once")
    assert becomes(place.says_that_it_runs)
    below = subprocess.run(["ps", "--ppid", str(run.pid), "-o", "pid="], capture_output=True, text=True, check=True)
    for pid in (run.pid, *map(int, below.stdout.split())):
        os.kill(pid, signal.SIGKILL)
    run.communicate()
    done = place.milabench(verb, *(["--yes"] if verb == "gc" else []))
    assert done.returncode == 0, done.stderr
    assert place.engine.containers() == []
    if verb == "resume":
        (end,) = place.ends().values()
        assert end["outcome"] == "passed"


def test_a_signal_inside_is_told_as_one(place: Place) -> None:
    assert place.milabench("run", "--select", "killed").returncode == 1
    (end,) = place.ends().values()
    assert (end["outcome"], end["why"]) == ("failed", "signal")


def test_an_option_that_the_engine_does_not_know_is_the_environments_fault(place: Place) -> None:
    assert place.milabench("run", "--select", "odd_option").returncode == 1
    (end,) = place.ends().values()
    assert (end["outcome"], end["why"]) == ("failed", "environment")
    assert str(end["detail"]).startswith("its container could not be started: ")


def test_install_finds_an_image_that_is_there_and_says_which_it_cannot_fetch(place: Place) -> None:
    done = place.milabench("install", "--select", "said")
    assert (done.returncode, done.stderr.count("1 are there")) == (0, 1), done.stderr
    done = place.milabench("install", "--select", "said,absent")
    assert done.returncode == 4
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert line.startswith(f"error: image localhost/milabench-absent:1: {place.engine.name} cannot fetch it: ")
    done = place.milabench("run", "--select", "absent")
    assert done.returncode == 4
    assert f"not installed: image localhost/milabench-absent:1 ({place.engine.name}). Run `" in done.stderr


def test_an_engine_that_is_not_there_is_said_once(place: Place) -> None:
    done = place.milabench("install", "--select", "said", "--override", "said.container.engine=apptainer")
    if shutil.which("apptainer") is not None:
        pytest.skip("apptainer is installed here")
    assert done.returncode == 4
    assert f"error: image {IMAGE}: apptainer is not on PATH" in done.stderr
