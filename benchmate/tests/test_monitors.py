"""Monitors: real processes that watch real processes, and the parts that read the host."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmate.devices.api import DeviceLostError
from benchmate.devices.vendors.vendor import DeviceProcess, Sample, Survey
from benchmate.kernel_files import read_kernel_file
from benchmate.monitors import monitor as monitor_module
from benchmate.monitors.device_sampler import DeviceSampler
from benchmate.monitors.host import CpuSampler, Disks, Network, group_peak_bytes
from benchmate.monitors.monitor import installed_versions
from benchmate.monitors.process_tree import THREADS_AT_ONCE, ProcessTrees
from benchmate.monitors.processors import Processors, pressure
from benchmate.monitors.watched_steps import WatchedStep, parse_steps, steps_holding

CEILING_S = 60


def until(condition: Callable[[], Any]) -> Any:
    """What the condition says once it is true."""
    deadline = time.monotonic() + CEILING_S
    while not (found := condition()):
        assert time.monotonic() < deadline, "never came true"
        time.sleep(0.02)
    return found


class Step:
    """A step to watch: a sleeping process, and its sink."""

    def __init__(self, folder: Path, name: str, *devices: int) -> None:
        self.load = subprocess.Popen(["sleep", "600"])
        self.path = folder / name
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.path))
        self.listener.listen()
        self.lines: list[dict[str, Any]] = []
        self.connection: socket.socket | None = None
        self.about = {"step": name, "sink": f"unix:{self.path}", "pid": self.load.pid, "devices": list(devices)}
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        self.connection, _ = self.listener.accept()
        with self.connection.makefile("rb") as file:
            self.lines += (json.loads(line) for line in file if line.endswith(b"}\n"))

    def stop(self) -> None:
        """What the agent says when the step is over."""
        until(lambda: self.connection).sendall(b'{"stop": "the step has ended"}\n')

    def data(self, key: str) -> list[dict[str, Any]]:
        """What was told under this key."""
        return [line["data"] for line in self.lines if line.get("event") == "data" and key in line["data"]]

    def messages(self) -> list[str]:
        """What a person is told."""
        return [line["data"]["message"] for line in self.lines if line.get("event") == "message"]

    def close(self) -> None:
        """Ends everything."""
        self.load.kill()
        self.load.wait()
        self.thread.join(CEILING_S)
        self.listener.close()
        if self.connection is not None:
            self.connection.close()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short one: the path of a socket has 107 bytes."""
    path = Path(tempfile.mkdtemp(prefix="bm-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def watch(folder: Path) -> Iterator[Callable[..., tuple[subprocess.Popen[bytes], list[Step]]]]:
    """Starts a monitor for steps, each given by its devices; with simulated devices of these readings."""
    monitors: list[subprocess.Popen[bytes]] = []
    steps: list[Step] = []

    def start(*held: list[int], readings: list[dict[str, Any]] | None = None, words: tuple[str, ...] = ()) -> Any:
        steps.extend(Step(folder, f"s{number}", *devices) for number, devices in enumerate(held))
        file = folder / "devices.json"
        file.write_text(json.dumps({"count": 2, "devices": [{"uuid": "SIM", "readings": readings or [{"t": 0}]}]}))
        if readings is not None:
            words = (*words, "--simulated", str(file))
        command = [sys.executable, "-m", "benchmate.monitors", "--arch", "cpu", *words]
        monitor = subprocess.Popen(command, stdin=subprocess.PIPE)
        monitors.append(monitor)
        assert monitor.stdin is not None
        monitor.stdin.write(json.dumps({"steps": [step.about for step in steps]}).encode())
        monitor.stdin.close()
        return monitor, steps

    yield start
    for monitor in monitors:
        monitor.kill()
        monitor.wait()
    for step in steps:
        step.close()


# ------------------------------------------------------------------------------------------ the process


def test_readings_go_to_the_step_that_owns_the_device_and_those_of_the_host_to_the_first(watch: Any) -> None:
    reading = {"t": 0, "load": 0.5, "memory_MiB": [100, 1000], "power_W": 200, "throttle": 4, "temperature": 50}
    monitor, (first, second) = watch([0], [1], readings=[reading])
    until(lambda: first.data("netdata") and second.data("gpudata") and first.data("gpudata"))
    first.stop()
    second.stop()
    assert monitor.wait(CEILING_S) == 0
    first.thread.join(CEILING_S)
    second.thread.join(CEILING_S)
    assert [set(step.data("gpudata")[0]["gpudata"]) for step in (first, second)] == [{"0"}, {"1"}]
    found = second.data("gpudata")[0]["gpudata"]["1"]
    assert found.pop("energy_J") >= 0
    assert found == {
        "uuid": "SIM-1",
        "memory": [100, 1000],
        "load": 0.5,
        "power_W": 200,
        "throttle": ["sw_power_cap"],
        "temperature": 50,
    }
    assert first.data("cpudata")
    assert not second.data("cpudata")
    assert not second.data("netdata")
    assert [step.data("process")[0]["process"]["pid"] for step in (first, second)] == [first.load.pid, second.load.pid]
    assert first.lines[0]["hello"]["role"] == "monitor"


def test_after_the_first_step_the_next_one_gets_the_readings_of_the_host(watch: Any) -> None:
    _, (first, second) = watch([0], [1], readings=[{"t": 0, "load": 1}])
    until(lambda: first.data("cpudata"))
    first.stop()
    until(lambda: second.data("cpudata"))


def test_a_lost_device_is_reported_once_and_stops_nothing_else(watch: Any) -> None:
    _, (step,) = watch([0], readings=[{"t": 0, "load": 1}, {"t": 0.3, "lost": "fell off the bus"}])
    until(lambda: any("lost" in sample for data in step.data("gpudata") for sample in data["gpudata"].values()))
    until(lambda: len(step.data("cpudata")) > 1)
    (said,) = [text for text in step.messages() if "fell off the bus" in text]
    assert said == "device 0: its sensors do not answer any more: fell off the bus"


def test_readings_that_no_device_gives_are_one_message(watch: Any) -> None:
    _, (step,) = watch([0, 1], readings=[{"t": 0, "load": 1, "memory_MiB": [1, 2], "throttle": 0}])
    until(lambda: len(step.data("cpudata")) > 1)
    assert step.messages() == ["device 0, 1: no reading of power: the script does not tell it"]


def test_the_host_is_sampled_without_devices(watch: Any) -> None:
    monitor, (step,) = watch([0])
    until(lambda: step.data("process") and step.data("cpudata"))
    step.stop()
    assert monitor.wait(CEILING_S) == 0
    step.thread.join(CEILING_S)
    assert not step.data("gpudata")


def test_an_unreadable_device_script_is_a_message(watch: Any) -> None:
    _, (step,) = watch([0], words=("--simulated", "/nonexistent.json"))
    until(lambda: step.data("cpudata"))
    assert "devices cannot be read: /nonexistent.json" in step.messages()[0]


def test_a_monitor_ends_when_its_steps_have_gone(watch: Any) -> None:
    monitor, (step,) = watch([0])
    until(lambda: step.connection)
    step.connection.shutdown(socket.SHUT_RDWR)
    assert monitor.wait(CEILING_S) == 0


def test_installed_packages_are_recorded_on_request(watch: Any) -> None:
    _, (step,) = watch([0], words=("--packages",))
    (meta,) = until(lambda: [line["data"] for line in step.lines if line.get("event") == "meta"])
    assert "voir" in meta["installed"]


def test_malformed_standard_input_is_an_error_of_one_line() -> None:
    command = [sys.executable, "-m", "benchmate.monitors"]
    done = subprocess.run(command, input=b"{}", capture_output=True, check=False)
    assert done.returncode == 2
    assert done.stderr.decode().count("\n") == 1


# ------------------------------------------------------------------------------------------ devices


class Device:
    """A device that says what it is told to."""

    index, uuid, name = 0, "u", "x"

    def __init__(self, **readings: Any) -> None:
        self.absent: dict[str, str] = {}
        self.readings = readings

    def sample(self) -> Sample:
        if "lost" in self.readings:
            raise DeviceLostError(self.readings["lost"])
        return Sample(**self.readings)

    def survey(self) -> Survey:
        return Survey(processes=(DeviceProcess(pid=1, memory_mib=5), DeviceProcess(pid=2), DeviceProcess(pid=3)))


def test_a_missing_reading_is_absent_not_zero() -> None:
    sampler = DeviceSampler([("0", Device(load=0.0))], lambda pid: None, print)
    assert sampler.sample() == {"0": {"uuid": "u", "load": 0.0}}


def test_processes_on_a_device_are_ours_or_foreign_or_of_another_container() -> None:
    sampler = DeviceSampler([("0", Device())], {1: True, 2: False}.get, print)
    sampler.survey()
    processes = sampler.sample()["0"]["processes"]
    assert processes == [{"pid": 1, "memory_MiB": 5, "own": True}, {"pid": 2, "own": False}, {"pid": 3}]
    assert "processes" not in sampler.sample()["0"]


def test_a_device_belongs_to_the_step_with_its_uuid_else_with_its_number() -> None:
    first = WatchedStep(name="a", sink="", pid=1, devices=(0,), uuids=("GPU-b",))
    second = WatchedStep(name="b", sink="", pid=2, devices=(1,), uuids=("GPU-a",))
    assert steps_holding([first, second], 0, "GPU-a", 0) == [second]
    assert steps_holding([first, second], 0, "SIM-0", 0) == [first]


def test_all_mig_slices_of_a_step_are_sampled() -> None:
    pieces = [SimpleNamespace(uuid=f"MIG-{name}", aliases=()) for name in "ab"]
    whole = SimpleNamespace(uuid="GPU-0", index=0, slices=pieces)
    step = WatchedStep(name="s", sink="", pid=1, devices=(0, 1), uuids=("MIG-b", "MIG-a"))
    assert monitor_module._devices_by_step([step], [whole]) == {"s": [("MIG-b", pieces[1]), ("MIG-a", pieces[0])]}


# ------------------------------------------------------------------------------------------ processes


def test_a_process_that_a_service_started_for_a_step_is_recognised_by_its_environment() -> None:
    # As of docker, podman, pyxis and srun: neither a descendant of the leader nor in its session.
    leader = subprocess.Popen(["sleep", "600"], start_new_session=True)
    markers = {"MILABENCH_STEP": "x", "MILABENCH_RUN_MARKER": "r"}
    inner = subprocess.Popen(["sleep", "600"], start_new_session=True, env=os.environ | markers)
    try:
        assert ProcessTrees([leader.pid], steps=["x"], run_marker="r").is_ours(inner.pid) is True
        assert ProcessTrees([leader.pid], steps=["y"], run_marker="r").is_ours(inner.pid) is False
        assert ProcessTrees([leader.pid], steps=["x"], run_marker="another").is_ours(inner.pid) is False
        inner.kill()
        inner.wait()
    finally:
        for process in (leader, inner):
            process.kill()
            process.wait()


@pytest.mark.parametrize(("has_detached", "own"), [(True, None), (False, False)])
def test_whose_a_process_is_that_cannot_be_looked_into_is_known_unless_steps_run_in_containers(
    tmp_path: Path, has_detached: bool, own: bool | None
) -> None:
    (tmp_path / "7").mkdir()  # no `environ` that this user may read
    assert ProcessTrees([], str(tmp_path), has_detached=has_detached).is_ours(7) is own


def test_a_process_tree_includes_children_in_sessions_of_their_own() -> None:
    program = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    leader = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, start_new_session=True)
    assert leader.stdout is not None
    child = int(leader.stdout.readline())
    try:
        found = ProcessTrees([leader.pid])
        assert set(found.trees[leader.pid].members) == {leader.pid, child}
        assert found.is_ours(child) is True
        assert found.is_ours(os.getpid()) is False
        assert found.is_ours(2**22 + 1) is None
        found.measure_pss()
        data = found.data(leader.pid, 1.0)
        assert data is not None
        assert data["processes"] == 2
        assert data["rss_MiB"] > data["pss_MiB"] > 0
        os.kill(child, 9)
        until(lambda: found.update() or len(found.trees[leader.pid].members) == 1)
    finally:
        leader.kill()
        leader.wait()
        leader.stdout.close()


def test_ended_processes_stay_in_the_sums(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    proc.process(10, parent=1, session=10, ticks=100)
    proc.process(11, parent=10, session=10, ticks=300, written=4096)
    found = ProcessTrees([10], str(tmp_path))
    assert found.data(10, 1.0)["cpu_s"] == pytest.approx(4.0)
    shutil.rmtree(tmp_path / "11")
    proc.process(10, parent=1, session=10, ticks=150)
    found.update()
    data = found.data(10, 2.0)
    assert (data["cpu_s"], data["load"], data["write_bytes"]) == (pytest.approx(4.5), pytest.approx(0.5), 4096)


def test_what_a_parent_has_waited_for_counts_once_and_short_children_that_nobody_saw_count_too(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    proc.process(10, parent=1, session=10, ticks=100)
    proc.process(11, parent=10, session=10, ticks=300)
    found = ProcessTrees([10], str(tmp_path))
    shutil.rmtree(tmp_path / "11")
    found.update()
    assert found.cpu_s() == {10: pytest.approx(4.0)}
    proc.process(10, parent=1, session=10, ticks=100, reaped=310)  # now waited for: it had worked a tenth more
    found.update()
    assert found.cpu_s() == {10: pytest.approx(4.1)}
    proc.process(10, parent=1, session=10, ticks=100, reaped=900)
    found.update()
    assert found.cpu_s() == {10: pytest.approx(10.0)}


def test_a_child_that_ends_with_its_parent_counts_once(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    for pid, parent in ((10, 1), (11, 10), (12, 11)):
        proc.process(pid, parent=parent, session=10, ticks=100)
    found = ProcessTrees([10], str(tmp_path))
    for pid in (11, 12):
        shutil.rmtree(tmp_path / str(pid))
    proc.process(10, parent=1, session=10, ticks=100, reaped=200)
    found.update()
    assert found.cpu_s() == {10: pytest.approx(3.0)}


def test_short_children_of_a_real_process_are_in_its_time() -> None:
    """By the clock that the children print themselves."""
    work = "import time; [None for _ in range(3_000_000)]; print(time.process_time(), flush=True)"
    program = (
        "import subprocess, sys\n"
        f"for _ in range(8): subprocess.run([sys.executable, '-c', {work!r}])\n"
        "print('end', flush=True)\n"
        "input()\n"
    )
    leader = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert leader.stdout is not None
    assert leader.stdin is not None
    try:
        found = ProcessTrees([leader.pid])
        before_s = found.cpu_s()[leader.pid]
        worked_s = sum(float(line) for line in iter(leader.stdout.readline, b"end\n"))
        found.update()
        assert found.cpu_s()[leader.pid] - before_s >= 0.9 * worked_s
    finally:
        leader.kill()
        leader.wait()
        leader.stdout.close()
        leader.stdin.close()


def test_the_wait_for_a_processor_is_the_sum_over_threads_ended_ones_included(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    proc.process(10, parent=1, session=10, delays={"10": 2, "14": 3})
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "schedstat").touch()
    found = ProcessTrees([10], str(tmp_path))
    found.measure_delays()
    assert found.data(10, 1.0)["run_delay_s"] == 5.0
    assert "run_delay_s" not in found.data(10, 1.0)
    shutil.rmtree(tmp_path / "10" / "task" / "14")
    proc.process(10, parent=1, session=10, delays={"10": 4})
    found.measure_delays()
    assert found.data(10, 2.0)["run_delay_s"] == 7.0


def test_the_wait_of_many_threads_is_read_seldom(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    proc.process(10, parent=1, session=10, delays={"10": 2}, threads=3 * THREADS_AT_ONCE)
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "schedstat").touch()
    found, read = ProcessTrees([10], str(tmp_path)), []
    for _ in range(8):
        found.update()
        found.measure_delays()
        read.append("run_delay_s" in found.data(10, 1.0))
    assert sum(read) == 2


def test_a_kernel_without_run_delays_is_not_asked(tmp_path: Path) -> None:
    FakeProc(tmp_path).process(10, parent=1, session=10, delays={"10": 2})
    found = ProcessTrees([10], str(tmp_path))
    found.measure_delays()
    assert "run_delay_s" not in found.data(10, 1.0)


def test_an_orphan_is_recognised_by_its_session(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    proc.process(10, parent=1, session=10)
    proc.process(12, parent=1, session=10)
    proc.process(13, parent=1, session=13)
    assert set(ProcessTrees([10], str(tmp_path)).trees[10].members) == {10, 12}


class FakeProc:
    """A folder that looks like /proc."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ticks = os.sysconf("SC_CLK_TCK")

    def process(
        self,
        pid: int,
        *,
        parent: int,
        session: int,
        ticks: int = 0,
        reaped: int = 0,
        written: int = 0,
        threads: int = 1,
        delays: dict[str, int] | None = None,
    ) -> None:
        """A process with hundredths of a second of processor time; `delays` are seconds by thread."""
        place = self.folder / str(pid)
        place.mkdir(exist_ok=True)
        own, children = ticks * self.ticks // 100, reaped * self.ticks // 100
        fields = ["S", parent, session, session, *[0] * 7, own, 0, children, 0, 0, 0, threads, 0, 777, 0, 256]
        for thread, seconds in (delays or {}).items():
            (place / "task" / thread).mkdir(parents=True, exist_ok=True)
            (place / "task" / thread / "schedstat").write_text(f"1 {seconds}000000000 1\n")
        (place / "stat").write_text(f"{pid} (a name) {' '.join(map(str, fields))} 0 0\n")
        (place / "io").write_text(f"rchar: 1\nread_bytes: 0\nwrite_bytes: {written}\n")


# ------------------------------------------------------------------------------------------ host


def test_a_rapl_counter_may_wrap_around(tmp_path: Path) -> None:
    package = tmp_path / "intel-rapl:0"
    package.mkdir()
    (tmp_path / "intel-rapl:0:0").mkdir()
    (package / "max_energy_range_uj").write_text("10000000\n")
    (package / "energy_uj").write_text("9000000\n")
    cpu = CpuSampler(powercap=str(tmp_path))
    (package / "energy_uj").write_text("1000000\n")
    assert cpu.data()["energy_J"] == 2.0


def test_an_unreadable_rapl_counter_is_absent_with_a_reason(tmp_path: Path) -> None:
    (tmp_path / "intel-rapl:0").mkdir()
    cpu = CpuSampler(powercap=str(tmp_path))
    assert "energy_J" not in cpu.data()
    assert "may not be read" in cpu.absent


def test_a_file_of_several_pages_is_read_to_its_end() -> None:
    """The kernel gives a page at a time: interfaces and disks beyond the first were in no sum."""
    path = Path("/proc/crypto")
    content = path.read_bytes()
    assert len(content) > 4096
    assert read_kernel_file(str(path)) == content


def test_disk_counters_start_at_zero_and_leave_out_partitions(tmp_path: Path) -> None:
    for name in ("sda", "loop0"):
        (tmp_path / "block" / name).mkdir(parents=True)
    stats = tmp_path / "diskstats"
    stats.write_text(" 8 0 sda 1 0 8 0 2 0 16 0 0 0 0\n 8 1 sda1 1 0 8 0 2 0 16 0 0 0 0\n")
    disks = Disks(str(tmp_path), str(tmp_path / "block"))
    stats.write_text(" 8 0 sda 3 0 10 0 2 0 17 0 0 0 0\n 8 1 sda1 9 0 9 0 9 0 99 0 0 0 0\n")
    assert disks.data() == {"read_count": 2, "read_bytes": 1024, "write_count": 0, "write_bytes": 512}


def test_network_counters_leave_out_loopback(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    file = tmp_path / "net" / "dev"
    head = "Inter-| Receive | Transmit\n face |bytes |bytes\n"
    file.write_text(head + "  lo: 5 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0\neth0: 10 1 0 0 0 0 0 0 20 2 0 0 0 0 0 0\n")
    network = Network(str(tmp_path), str(tmp_path / "none"))
    file.write_text(head + "  lo: 9 2 0 0 0 0 0 0 9 2 0 0 0 0 0 0\neth0: 110 3 0 0 0 0 0 0 25 4 0 0 0 0 0 0\n")
    data = network.data()
    assert (data["bytes_recv"], data["packets_recv"], data["bytes_sent"], data["packets_sent"]) == (100, 2, 5, 2)


def test_the_peak_of_a_shared_control_group_is_not_used(tmp_path: Path) -> None:
    for pid, group in (("7", "/job/step"), ("8", "/job"), ("self", "/job")):
        (tmp_path / "proc" / pid).mkdir(parents=True)
        (tmp_path / "proc" / pid / "cgroup").write_text(f"0::{group}\n")
    (tmp_path / "groups" / "job" / "step").mkdir(parents=True)
    (tmp_path / "groups" / "job" / "step" / "memory.peak").write_text("4096\n")
    (tmp_path / "groups" / "job" / "memory.peak").write_text("8192\n")
    places = {"proc": str(tmp_path / "proc"), "groups": str(tmp_path / "groups")}
    assert group_peak_bytes(7, **places) == 4096
    assert group_peak_bytes(8, **places) is None


def test_installed_versions_are_those_of_this_environment() -> None:
    import importlib.metadata

    assert installed_versions()["voir"] == importlib.metadata.version("voir")


# ------------------------------------------------------------------------------------------ whose the processors were


class FakeStat:
    """/proc/stat of two processors, in ticks: idle ones, and stolen ones; the rest of the time they work."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ticks = os.sysconf("SC_CLK_TCK")

    def write(self, *idle_and_stolen: tuple[float, float]) -> None:
        lines = ["cpu 1 2 3 4 5 6 7 8 0 0"]
        for number, (idle_s, stolen_s) in enumerate(idle_and_stolen):
            columns = [999, 999, 999, idle_s * self.ticks, 0, 0, 0, stolen_s * self.ticks, 0, 0]
            lines.append(f"cpu{number} " + " ".join(str(round(ticks)) for ticks in columns))
        (self.folder / "stat").write_text("\n".join([*lines, "intr 5 5 5", ""]))


def test_the_work_of_others_is_that_of_the_steps_processors_less_that_of_their_trees(tmp_path: Path) -> None:
    stat = FakeStat(tmp_path)
    allowed = {7: {0}, 8: {1}}
    found = Processors([7, 8], str(tmp_path), allowed.__getitem__)
    stat.write((50, 0), (50, 0))
    found.update(100.0, {7: 1.0, 8: 1.0})
    stat.write(
        (52, 0), (59, 0.5)
    )  # in ten seconds the first worked 8 s, the second half a second, half a second stolen
    found.update(110.0, {7: 4.0, 8: 1.25})
    assert found.data(7) == {"processors": 1, "busy_s": 8.0, "ours_s": 3.0, "steal_s": 0.0}
    assert found.data(8) == {"processors": 1, "busy_s": 0.5, "ours_s": 0.25, "steal_s": 0.5}


def test_steps_that_share_a_processor_are_not_foreign_to_each_other(tmp_path: Path) -> None:
    stat = FakeStat(tmp_path)
    found = Processors([7, 8, 9], str(tmp_path), {7: {0}, 8: {0, 1}, 9: {1}}.__getitem__)
    stat.write((50, 0), (50, 0))
    found.update(100.0, {7: 0.0, 8: 0.0, 9: 0.0})
    stat.write((50, 0), (51, 0))
    found.update(110.0, {7: 9.0, 8: 5.0, 9: 5.0})
    assert [found.data(leader)["ours_s"] for leader in (7, 8, 9)] == [19.0] * 3
    assert [found.data(leader)["busy_s"] for leader in (7, 8, 9)] == [19.0] * 3


def test_a_step_that_has_ended_keeps_its_processors_and_its_work(tmp_path: Path) -> None:
    stat = FakeStat(tmp_path)
    alive = {7: {0, 1}, 8: {0, 1}}

    def affinity(pid: int) -> set[int]:
        if pid not in alive:
            raise ProcessLookupError
        return alive[pid]

    found = Processors([7, 8], str(tmp_path), affinity)
    stat.write((50, 0), (50, 0))
    found.update(100.0, {7: 0.0, 8: 0.0})
    del alive[8]
    stat.write((50, 0), (50, 0))
    found.update(101.0, {7: 1.0, 8: 1.0})
    assert found.data(7) == {"processors": 2, "busy_s": 2.0, "ours_s": 2.0, "steal_s": 0.0}


def test_what_the_machine_lacked_is_read_where_the_kernel_tells(tmp_path: Path) -> None:
    assert pressure(str(tmp_path)) == {}
    (tmp_path / "pressure").mkdir()
    for name, total in (("cpu", 5_000_000), ("memory", 1500), ("io", 0)):
        (tmp_path / "pressure" / name).write_text(
            f"some avg10=0.57 avg60=5.00 avg300=17.34 total={total}\nfull x total=9\n"
        )
    (tmp_path / "vmstat").write_text("nr_free_pages 5\npswpin 3\npswpout 4\nhalf_a_li")
    read = pressure(str(tmp_path))
    assert read == {
        "pressure_s": {"cpu": 5.0, "memory": 0.002, "io": 0.0},
        "swap_bytes": 7 * os.sysconf("SC_PAGE_SIZE"),
    }


def test_every_instance_of_a_group_is_told_whose_the_processors_were(watch: Any) -> None:
    _, steps = watch([0], [1])
    until(lambda: all(len(step.data("process")) > 1 for step in steps))
    for step in steps:
        host = step.data("process")[-1]["process"]["host"]
        assert host["processors"] == len(os.sched_getaffinity(step.load.pid))
        assert host.keys() >= {"busy_s", "ours_s", "steal_s"}


def test_a_busy_loop_beside_a_step_is_foreign_work(watch: Any) -> None:
    """At least what the loop says that it used itself; this machine may have more to do."""
    program = (
        "import os, signal, sys, time\n"
        "def tell(*_): print(time.process_time(), flush=True)\n"
        "signal.signal(signal.SIGUSR1, tell)\n"
        "print('up', flush=True)\n"
        "while True: pass\n"
    )
    loop = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert loop.stdout is not None
    try:
        assert loop.stdout.readline() == b"up\n"

        def used_s() -> float:
            loop.send_signal(signal.SIGUSR1)
            return float(loop.stdout.readline())  # type: ignore[union-attr]

        def foreign_s() -> float:
            host = step.data("process")[-1]["process"]["host"]
            return float(host["busy_s"] - host["ours_s"])

        _, (step,) = watch([0])
        until(lambda: step.data("process"))
        before_foreign_s, before_s = foreign_s(), used_s()
        until(lambda: len(step.data("process")) > 2)
        counted = len(step.data("process"))
        worked_s = used_s() - before_s
        # The next reading is after that.
        until(lambda: len(step.data("process")) > counted)
        assert foreign_s() - before_foreign_s >= 0.95 * worked_s > 0
    finally:
        loop.kill()
        loop.wait()
        loop.stdout.close()


def test_steps_of_a_newer_agent_are_watched() -> None:
    [step] = parse_steps('{"steps": [{"sink": "unix:/s", "pid": "7", "devices": null, "later": 1}]}')
    assert (step.name, step.pid, step.devices) == ("", 7, ())
