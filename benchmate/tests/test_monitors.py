"""Monitors: real processes that watch real processes, and the parts that read the host."""

from __future__ import annotations

import json
import os
import shutil
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
from benchmate.monitors import monitor as monitor_module
from benchmate.monitors.device_sampler import DeviceSampler
from benchmate.monitors.host import CpuSampler, Disks, Network, group_peak_bytes
from benchmate.monitors.monitor import installed_versions
from benchmate.monitors.process_tree import ProcessTrees
from benchmate.monitors.watched_steps import WatchedStep, steps_holding

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

    def process(self, pid: int, *, parent: int, session: int, ticks: int = 0, written: int = 0) -> None:
        """A process with hundredths of a second of processor time."""
        place = self.folder / str(pid)
        place.mkdir(exist_ok=True)
        fields = ["S", parent, session, session, *[0] * 7, ticks * self.ticks // 100, 0, 0, 0, 0, 0, 1, 0, 777, 0, 256]
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
