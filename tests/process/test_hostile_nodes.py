"""Nodes that send something else than our agent does: each ends in one sentence, and holds, fills or crashes nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import pytest

from milabench.doctor import links
from milabench.errors import Unreachable
from milabench.execute import agent_client
from milabench.execute.agent_client import AgentNode, list_marked
from milabench.execute.api import Frame, Outcome, Progress, Started, StepRequest
from milabench.execute.command_channel import LINE_BYTES, CommandChannel, end_of, start_command
from milabench.execute.file_sync import RemoteFiles, storages
from milabench.execute.remote_host import remote_node
from milabench.plan.model import Step
from tests.hostile_agent import Change, Message, dropping, hostile_machine, replacing, staying
from tests.processes import CEILING_S


def request(*argv: str, name: str = "s", timeout_s: float | None = None) -> StepRequest:
    step = Step(id=name, bench="b", phase="run", argv=argv, needs_data=False, node="h0", timeout_s=timeout_s)
    return StepRequest(step=step, grace_s=0.5)


MachineNode = Callable[[Change], contextlib.AbstractAsyncContextManager[AgentNode]]


@pytest.fixture
def machine_node(tmp_path: Path) -> MachineNode:
    """Makes a node of a machine whose answers a change alters."""

    @contextlib.asynccontextmanager
    async def make(change: Change) -> AsyncIterator[AgentNode]:
        machine, marker = hostile_machine(change), f"hostile-{time.monotonic_ns()}"
        try:
            async with remote_node(machine, marker, grace_s=0.5, locks=tmp_path / "locks") as node:
                yield node
        finally:
            await machine.close()

    return make


@pytest.fixture
def outcome_of(machine_node: MachineNode) -> Callable[..., Outcome]:
    """Runs a step on a machine whose answers a change alters, and returns its outcome."""

    def outcome(
        change: Change, *argv: str, seen: list[Progress] | None = None, timeout_s: float | None = None
    ) -> Outcome:
        async def work() -> Outcome:
            async with machine_node(change) as node:
                return await node.run(
                    request(*(argv or ("true",)), timeout_s=timeout_s), (seen if seen is not None else []).append
                )

        return asyncio.run(work())

    return outcome


def test_a_node_whose_answers_are_not_changed_runs_its_step(outcome_of: Callable[..., Outcome]) -> None:
    assert outcome_of(lambda message: [message.whole]) == Outcome("passed")


NOT_AN_END = [
    (b"[" * 100_000, "Expected `object`, got `array`"),
    (b'{"detail": ' + b"[" * 100_000, "`$.detail`"),
    (b'{"x": ' + b"[" * 100_000, "recursion" if sys.version_info < (3, 14) else "Stack overflow"),
    (b"[]", "Expected `object`, got `array`"),
    (b"{}", "`outcome`"),
    (b'{"outcome": "passed", "why": null, "detail": "", "reasons": 7}', "`$.reasons`"),
    (b'{"outcome": "won", "why": null, "detail": "", "reasons": []}', "`$.outcome`"),
    (b'{"outcome": "failed", "why": "bored", "detail": "", "reasons": []}', "`$.why`"),
    (b"", "ended"),
]


@pytest.mark.parametrize(("payload", "field"), NOT_AN_END)
def test_an_end_that_cannot_be_read_ends_its_node_in_one_sentence(
    outcome_of: Callable[..., Outcome], payload: bytes, field: str
) -> None:
    outcome = outcome_of(replacing("ended", payload))
    assert (outcome.name, outcome.why) == ("failed", "lost-node")
    assert outcome.detail.startswith("its message 'ended' cannot be read: ")
    assert field in outcome.detail
    assert "\n" not in outcome.detail


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ("hello", b"[]"),
        ("hello", b'{"pid": "x"}'),
        ("hello", b'{"oom_kills": 1e400}'),
        ("reply", b"7"),
        ("reply", b'{"id": 1, "ok": true, "pid": -3}'),
        ("reply", b'{"id": 1, "ok": [], "pid": 3}'),
    ],
)
def test_no_shape_of_hello_or_reply_crashes_anything(
    outcome_of: Callable[..., Outcome], kind: str, payload: bytes
) -> None:
    outcome = outcome_of(replacing(kind, payload))
    assert (outcome.name, outcome.why) == ("failed", "lost-node")
    assert f"its message '{kind}' cannot be read: " in outcome.detail


@pytest.mark.parametrize(
    "payload",
    [
        b"[]",
        b"{}",
        b'{"id": "x", "holders": []}',
        b'{"id": 1, "holders": {}}',
        b'{"id": 1, "holders": [7]}',
        b'{"id": 1, "holders": ' + b"[" * 100_000,
    ],
)
def test_no_shape_of_waiting_crashes_anything(outcome_of: Callable[..., Outcome], payload: bytes) -> None:
    outcome = outcome_of(replacing("reply", payload, k="waiting"))
    assert (outcome.name, outcome.why) == ("failed", "lost-node")
    assert "its message 'waiting' cannot be read: " in outcome.detail
    assert "\n" not in outcome.detail


@pytest.mark.parametrize(
    ("header", "says"),
    [
        ({"k": "ended", "n": 100_000_000_000}, "`int` <= "),
        ({"k": "ended", "n": -1}, "`int` >= 0"),
        ({"k": "ended", "n": 1 << 25}, "it has 33554432 bytes"),
        ({"k": "rec", "n": 3, "step": "s"}, "ends within a record"),
    ],
)
def test_a_frame_is_bounded_and_of_its_shape_before_it_is_read(
    outcome_of: Callable[..., Outcome], header: dict[str, object], says: str
) -> None:
    outcome = outcome_of(replacing("ended", b"abc", **header))
    assert outcome.why == "lost-node"
    assert says in outcome.detail


def test_garbage_is_refused_at_once_also_of_a_node_that_stays(outcome_of: Callable[..., Outcome]) -> None:
    for words in (b"garbage\n", b"\xff" * 100_000, b"NaN\n", b"{}\n"):
        outcome = outcome_of(staying("hello", words))
        assert outcome.why == "lost-node"
        assert "the agent did not start: " in outcome.detail
        assert "cannot be read" in outcome.detail or "a line from its agent has more" in outcome.detail


def test_a_record_longer_than_any_pipe_arrives_whole(outcome_of: Callable[..., Outcome]) -> None:
    line = json.dumps({"event": "line", "data": "x" * 1_000_000, "pipe": "stdout", "t": 1.0}).encode() + b"\n"
    seen: list[Progress] = []
    outcome = outcome_of(replacing("line", b"\n" + line * 3 + b"\n"), "echo", "x", seen=seen)
    assert outcome == Outcome("passed")
    assert (
        b"".join(one.payload for one in seen if isinstance(one, Frame) and one.kind == "line")
        == b"\n" + line * 3 + b"\n"
    )


def test_the_end_of_a_step_that_never_comes_is_a_lost_node(
    outcome_of: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_client, "END_S", 0.2)
    outcome = outcome_of(dropping("ended"), timeout_s=0.1)
    assert (outcome.name, outcome.why) == ("failed", "lost-node")
    assert outcome.detail.startswith("the end of s did not come within 0.8 s of its start")


def test_a_step_that_is_asked_to_end_and_never_says_so_is_a_lost_node(
    machine_node: MachineNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_client, "END_S", 0.2)

    async def work() -> Outcome:
        begun = asyncio.Event()
        async with machine_node(dropping("ended")) as node:
            running = asyncio.create_task(
                node.run(request("sleep", "600"), lambda event: begun.set() if isinstance(event, Started) else None)
            )
            await begun.wait()
            await node.end("s", grace_s=0.0)
            return await running

    outcome = asyncio.run(work())
    assert outcome.why == "lost-node"
    assert "of the request to end it" in outcome.detail


@pytest.mark.parametrize("at_once", [False, True])
def test_after_a_signal_a_node_that_says_nothing_more_is_left_to_cleanup(
    machine_node: MachineNode, monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    monkeypatch.setattr(agent_client, "AT_ONCE_S" if at_once else "INTERRUPT_S", 0.1)

    async def work() -> Outcome:
        async with machine_node(dropping("ended", "reply")) as node:
            running = asyncio.create_task(node.run(request("sleep", "600"), lambda _: None))
            await node.open()
            node.give_up(at_once=at_once)
            return await running

    outcome = asyncio.run(work())
    assert outcome.name == "cancelled"
    assert "`milabench gc processes` ends leftover processes" in outcome.detail


def test_a_newline_in_a_text_of_a_node_makes_no_line(outcome_of: Callable[..., Outcome]) -> None:
    end = {"outcome": "failed", "why": "exit", "detail": "a\nerror: b\x1b[2J", "reasons": []}
    assert outcome_of(replacing("ended", json.dumps(end).encode())).detail == "a␊error: b␛[2J"


ANSWERS = [
    (b"[]", "message 'files'"),
    (b'{"ok": true, "facts": {"cpu": [1]}}', "`$.facts.cpu`"),
    (b'{"ok": true, "facts": {"time": "x"}}', "`$.facts.time`"),
    (b'{"ok": true, "facts": {"time": NaN}}', "`$.facts.time`"),
    (b'{"ok": true, "facts": {"time": 1e300}}', "`$.facts.time`"),
    (b'{"ok": true, "facts": {"devices": "abc"}}', "`$.facts.devices`"),
    (b'{"ok": true, "facts": {"devices": [{"arch": "cuda"}]}}', "`index`"),
    (b'{"ok": true, "facts": {"devices": [' + b",".join([b"{}"] * 20_000) + b"]}}", "`$.facts.devices`"),
    (b'{"ok": true, "facts": {"disk": 7}}', "`$.facts.disk`"),
    (b'{"ok": true, "facts": {"cpu": {"count": 1000000000}}}', "`int` <= 65536"),
    (b'{"ok": true, "facts": {"devices": [{"x": ' + b"[" * 50 + b"]" * 50 + b"}]}}", "nested deeper"),
    (b"x" * 3_000_000 + b"\n", "a line without end"),
    (b'{"ok": false, "error": "a\\nerror: b"}', "h0: a␊error: b"),
]


@pytest.mark.parametrize(("answer", "says"), ANSWERS)
def test_facts_that_are_none_are_one_sentence_with_node_message_and_field(answer: bytes, says: str) -> None:
    async def work() -> None:
        machine = hostile_machine(staying("files", answer + b"\n" * (not answer.endswith(b"\n"))))
        files = await RemoteFiles.open(machine)
        try:
            await files.facts("/")
        finally:
            files.close()
            await machine.close()

    with pytest.raises(Unreachable) as raised:
        asyncio.run(work())
    assert str(raised.value).startswith("h0: ")
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "answer", [b'{"left": [7]}\n', b'{"left": 7}\n', b"garbage\n", b'{"left": [{"pid": "1", "command": "x"}]}\n']
)
def test_what_a_run_has_left_is_asked_for_once_and_garbage_is_refused_at_once(answer: bytes) -> None:
    async def work() -> None:
        machine = hostile_machine(staying("left", answer))
        try:
            await list_marked(machine.ask, "nothing")
        finally:
            await machine.close()

    with pytest.raises(Unreachable, match=r"^h0: its message 'left' cannot be read: "):
        asyncio.run(work())


def test_a_folder_is_sent_to_no_node_that_asks_for_what_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "file").write_text("x")

    async def work(need: bytes) -> None:
        machine = hostile_machine(staying("files", b'{"ok": true, "need": %s}\n' % need))
        files = await RemoteFiles.open(machine)
        try:
            await files.send(tmp_path / "from", str(tmp_path / "to"))
        finally:
            files.close()
            await machine.close()

    for need, says in (
        (b"[[7, 0]]", "asks for a file that is not there"),
        (b"[[0, 9]]", "asks for a file"),
        (b"[7]", "need"),
    ):
        with pytest.raises(Unreachable, match=says):
            asyncio.run(work(need))


def test_a_node_that_sees_not_even_its_own_file_is_told(tmp_path: Path) -> None:
    def blind(message: Message) -> list[bytes]:
        return [b'{"ok": true, "found": [false, false]}\n' if b"found" in message.header else message.whole]

    async def work() -> tuple[dict[str, str], dict[str, str]]:
        machine = hostile_machine(blind)
        files = await RemoteFiles.open(machine)
        try:
            return await storages({"h0": files}, {"h0": str(tmp_path / "there")}, tmp_path / "here")
        finally:
            files.close()
            await machine.close()

    shared, why = asyncio.run(work())
    assert shared == {}
    assert why["h0"].startswith("h0: does not see the file that it has made")


@pytest.mark.parametrize("wait", [False, True])
def test_two_nodes_that_are_one_machine_do_not_wait_for_each_other(tmp_path: Path, wait: bool) -> None:
    async def work() -> None:
        machines = [hostile_machine(lambda message: [message.whole], name) for name in ("h0", "h1")]
        nodes = [remote_node(machine, "hostile-twice", locks=tmp_path / "locks") for machine in machines]
        try:
            assert await nodes[0].lock(["cpu-x"], wait=wait, emit=lambda _: None) == ()
            await nodes[1].lock(["cpu-x"], wait=wait, emit=lambda _: None)
        finally:
            await asyncio.gather(*(node.close() for node in nodes))
            await asyncio.gather(*(machine.close() for machine in machines))

    with pytest.raises(
        Unreachable, match=r"^h1: device cpu-x is held for h0 by this run: both nodes are the same machine"
    ):
        asyncio.run(work())


@pytest.mark.parametrize(
    "last",
    [[], 7, {"spans": [[1, 2]]}, {"spans": [[1, 1e300, 3, False]]}, {"spans": 7}, {"spans": [[1, 2, float("nan"), 0]]}],
)
def test_sums_of_another_shape_are_not_shown_and_end_nothing(outcome_of: Callable[..., Outcome], last: object) -> None:
    seen: list[Progress] = []
    assert outcome_of(replacing("line", b"x\n", k="obs", last=last), "echo", "x", seen=seen) == Outcome("passed")
    assert [one.last for one in seen if isinstance(one, Frame) and one.kind == "obs"] == [{}]


def test_sums_as_an_agent_makes_them_are_shown(outcome_of: Callable[..., Outcome]) -> None:
    sums = {"task": "train", "units": None, "rank": 0, "spans": [[-1, 5, 3.0, 0]]}
    seen: list[Progress] = []
    outcome_of(replacing("line", b"x\n", k="obs", last=sums), "echo", "x", seen=seen)
    (shown,) = [one.last for one in seen if isinstance(one, Frame) and one.kind == "obs"]
    assert shown == {**sums, "spans": [(-1, 5, 3.0, 0)]}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (staying("link"), "no answer to 'link' within 0.3 s"),
        (staying("link", b'{"port": 0}\n'), "its message 'link' cannot be read: Expected `int` >= 1 - at `$.port`"),
    ],
)
def test_a_link_whose_far_end_says_no_port_is_told_soon(
    monkeypatch: pytest.MonkeyPatch, change: Change, says: str
) -> None:
    monkeypatch.setattr(links, "LINK_ANSWER_S", 0.3)

    async def work() -> Mapping[str, Mapping[str, object]]:
        machines = [hostile_machine(change, name) for name in ("h0", "h1")]
        try:
            return await links.link_speeds(machines)
        finally:
            await asyncio.gather(*(machine.close() for machine in machines))

    assert asyncio.run(work()) == {"h0 -> h1": {"error": f"h1: {says}"}}


def test_of_the_standard_error_of_a_node_only_the_end_is_kept() -> None:
    async def work() -> tuple[str, str]:
        process = await start_command(
            ["/bin/sh", "-c", "head -c 20000000 /dev/zero >&2; echo >&2; echo last >&2; exit 3"]
        )
        channel = CommandChannel(process)
        ended = await channel.describe_end()
        assert len(channel._words) <= 4096
        return ended, channel.last_stderr_line()

    assert asyncio.run(work()) == ("the agent ended with exit code 3", "last")


def test_a_command_is_ended_whose_output_nobody_reads() -> None:
    async def work() -> bool:
        process = await start_command(["yes"])
        reader = CommandChannel(process).reader
        while len(reader._buffer) <= LINE_BYTES:  # type: ignore[attr-defined]  # beyond twice as much nothing is read
            await asyncio.sleep(0)
        process.kill()
        has_ended = await end_of(process, CEILING_S)
        await reader.read()
        await process.wait()
        return has_ended

    assert asyncio.run(work())


def test_a_thousand_nodes_at_their_bounds_fit_into_600_mb() -> None:
    """Each sends the longest record that there may be, and none its end."""
    program = Path(__file__).parents[1] / "programs" / "thousand_nodes.py"
    done = subprocess.run([sys.executable, program, "1000"], stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["lost"] == 0
    assert 300 < found["held"] < found["grown"] < 500  # MiB; with the control plane itself 600 MB
