"""Devices are locked by uuid, as milabench locks them, and other programs on them are told."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agent import Agent
from programs import Program

from benchmate.cases.device_locks import DeviceInUseError, lock_devices, lock_names
from benchmate.devices.vendors.locks import DeviceLocks, close_files

NOBODY = pytest.fail
QUIET = """
    @benchmark.register(name="x", )
    def x():
        pass
"""


def test_a_lock_is_named_by_kind_and_uuid_and_signed_by_its_holder(tmp_path: Path) -> None:
    locks = DeviceLocks(str(tmp_path))
    lock_devices(locks, ["cuda-GPU-1"], "bench.py -f x", 0.0, NOBODY)
    whose = json.loads((tmp_path / "cuda-GPU-1.lock").read_text())
    assert (whose["command"], whose["host"]) == ("bench.py -f x", socket.gethostname())
    locks.release()


def test_another_may_have_it_when_it_is_let_go(tmp_path: Path) -> None:
    first, second = DeviceLocks(str(tmp_path)), DeviceLocks(str(tmp_path))
    lock_devices(first, ["cuda-b", "cuda-a"], "bench.py", 0.0, NOBODY)
    with pytest.raises(
        DeviceInUseError, match=r"cuda-b is in use by bench.py \(pid \d+, user .*\). Wait for it with --lock wait"
    ):
        lock_devices(second, ["cuda-b"], "other.py", 0.0, NOBODY)
    first.release()
    lock_devices(second, ["cuda-b"], "other.py", 0.0, NOBODY)
    second.release()


def test_a_link_instead_of_a_lock_is_not_written_through(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for number, make in enumerate((Path.symlink_to, Path.hardlink_to)):
        folder = tmp_path / str(number)
        folder.mkdir()
        make(folder / "cuda-a.lock", victim)
        with pytest.raises(OSError, match=r"symbolic link|has another name"):
            DeviceLocks(str(folder)).open(["cuda-a"])
    (folder / "cuda-b.lock").symlink_to(tmp_path / "nowhere")
    with pytest.raises(OSError, match="symbolic link"):
        DeviceLocks(str(folder)).open(["cuda-b"])
    assert victim.read_text() == "precious"
    assert not (tmp_path / "nowhere").exists()


def test_a_folder_in_which_others_could_remove_locks_is_none_for_locks(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "target").mkdir()
    (tmp_path / "link").symlink_to("target")
    for name in ("open", "link"):
        with pytest.raises(OSError, match=r"others could remove a lock in it \(chmod \+t\)"):
            DeviceLocks(str(tmp_path / name)).open(["cuda-a"])
    (tmp_path / "open").chmod(0o1777)
    locks = DeviceLocks(str(tmp_path / "open"))
    assert locks.take(locks.open(["cuda-a"])) is None
    # One that is made is for the locks of all users, whatever the umask.
    locks = DeviceLocks(str(tmp_path / "new"))
    old = os.umask(0o077)
    try:
        close_files(locks.open(["cuda-a"]))
    finally:
        os.umask(old)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "new", tmp_path / "new" / "cuda-a.lock")]
    assert modes == [0o1777, 0o666]


def test_who_waits_says_for_whom(tmp_path: Path) -> None:
    first, second, said = DeviceLocks(str(tmp_path)), DeviceLocks(str(tmp_path)), []
    lock_devices(first, ["cuda-a"], "bench.py", 0.0, NOBODY)
    with pytest.raises(DeviceInUseError):
        lock_devices(second, ["cuda-a"], "other.py", 0.01, said.append)
    assert [text.partition(" (")[0] for text in said] == ["waiting for cuda-a, in use by bench.py"]
    first.release()


def test_devices_that_the_step_holds_are_not_locked_again() -> None:
    held = {"MILABENCH_DEVICES_HELD": "GPU-1,GPU-2"}
    assert lock_names(["GPU-1", "GPU-3"], "cuda", held) == ("cuda-GPU-3",)
    assert lock_names([], "cpu", {"MILABENCH_DEVICES_HELD": "cpu-host-0"}) == ()
    assert lock_names([], "cpu", {}) == (f"cpu-{socket.gethostname()}",)


def devices(folder: Path, **reading: Any) -> str:
    path = folder / "devices.json"
    path.write_text(json.dumps({"devices": [{"uuid": f"SIM-{n}", "readings": [reading]} for n in range(2)]}))
    return str(path)


def test_a_program_holds_the_devices_that_it_sees_while_its_cases_run(
    program: Callable[[str], Program], tmp_path: Path
) -> None:
    made = program("""
        @benchmark.register(name="x")
        def x(state):
            state.label = open(os.environ["MILABENCH_LOCK_DIR"] + "/simulated-SIM-1.lock").read().replace(",", "")
    """)
    env = {"MILABENCH_SIMULATED_DEVICES": devices(tmp_path), "CUDA_VISIBLE_DEVICES": "1"}
    said = made.run("-T", "csv", **env)
    assert "cases.py" in said.rows()["x"]["label"]
    assert [path.name for path in (tmp_path / "locks").iterdir()] == ["simulated-SIM-1.lock"]


def test_a_device_in_use_is_waited_for_or_an_end(program: Callable[[str], Program], tmp_path: Path) -> None:
    other = DeviceLocks(str(tmp_path / "locks"))
    lock_devices(other, ["simulated-SIM-0"], "other.py", 0.0, NOBODY)
    env = {"MILABENCH_SIMULATED_DEVICES": devices(tmp_path)}
    refused = program(QUIET).run("--lock", "fail", **env)
    assert (refused.code, refused.out) == (1, "total 1 benchmark(s) matched to pattern\n")
    assert refused.err.startswith("error: simulated-SIM-0 is in use by other.py (pid ")
    assert program(QUIET).run("--lock", "none", **env).code == 0
    other.release()


def test_other_programs_on_the_device_make_a_result_contended(
    program: Callable[[str], Program], tmp_path: Path
) -> None:
    foreign = devices(tmp_path, processes=[{"pid": 4_000_000, "memory_MiB": 300}])
    row = program(QUIET).run("-T", "csv", MILABENCH_SIMULATED_DEVICES=foreign).rows()["x"]
    assert (row["outcome"], row["reasons"]) == ("passed", "contended")
    assert row["detail"] == "other processes on the device: 4000000"


def test_the_agent_gets_a_main_metric_for_each_case_and_every_failure(
    program: Callable[[str], Program], agent: Agent
) -> None:
    made = program("""
        @benchmark.register(name="sum/{n}", n=[10, 1000])
        def x(n, state):
            state.items = n
            state.counters["depth"] = 3
            sum(range(n))

        @benchmark.register(name="raises")
        def raises():
            raise ValueError("no")
    """)
    said = made.run(
        "--benchmark_repetitions=2",
        "--isolation=fork",
        MILABENCH_SINK=f"unix:{agent.path}",
        MILABENCH_DEVICES_HELD="cpu-0",
    )
    agent.close()
    assert said.code == 1
    found = [data for data in agent.records() if data.get("metric") == "wall_time"]
    assert [(data["case"], data["units"], data["direction"], data["main"], data["n"]) for data in found] == [
        ("sum/10", "s", "lower", True, 2),
        ("sum/1000", "s", "lower", True, 2),
    ]
    assert all(len(data["values"]) == 2 for data in found)
    names = {data["metric"] for data in agent.records() if data.get("case") == "sum/10"}
    assert {"items_per_second", "depth", "host_memory_peak"} <= names
    fails = [line["fail"] for line in agent.lines if "fail" in line]
    assert fails == [{"why": "exit", "detail": "case raises: failed (exit): run: ValueError: no"}]


def test_who_waits_for_a_device_can_be_interrupted(program: Callable[[str], Program], tmp_path: Path) -> None:
    other = DeviceLocks(str(tmp_path / "locks"))
    lock_devices(other, ["simulated-SIM-0"], "other.py", 0.0, NOBODY)
    running = program(QUIET).start(MILABENCH_SIMULATED_DEVICES=devices(tmp_path))
    assert running.stderr is not None
    assert running.stderr.readline().startswith("waiting for simulated-SIM-0, in use by other.py (pid ")
    running.send_signal(signal.SIGTERM)
    _, err = running.communicate()
    other.release()
    assert (running.returncode, err) == (130, "interrupted after 0 of 1 processes\n")
