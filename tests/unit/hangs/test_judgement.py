"""What evidence is taken for, held against values."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from milabench.hangs.judgement import distinct_stacks, hang_sentence
from milabench.records.hang_evidence import JobMember, NodeEvidence

C10D = "site-packages/torch/distributed/distributed_c10d.py"
WRAPPER = ["_exception_logger.<locals>.wrapper", "site-packages/torch/distributed/c10d_logger.py", 83]
MAIN = ["main", "job/train.py", 40]


def collective(name: str = "all_reduce", line: int = 18) -> list[list[Any]]:
    return [[name, C10D, 3252], WRAPPER, ["train", "job/train.py", line], MAIN]


LOADING = [["read", "python3.11/socket.py", 5], ["load_batch", "job/data.py", 88], MAIN]
WAITING = collective()


def process(rank: int | None, frames: list[list[Any]] | None = None, **more: Any) -> dict[str, Any]:
    samples = [[{"name": "MainThread", "frames": frames}]] * 2 if frames else []
    local = {} if rank is None else {"rank": rank, "local_rank": rank % 2, "world_size": 4}
    return {"pid": 100 + (rank or 0), "name": "python", "state": "S", "samples": samples, **local, **more}


def member(node: str, *processes: dict[str, Any], steps: int | None = 411, **more: Any) -> JobMember:
    ranks = [each["rank"] for each in processes if "rank" in each]
    progress = [] if steps is None else [[rank, steps, 20.0] for rank in ranks]
    evidence = msgspec.convert({"processes": list(processes), "progress": progress}, NodeEvidence)
    return JobMember(step=f"job.{node}", node=node, devices=(4, 5), evidence=evidence, **more)


def finding(*changed: dict[str, Any], **more: Any) -> str:
    """What is said of four ranks on two nodes that wait in all_reduce, but for those that are given."""
    by_rank = {rank: process(rank, WAITING) for rank in range(4)} | {each["rank"]: each for each in changed}
    first, second = [by_rank[0], by_rank[1]], [by_rank[2], by_rank[3]]
    return hang_sentence([member("node1", *first, **more), member("node2", *second, **more)])


def test_the_rank_that_is_not_in_the_collective_is_named_with_its_place() -> None:
    assert finding(process(3, LOADING)) == (
        "3 of 4 ranks wait in all_reduce (step 412); rank 3 (node2, device 5) is in load_batch at data.py:88"
    )


@pytest.mark.parametrize(
    ("state", "more", "word"),
    [
        ("Z", {}, "has ended"),
        ("X", {}, "has ended"),
        ("T", {}, "is stopped"),
        ("D", {"wchan": "nfs_wait"}, "is in state D (nfs_wait)"),
    ],
)
def test_a_rank_that_cannot_go_on_outranks_one_that_is_elsewhere(state: str, more: dict[str, str], word: str) -> None:
    said = finding(process(2, LOADING, state=state, **more), process(1, LOADING))
    assert said == f"2 of 4 ranks wait in all_reduce (step 412); rank 2 (node2, device 4) {word}"


def test_a_rank_without_a_process_has_left_the_node_where_it_was() -> None:
    members = [member("node1", process(0, WAITING)), member("node2", process(2, WAITING), process(3, WAITING))]
    assert hang_sentence(members).endswith("; rank 1 (node1, device 5) has left the job")


def test_the_ranks_of_a_lost_node_have_left() -> None:
    members = [
        member("node1", process(0, WAITING), process(1, WAITING)),
        JobMember(step="job.node2", node="node2", devices=(4, 5), is_lost=True),
    ]
    assert hang_sentence(members) == (
        "2 of 4 ranks wait in all_reduce (step 412); ranks 2, 3 (node2 is lost) have left the job"
    )


def test_collectives_that_do_not_match_say_which_rank_called_what() -> None:
    assert finding(process(1, collective("all_gather", 20))) == (
        "collectives do not match: rank 1 (node1, device 5) waits in all_gather at train.py:20; "
        "ranks 0, 2, 3 wait in all_reduce at train.py:18"
    )


def test_the_same_collective_from_another_line_is_named() -> None:
    said = finding(process(1, collective(line=30)))
    assert said.startswith("rank 1 (node1, device 5) waits in all_reduce at train.py:30; ranks 0, 2, 3 wait")


def test_a_collective_of_objects_is_called_as_the_program_calls_it() -> None:
    inner = [["all_gather", C10D, 4000], WRAPPER, ["all_gather_object", C10D, 2900], *WAITING[1:]]
    assert "wait in all_gather_object" in finding(
        process(0, inner), process(1, inner), process(2, inner), process(3, LOADING)
    )


def test_a_rank_with_fewer_steps_is_named_where_all_are_in_one_place() -> None:
    first = member("node1", process(0, WAITING), process(1, WAITING))
    behind = member("node2", process(2, WAITING), steps=410)
    last = member("node3", process(3, WAITING))
    assert "rank 2 (node2, device 4) has done 410 steps, the others more" in hang_sentence([first, behind, last])


def test_where_all_wait_in_one_place_that_is_said() -> None:
    assert finding() == "all 4 ranks wait in all_reduce (step 412)"


def test_a_collective_that_the_flight_recorder_has_under_way_is_waited_for() -> None:
    under_way = {"collective": {"name": "nccl:all_reduce", "number": 412, "state": "started"}}
    done = {"collective": {"name": "nccl:all_reduce", "number": 411, "state": "completed"}}
    synchronize = [["synchronize", "site-packages/torch/cuda/__init__.py", 5], MAIN]
    ranks = [process(rank, synchronize, **under_way) for rank in range(3)]
    said = finding(*ranks, process(3, LOADING, **done))
    assert said == "3 of 4 ranks wait in all_reduce (step 412); rank 3 (node2, device 5) is in load_batch at data.py:88"
    assert finding(process(3, None, **under_way)) == "all 4 ranks wait in all_reduce (step 412)"


def test_without_observations_there_is_no_step() -> None:
    assert finding(process(3, LOADING), steps=None).startswith("3 of 4 ranks wait in all_reduce; rank 3")


def test_without_collectives_those_are_named_that_are_not_where_most_are() -> None:
    busy = [["compute", "job/model.py", 7], MAIN]
    ranks = [process(rank, busy) for rank in range(3)]
    assert finding(*ranks, process(3, LOADING)).startswith(
        "rank 3 (node2, device 5) is in load_batch at data.py:88; ranks"
    )


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"wchan": "pipe_write"}, "is in load_batch at data.py:88 and writes to a full pipe"),
        ({"cpu_s": 0.99}, "is in load_batch at data.py:88 and computes"),
    ],
)
def test_what_is_known_besides_the_place_is_said(more: dict[str, Any], words: str) -> None:
    assert finding(process(3, LOADING, **more)).endswith(words)


def test_a_rank_whose_stack_is_not_known_is_where_the_kernel_says() -> None:
    assert finding(process(3, None, wchan="futex_do_wait")).endswith(
        "rank 3 (node2, device 5) waits in the kernel (futex_do_wait)"
    )


def test_a_program_without_ranks_is_named_by_its_process() -> None:
    shell = {"pid": 1, "name": "sh", "state": "S"}
    program, loader = process(None, LOADING, pid=7, parent=1), process(None, WAITING, pid=8, parent=7)
    assert hang_sentence([member("local", shell, loader, program)]) == "python (pid 7) is in load_batch at data.py:88"
    stuck = {**loader, "state": "D"}
    assert hang_sentence([member("local", shell, program, stuck)]) == "python (pid 8) is in state D"


def test_a_node_that_could_not_be_looked_at_has_lost_no_rank() -> None:
    seen = member("node1", process(0, WAITING), process(1, WAITING))
    said = hang_sentence([seen, member("node2")])
    assert said == "all 2 ranks wait in all_reduce (step 412); node2 could not be looked at in time"


def test_without_evidence_nothing_is_said() -> None:
    assert hang_sentence([JobMember(step="a", node="local")]) == ""


def test_ranks_with_equal_stacks_are_listed_together() -> None:
    members = [member("node1", process(0, WAITING), process(1, LOADING)), member("node2", process(2, WAITING))]
    groups = [([rank.number for rank in ranks], frames[:1]) for ranks, frames in distinct_stacks(members)]
    assert groups == [([0, 2], [tuple(MAIN)]), ([1], [tuple(MAIN)]), ([3], [])]
