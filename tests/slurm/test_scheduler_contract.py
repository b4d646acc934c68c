"""What every scheduler does: one in memory, one of local processes, Slurm by fake commands, a real Slurm.

A scheduler joins with a `World`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from milabench.config.schema import SlurmConfig, SystemConfig
from milabench.errors import UsageError
from milabench.schedulers.scheduler import JobHandle, JobRequest, JobResult, JobState, JobText, Scheduler, job_name
from milabench.slurm.scheduler import SlurmScheduler
from milabench.slurm.script import batch_script
from tests.processes import until
from tests.schedulers.queue.jobs import QUEUE, Queue
from tests.slurm.fake_commands import FakeSlurm
from tests.slurm.fake_scheduler import FakeScheduler

SMALL = SlurmConfig(exclusive=False, time="5")
NO_SYSTEM = cast("SystemConfig", None)  # the jobs of the queue have no options
REFUSED_BY_SLURM = r"Slurm refused it: .*Invalid partition name specified"
# A job that ends when its file is there, with the exit code in it; a task of an array adds its number to the name.
WAITS = 'while [ ! -e "$0${1-}" ]; do sleep 0.05; done; exit "$(cat "$0${1-}")"'


def no_preparation() -> None:
    """Nothing is to be done before a job is refused."""


@dataclass
class World:
    """A scheduler, how its jobs are written, begin and end, and a job that it refuses, with the words of the refusal.

    `script` makes the script of a job, with `is_bad` a refused one. Without `has_arrays` arrays are refused.
    """

    scheduler: Scheduler
    folder: Path
    starts: Callable[[JobHandle], None]
    ends: Callable[[JobHandle, int], None]
    script: Callable[..., str]
    refusal: str
    will_refuse: Callable[[], None] = no_preparation
    has_arrays: bool = True
    marker: str = field(default_factory=lambda: os.urandom(4).hex())  # a cluster remembers the jobs of other tests

    def request(self, share: str, marker: str = "", *, is_bad: bool = False, **others: Any) -> JobRequest:
        marker = marker or self.marker
        job = JobText(
            marker=marker,
            share=share,
            nodes=(),
            command=("sh", "-c", WAITS, str(self.folder / f"end-{share}-")),
            output=self.folder / f"{share}.out",
            tasks=tuple(str(number) for number in range(others.get("tasks", 0))),
        )
        script = self.script(job, is_bad=is_bad)
        return JobRequest(name=job_name(marker, share), script=script, path=self.folder / f"{share}.sh", **others)

    def state(self, handle: JobHandle) -> JobState:
        return self.scheduler.observe([handle])[handle.id]

    def becomes(self, handle: JobHandle, phase: str) -> JobState:
        return until(lambda: (said := self.state(handle)).phase == phase and said, f"{handle} becomes {phase}")


def for_slurm(job: JobText, *, is_bad: bool) -> str:
    slurm = replace(SMALL, partition="nope") if is_bad else SMALL
    return batch_script(slurm, job)


def for_the_queue(job: JobText, *, is_bad: bool) -> str:
    return "" if is_bad else QUEUE.script(NO_SYSTEM, job)


def is_there(handle: JobHandle) -> None:
    """Such a job begins by itself."""


def write_code(folder: Path, handle: JobHandle, code: int) -> None:
    """End a real job, which waits for its exit code."""
    task = handle.id.partition("_")[2]
    draft = folder / "draft"  # renamed: a job that finds the file finds all of it
    draft.write_text(str(code))
    draft.rename(folder / f"end-{handle.name.rpartition('-')[2]}-{task}")


def in_memory(folder: Path) -> World:
    scheduler = FakeScheduler()

    def starts(handle: JobHandle) -> None:
        scheduler.states[handle.id] = JobState(phase="running", state="RUNNING", nodes=("n1",))

    def ends(handle: JobHandle, code: int) -> None:
        result: JobResult = "failed" if code else "completed"
        scheduler.states[handle.id] = JobState(phase="ended", result=result, state=result.upper(), nodes=("n1",))

    return World(scheduler, folder, starts, ends, for_slurm, REFUSED_BY_SLURM)


def of_local_processes(folder: Path) -> World:
    jobs = folder / "jobs"
    jobs.mkdir()
    return World(
        Queue(jobs), folder, is_there, partial(write_code, folder), for_the_queue, "an empty script", has_arrays=False
    )


def by_fake_commands(folder: Path, **settings: Any) -> World:
    fake = FakeSlurm(folder, **settings)

    def starts(handle: JobHandle) -> None:
        fake.set(handle.id, state="RUNNING", nodes="n1", reason="")

    def ends(handle: JobHandle, code: int) -> None:
        fake.set(handle.id, state="FAILED" if code else "COMPLETED", exit=code)

    def will_refuse() -> None:  # the fake commands have no partitions, and are told what to say
        fake.next("sbatch")
        fake.next("sbatch", error="sbatch: error: Batch job submission failed: Invalid partition name specified\n")

    return World(SlurmScheduler(fake.environ), folder, starts, ends, for_slurm, REFUSED_BY_SLURM, will_refuse)


def on_a_cluster(folder: Path) -> World:
    scheduler = SlurmScheduler(os.environ)
    return World(scheduler, folder, is_there, partial(write_code, folder), for_slurm, REFUSED_BY_SLURM)


@pytest.fixture(params=["memory", "processes", "text", "accounting", "cluster"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    settings: dict[str, dict[str, Any]] = {
        "text": {},
        "accounting": {"accounting": True},
    }
    match request.param:
        case "memory":
            yield in_memory(tmp_path)
        case "processes":
            yield (world := of_local_processes(tmp_path))
            world.scheduler.cancel([JobHandle(id=job.name, name="") for job in (tmp_path / "jobs").iterdir()])
        case "cluster":
            request.getfixturevalue("slurm")
            yield on_a_cluster(tmp_path)
        case _:
            yield by_fake_commands(tmp_path, **settings[request.param])


@pytest.fixture
def arrays(world: World) -> World:
    """The same world, if it has arrays."""
    if not world.has_arrays:
        with pytest.raises(UsageError, match="no arrays"):
            world.scheduler.submit([world.request("s1", tasks=2)])
        assert world.scheduler.adopt(world.marker) == []
        pytest.skip("this scheduler refuses arrays")
    return world


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


def test_each_task_of_an_array_is_a_job(arrays: World) -> None:
    handles = arrays.scheduler.submit([arrays.request("s1", tasks=3, at_once=2)])
    assert [handle.id.partition("_")[2] for handle in handles] == ["0", "1", "2"]
    assert {arrays.state(handle).phase for handle in handles} <= {"pending", "running"}
    for handle in handles[:2]:
        arrays.starts(handle)
        arrays.becomes(handle, "running")
    assert arrays.state(handles[2]).phase == "pending"
    arrays.ends(handles[1], 4)
    assert arrays.becomes(handles[1], "ended").result == "failed"
    assert arrays.state(handles[0]).phase == "running"
    arrays.starts(handles[2])
    arrays.becomes(handles[2], "running")
    arrays.scheduler.cancel([handles[0]])
    assert arrays.becomes(handles[0], "ended").result == "cancelled"
    assert arrays.state(handles[2]).phase == "running"


@pytest.mark.parametrize("cancelled", [(2,), (1, 2), (0, 1, 2)], ids=["one", "two", "all"])
def test_a_task_of_an_array_that_waits_is_cancelled(arrays: World, cancelled: tuple[int, ...]) -> None:
    handles = arrays.scheduler.submit([arrays.request("s1", tasks=3, at_once=1)])
    arrays.starts(handles[0])
    arrays.becomes(handles[0], "running")
    arrays.scheduler.cancel([handles[number] for number in cancelled])
    for number in cancelled:
        assert arrays.becomes(handles[number], "ended").result == "cancelled"
    kept = [handle for number, handle in enumerate(handles) if number not in cancelled]
    assert {arrays.state(handle).phase for handle in kept} <= {"pending", "running"}


def test_the_jobs_of_a_run_are_found_again_by_its_marker(world: World) -> None:
    second = world.request("s2", tasks=2 if world.has_arrays else 0)
    handles = world.scheduler.submit([world.request("s1"), second])
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


def test_a_refused_job_is_an_error_with_the_schedulers_own_reason(world: World) -> None:
    world.will_refuse()
    requests = [world.request("s1"), world.request("s2", is_bad=True)]
    with pytest.raises(UsageError, match=rf"^job mb-\w+-s2: {world.refusal}$"):
        world.scheduler.submit(requests)
    assert [handle.name for handle in world.scheduler.adopt(world.marker)] == [job_name(world.marker, "s1")]
