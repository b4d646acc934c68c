"""The agent with a monitor beside a group, and groups whose members start and stop together."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

MONITOR = Path(__file__).resolve().parents[1] / "programs" / "monitor.py"
READY, COMPLETE = '{"ready": true}', '{"complete": true}'


def watched(*mode: str, devices: tuple[int, ...] = ()) -> dict[str, Any]:
    """The part of a start that asks for a monitor."""
    argv = [sys.executable, "-S", str(MONITOR), *mode]
    return {"monitor": {"argv": argv, "about": {"devices": list(devices), "uuids": []}}}


def told(agent: Any, key: str, step: str = "s") -> list[Any]:
    return [data[key] for data in agent.data("data", step) if key in data]


def until_watched(agent: Any, step: str = "s") -> int:
    """Waits until the monitor has spoken; its pid."""
    return agent.read_until(lambda: told(agent, "monitor_pid", step))[0]


# ------------------------------------------------------------------------------------- monitor


def test_one_monitor_watches_the_whole_group_and_tells_each_step_its_own(agent: Any) -> None:
    group = {"group": "g", "group_size": 2}
    first = agent.start("sleep", "600", step="a", **watched(devices=(0,)), **group)
    second = agent.start("sleep", "600", step="b", **watched(devices=(1,)), **group)
    assert until_watched(agent, "a") == until_watched(agent, "b")
    for step, started, device in (("a", first, 0), ("b", second, 1)):
        (sample,) = [data for data in agent.data("data", step) if data.get("metric") == "watched"]
        assert (sample["value"], sample["devices"], sample["pid"]) == (2, [device], started["pid"])


def test_what_the_monitor_says_at_the_end_is_recorded_before_the_end(agent: Any) -> None:
    pid = agent.start("sleep", "600", **watched())["pid"]
    until_watched(agent)
    os.kill(pid, signal.SIGTERM)
    agent.end_of()
    assert told(agent, "last") == [True]
    assert [record["event"] for record in agent.events()][-1] == "end"
    assert agent.data("message") == []


def test_a_monitor_that_dies_is_a_message_not_a_failure(agent: Any) -> None:
    leader = agent.start("sleep", "600", **watched("die"))["pid"]
    (said,) = agent.read_until(lambda: agent.data("message"))
    assert said["message"] == ("the monitor ended with exit code 1, so devices and host are no longer read: no library")
    os.kill(leader, signal.SIGKILL)
    assert agent.end_of()["why"] == "signal"


def test_a_monitor_that_cannot_be_started_is_a_message_not_a_failure(agent: Any) -> None:
    said = agent.run("true", monitor={"argv": ["/nonexistent/python"], "about": {}})
    assert said["outcome"] == "passed"
    (message,) = agent.data("message")
    assert message["message"].startswith("no monitor: cannot start /nonexistent/python")


def test_a_monitor_that_does_not_let_go_keeps_nothing_alive(agent: Any, wait_until: Any, gone: Any) -> None:
    leader = agent.start("sleep", "600", **watched("deaf"))["pid"]
    pid = until_watched(agent)
    os.kill(leader, signal.SIGKILL)
    assert agent.end_of()["why"] == "signal"
    assert agent.data("message") == []
    wait_until(lambda: gone(pid), "the deaf monitor is ended")


def test_readings_are_no_sign_of_life(agent: Any) -> None:
    said = agent.run("sleep", "600", max_silence_s=1.0, **watched("chatty"))
    assert (said["outcome"], said["why"]) == ("failed", "silent")
    assert len(told(agent, "gpudata")) > 3


def test_readings_are_no_measurement_of_the_benchmark(agent: Any) -> None:
    agent.start("sh", "-c", "read x < /dev/null; sleep 1", needs_data=True, **watched())
    until_watched(agent)
    assert agent.end_of()["why"] == "no-data"


def test_a_step_too_short_for_a_monitor_ends_at_once(agent: Any) -> None:
    assert agent.run("true", **watched())["outcome"] == "passed"
    assert agent.run("true", step="t", **watched())["outcome"] == "passed"


# ------------------------------------------------------------------------------------- together


def test_nobody_is_told_to_stop_before_all_have_their_observations(agent: Any) -> None:
    group = {"group": "g", "group_size": 2}
    words = ["say", READY, "await", "say", COMPLETE, "print", "done", "await"]
    agent.program("sink.py", *words, step="a", **group)
    agent.program("sink.py", "say", READY, "await", "await", step="b", **group)
    agent.read_until(lambda: "done" in agent.text(step="a"))
    agent.program("sink.py", "sleep", "0.3", step="c")
    agent.end_of("c")
    assert "stop" not in agent.text(step="a") + agent.text(step="b")
    agent.ask("end", step="b", grace_s=0)
    agent.end_of("a")
    assert '"stop"' in agent.text(step="a")


def test_all_are_told_to_stop_when_the_last_has_its_observations(agent: Any) -> None:
    group = {"group": "g", "group_size": 2}
    words = ["say", READY, "await", "say", COMPLETE, "await"]
    for step in ("a", "b"):
        agent.program("sink.py", *words, step=step, **group)
    for step in ("a", "b"):
        assert agent.end_of(step)["outcome"] == "passed"
        assert '{"stop": "all of the group have their observations"}' in agent.text(step=step)


def test_the_word_to_stop_is_in_the_ring(agent: Any) -> None:
    spec = '{"entries": [], "closed": 0}'
    words = ["ring", spec, "say", READY, "await", "say", COMPLETE, "await", "word", "96"]
    agent.program("sink.py", *words, step="a")
    agent.end_of("a")
    assert agent.text(step="a").splitlines()[-1] == "1"


def test_a_member_that_is_never_ready_fails_the_group_by_its_name(agent: Any) -> None:
    group = {"group": "g", "group_size": 2, "barrier_s": 0.3}
    agent.program("sink.py", "say", READY, "await", step="a", **group)
    agent.start("sleep", "600", step="b", **group)
    waited, late = agent.end_of("a"), agent.end_of("b")
    assert (late["why"], late["detail"]) == ("timeout", "not ready within 0.3 s of the first of its group")
    assert waited["why"] == "timeout"
    assert waited["detail"] == "waited at the start barrier for b, which was not ready within 0.3 s"


def test_a_timeout_at_the_barrier_names_who_was_waited_for(agent: Any) -> None:
    group = {"group": "g", "group_size": 2}
    agent.start("sleep", "600", step="b", **group)
    agent.program("sink.py", "say", READY, "await", step="a", timeout_s=1.0, **group)
    assert agent.end_of("a")["detail"] == "still running after 1 s, waiting at the start barrier for b"


def test_who_waits_at_the_barrier_is_not_called_silent(agent: Any) -> None:
    group = {"group": "g", "group_size": 2}
    agent.program("sink.py", "say", READY, "await", step="a", max_silence_s=0.3, **group)
    agent.program("sink.py", "sleep", "1", "say", READY, "await", step="b", **group)
    assert agent.end_of("a")["outcome"] == "passed"


def test_a_group_with_members_on_other_nodes_is_released_and_stopped_by_who_knows_them_all(agent: Any) -> None:
    group = {"group": "g", "group_size": 1, "is_spread": True}

    def has_said(kind: str) -> bool:
        return any(frame["k"] == kind and frame["step"] == "a" for frame in agent.frames)

    # It says nothing until the others are ready, and that is not silence.
    words = ["say", READY, "await", "say", COMPLETE, "await"]
    agent.program("sink.py", *words, step="a", max_silence_s=0.2, **group)
    agent.read_until(lambda: has_said("at-barrier"))
    agent.start("sleep", "0.5", step="clock", group="other", needs_data=False)
    agent.end_of("clock")
    assert not has_said("measured")
    assert agent.ask("release", group="g")["t"] > 0
    agent.read_until(lambda: has_said("measured"))
    agent.ask("stop", step="a", reason="all have measured")
    assert agent.end_of("a")["outcome"] == "passed"
    assert '{"stop": "all have measured"}' in agent.text(step="a")


def test_a_release_before_there_is_anybody_lets_nobody_go(agent: Any) -> None:
    assert agent.ask("release", group="g")["ok"]
    agent.program("sink.py", "say", READY, "await", step="a", timeout_s=0.5, group="g", is_spread=True)
    assert (
        agent.end_of("a")["detail"]
        == "still running after 0.5 s, waiting at the start barrier for steps on other nodes"
    )


def test_a_monitor_that_is_put_off_leaves_a_short_step_alone_and_watches_a_long_one(
    agent: Any, tmp_path: Path, wait_until: Any
) -> None:
    seen = tmp_path / "seen"
    watching = {"argv": ["sh", "-c", f"touch {seen}; exec cat"], "about": {}}
    assert agent.run("true", monitor={**watching, "after_s": 300.0})["outcome"] == "passed"
    agent.start("sleep", "300", step="long", monitor={**watching, "after_s": 0.1})
    wait_until(seen.exists)
    agent.ask("end", step="long")
    agent.end_of("long")


def test_what_runs_before_a_step_is_not_what_is_watched(agent: Any, tmp_path: Path) -> None:
    told = tmp_path / "told"
    monitor = {"argv": ["sh", "-c", f"cat > {told}.new; mv {told}.new {told}"], "about": {}}
    before = ["sh", "-c", f"sleep 0.3; test ! -e {told}"]
    agent.start("sh", "-c", f"until test -e {told}; do sleep 0.05; done; echo $$", prerun=before, monitor=monitor)
    assert agent.end_of()["outcome"] == "passed"
    assert json.loads(told.read_text())["steps"][0]["pid"] == int(agent.text())
