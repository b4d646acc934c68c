"""What every scheduler does: one in memory, Slurm by fake commands (as text and as JSON), and a real Slurm."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from milabench.config.schema import SlurmConfig
from milabench.errors import UsageError
from milabench.schedulers.scheduler import JobHandle, JobRequest, JobState, Scheduler, job_name
from milabench.slurm.scheduler import SlurmScheduler
from milabench.slurm.script import batch_script
from tests.processes import until
from tests.slurm.fake_commands import FakeSlurm
from tests.slurm.fake_scheduler import FakeScheduler

SMALL = SlurmConfig(exclusive=False, time="5")
# A job that ends when its file is there, with the exit code in it; a task of an array adds its number to the name.
WAITS = 'while [ ! -e "$0${1-}" ]; do sleep 0.05; done; exit "$(cat "$0${1-}")"'


@dataclass
class World:
    """A scheduler, and how its jobs begin and end."""

    scheduler: Scheduler
    folder: Path
    starts: Callable[[JobHandle], None]
    ends: Callable[[JobHandle, int], None]
    marker: str = field(default_factory=lambda: os.urandom(4).hex())  # a cluster remembers the jobs of other tests

    def request(self, share: str, marker: str = "", slurm: SlurmConfig = SMALL, **others: object) -> JobRequest:
        marker = marker or self.marker
        tasks = [str(number) for number in range(int(str(others.get("tasks", 0))))]
        script = batch_script(
            slurm,
            marker=marker,
            share=share,
            command=["sh", "-c", WAITS, str(self.folder / f"end-{share}-")],
            output=self.folder / f"{share}.out",
            tasks=tasks,
        )
        path = self.folder / f"{share}.sh"
        return JobRequest(name=job_name(marker, share), script=script, path=path, **others)  # type: ignore[arg-type]

    def state(self, handle: JobHandle) -> JobState:
        return self.scheduler.observe([handle])[handle.id]

    def becomes(self, handle: JobHandle, phase: str) -> JobState:
        return until(lambda: (said := self.state(handle)).phase == phase and said, f"{handle} becomes {phase}")


def in_memory(folder: Path) -> World:
    scheduler = FakeScheduler()

    def starts(handle: JobHandle) -> None:
        scheduler.states[handle.id] = JobState(phase="running", state="RUNNING", nodes=("n1",))

    def ends(handle: JobHandle, code: int) -> None:
        result, state = ("failed", "FAILED") if code else ("completed", "COMPLETED")
        scheduler.states[handle.id] = JobState(phase="ended", result=result, state=state, nodes=("n1",))

    return World(scheduler, folder, starts, ends)


def by_fake_commands(folder: Path, **settings: Any) -> World:
    fake = FakeSlurm(folder, **settings)

    def starts(handle: JobHandle) -> None:
        fake.set(handle.id, state="RUNNING", nodes="n1", reason="")

    def ends(handle: JobHandle, code: int) -> None:
        fake.set(handle.id, state="FAILED" if code else "COMPLETED", exit=code)

    return World(SlurmScheduler(fake.environ), folder, starts, ends)


def on_a_cluster(folder: Path) -> World:
    def ends(handle: JobHandle, code: int) -> None:
        task = handle.id.partition("_")[2]
        draft = folder / "draft"  # renamed: a job that finds the file finds all of it
        draft.write_text(str(code))
        draft.rename(folder / f"end-{handle.name.rpartition('-')[2]}-{task}")

    return World(SlurmScheduler(os.environ), folder, lambda handle: None, ends)


@pytest.fixture(params=["memory", "text", "json", "accounting", "cluster"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    if request.param == "memory":
        return in_memory(tmp_path)
    if request.param == "cluster":
        request.getfixturevalue("slurm")
        return on_a_cluster(tmp_path)
    settings = {"text": {}, "json": {"version": "24.05.1"}, "accounting": {"accounting": True}}
    return by_fake_commands(tmp_path, **settings[request.param])


def test_a_job_is_pending_or_running_and_ends_with_its_result(world: World) -> None:
    good, bad = world.scheduler.submit([world.request("s1"), world.request("s2")])
    assert (good.name, bad.name) == (job_name(world.marker, "s1"), job_name(world.marker, "s2"))
    for handle in (good, bad):
        assert world.state(handle).phase in ("pending", "running")
        world.starts(handle)
        assert world.becomes(handle, "running").nodes
    world.ends(good, 0)
    world.ends(bad, 3)
    assert world.becomes(good, "ended").result == "completed"
    said = world.becomes(bad, "ended")
    assert (said.result, said.exit_code) in {("failed", 3), ("failed", None)}
    assert len(said.nodes) == 1


def test_all_jobs_are_observed_at_once(world: World) -> None:
    handles = world.scheduler.submit([world.request(f"s{number}") for number in range(4)])
    for handle in handles:
        world.starts(handle)
    for handle in handles:
        world.becomes(handle, "running")
    world.ends(handles[2], 0)
    world.becomes(handles[2], "ended")
    phases = {id_: said.phase for id_, said in world.scheduler.observe(handles).items()}
    assert phases == {handle.id: "ended" if handle == handles[2] else "running" for handle in handles}
    assert world.scheduler.observe([]) == {}


def test_a_cancelled_job_says_so_and_one_that_has_ended_stays_as_it_was(world: World) -> None:
    first, second = world.scheduler.submit([world.request("s1"), world.request("s2")])
    for handle in (first, second):
        world.starts(handle)
        world.becomes(handle, "running")
    world.ends(first, 0)
    world.becomes(first, "ended")
    world.scheduler.cancel([first, second])
    assert world.becomes(second, "ended").result == "cancelled"
    assert world.state(first).result == "completed"
    world.scheduler.cancel([first, second])
    world.scheduler.cancel([])


def test_a_pending_job_is_cancelled(world: World) -> None:
    first, second = world.scheduler.submit([world.request("s1"), world.request("s2")])
    [blocked] = world.scheduler.submit([world.request("s3", after=(first.id, second.id))])
    assert world.state(blocked).phase == "pending"
    world.scheduler.cancel([blocked])
    assert world.becomes(blocked, "ended").result == "cancelled"


def test_a_job_waits_for_others_however_they_end(world: World) -> None:
    [first] = world.scheduler.submit([world.request("s1")])
    [second] = world.scheduler.submit([world.request("s2", after=(first.id,))])
    world.starts(first)
    world.becomes(first, "running")
    assert world.state(second).phase == "pending"
    world.ends(first, 5)
    assert world.becomes(first, "ended").result == "failed"
    world.starts(second)
    world.becomes(second, "running")


def test_each_task_of_an_array_is_a_job(world: World) -> None:
    handles = world.scheduler.submit([world.request("s1", tasks=3, at_once=2)])
    assert [handle.id.partition("_")[2] for handle in handles] == ["0", "1", "2"]
    assert {world.state(handle).phase for handle in handles} <= {"pending", "running"}
    for handle in handles[:2]:
        world.starts(handle)
        world.becomes(handle, "running")
    assert world.state(handles[2]).phase == "pending"
    world.ends(handles[1], 4)
    assert world.becomes(handles[1], "ended").result == "failed"
    assert world.state(handles[0]).phase == "running"
    world.starts(handles[2])
    world.becomes(handles[2], "running")
    world.scheduler.cancel([handles[0]])
    assert world.becomes(handles[0], "ended").result == "cancelled"
    assert world.state(handles[2]).phase == "running"


@pytest.mark.parametrize("cancelled", [(2,), (1, 2), (0, 1, 2)], ids=["one", "two", "all"])
def test_a_task_of_an_array_that_waits_is_cancelled(world: World, cancelled: tuple[int, ...]) -> None:
    handles = world.scheduler.submit([world.request("s1", tasks=3, at_once=1)])
    world.starts(handles[0])
    world.becomes(handles[0], "running")
    world.scheduler.cancel([handles[number] for number in cancelled])
    for number in cancelled:
        assert world.becomes(handles[number], "ended").result == "cancelled"
    kept = [handle for number, handle in enumerate(handles) if number not in cancelled]
    assert {world.state(handle).phase for handle in kept} <= {"pending", "running"}


def test_the_jobs_of_a_run_are_found_again_by_its_marker(world: World) -> None:
    handles = world.scheduler.submit([world.request("s1"), world.request("s2", tasks=2)])
    world.scheduler.submit([world.request("s3", marker=world.marker[:-1]), world.request("s4", marker="other")])
    world.starts(handles[0])
    world.becomes(handles[0], "running")
    world.ends(handles[0], 0)
    world.becomes(handles[0], "ended")
    assert {(each.id, each.name) for each in world.scheduler.adopt(world.marker)} == {
        (each.id, each.name) for each in handles
    }
    assert world.scheduler.adopt("nobody") == []


def test_a_job_that_nobody_knows_is_absent(world: World) -> None:
    stranger = JobHandle(id="99999", name="mb-x-s1")
    assert world.state(stranger).phase == "absent"


@pytest.fixture
def refusing(world: World, request: pytest.FixtureRequest) -> Iterator[World]:
    """The same world; the fake commands have no partitions, and are told what to say."""
    if isinstance(world.scheduler, SlurmScheduler) and "cluster" not in request.node.callspec.id:
        state = FakeSlurm.at(world.folder)
        state.next("sbatch")
        state.next("sbatch", error="sbatch: error: Batch job submission failed: Invalid partition name specified\n")
    yield world


def test_a_refused_job_is_an_error_with_the_schedulers_own_reason(refusing: World) -> None:
    requests = [refusing.request("s1"), refusing.request("s2", slurm=replace(SMALL, partition="nope"))]
    with pytest.raises(UsageError, match=r"^job mb-\w+-s2: Slurm refused it: .*Invalid partition name specified$"):
        refusing.scheduler.submit(requests)
    assert [handle.name for handle in refusing.scheduler.adopt(refusing.marker)] == [job_name(refusing.marker, "s1")]
