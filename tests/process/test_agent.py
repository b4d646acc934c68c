"""The agent, with real children: what it says of each way to end, what it forwards, what it leaves behind (nothing)."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from milabench.execute.agent.orphans import sweep_orphans

SECOND = 1_000_000_000


def entry(
    number: int, *, device_ns: int = -1, n: int = 8, steps: int = 1, flags: int = 0, wait_ns: int = -1
) -> list[int]:
    """A slot of a ring: half a second each, one second apart."""
    return [number, number * SECOND, SECOND // 2, n, device_ns, steps, flags, wait_ns]


def ended(outcome: str, why: str | None = None, detail: str = "", return_code: int | None = 0) -> dict[str, Any]:
    return {"outcome": outcome, "why": why, "detail": detail, "return_code": return_code}


def verdict(said: dict[str, Any]) -> dict[str, Any]:
    return {key: said[key] for key in ("outcome", "why", "detail", "return_code")}


# ------------------------------------------------------------------------------------- how a step ends


def test_a_command_that_exits_well_has_passed(agent: Any) -> None:
    assert verdict(agent.run("true")) == ended("passed")


def test_an_exit_code_is_a_failure_with_the_last_line_of_stderr(agent: Any) -> None:
    said = agent.run("sh", "-c", "echo first >&2; echo 'ValueError: no' >&2; echo out; exit 3")
    assert verdict(said) == ended("failed", "exit", "ValueError: no", 3)


def test_an_exit_code_without_a_word_is_told_as_such(agent: Any) -> None:
    assert verdict(agent.run("sh", "-c", "exit 4")) == ended(
        "failed", "exit", "exited with code 4, with an empty stderr", 4
    )


def test_an_error_record_says_more_than_stderr(agent: Any) -> None:
    error = {"event": "error", "data": {"type": "KeyError", "message": "'x'\nmore", "trace": ""}, "pipe": "data"}
    said = agent.run_program("sink.py", "say", json.dumps(error), "exit", "1")
    assert verdict(said) == ended("failed", "exit", "KeyError: 'x'", 1)


def test_a_signal_is_named(agent: Any) -> None:
    said = agent.run("sh", "-c", "kill -SEGV $$")
    assert verdict(said) == ended("failed", "signal", "ended by SIGSEGV", -signal.SIGSEGV)


def test_a_step_that_takes_too_long_is_ended(agent: Any) -> None:
    said = agent.run("sleep", "600", timeout_s=0.2)
    assert verdict(said) == ended("failed", "timeout", "still running after 0.2 s", -signal.SIGTERM)


def test_a_step_that_ignores_term_is_killed(agent: Any) -> None:
    said = agent.run("sh", "-c", "trap '' TERM; while :; do sleep 0.1; done", timeout_s=0.2, grace_s=0.2)
    assert verdict(said) == ended("failed", "timeout", "still running after 0.2 s", -signal.SIGKILL)


def test_a_stopped_step_is_ended_too(agent: Any) -> None:
    said = agent.run("sh", "-c", "kill -STOP $$", timeout_s=0.2)
    assert verdict(said) == ended("failed", "timeout", "still running after 0.2 s", -signal.SIGTERM)


def test_a_silent_step_is_ended(agent: Any) -> None:
    said = agent.run("sh", "-c", "echo once; sleep 600", max_silence_s=0.3)
    assert verdict(said) == ended("failed", "silent", "neither output nor a record for 0.3 s", -signal.SIGTERM)


def test_output_on_either_pipe_is_no_silence(agent: Any) -> None:
    said = agent.run("sh", "-c", "for i in 1 2 3 4 5 6 7 8; do echo $i >&2; sleep 0.1; done", max_silence_s=0.6)
    assert verdict(said) == ended("passed")


def test_a_step_that_is_ended_on_request_is_cancelled(agent: Any) -> None:
    agent.start("sleep", "600")
    assert agent.ask("end", step="s")["ok"]
    assert verdict(agent.end_of()) == ended("cancelled", None, "ended on request", -signal.SIGTERM)


def test_a_missing_command_is_a_fault_of_the_environment(agent: Any) -> None:
    said = agent.run("no-such-command-anywhere")
    detail = "cannot start no-such-command-anywhere: No such file or directory"
    assert verdict(said) == ended("failed", "environment", detail, None)
    assert [record["event"] for record in agent.events()] == ["start", "end"]


def test_a_missing_folder_is_a_fault_of_the_environment(agent: Any, tmp_path: Path) -> None:
    said = agent.run("true", cwd=str(tmp_path / "none"))
    detail = f"cannot start in {tmp_path}/none: there is no such folder"
    assert verdict(said) == ended("failed", "environment", detail, None)


def test_a_script_whose_interpreter_is_missing_is_a_fault_of_the_environment(agent: Any, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    detail = f"cannot start {script}: the interpreter in its first line is missing"
    assert verdict(agent.run(script)) == ended("failed", "environment", detail, None)


def test_folders_are_made_before_the_start(agent: Any, tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    assert agent.run("pwd", cwd=str(folder), makedirs=[str(folder)])["outcome"] == "passed"
    assert agent.text() == f"{folder}\n"


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("OutOfMemoryError", "CUDA out of memory."),
        ("RuntimeError", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        ("DistBackendError", "NCCL error in: NCCLUtils.cpp:94\nLast error:\nFailed to CUDA calloc async 608 bytes"),
    ],
)
def test_running_out_of_device_memory_is_told_apart(agent: Any, kind: str, message: str) -> None:
    error = {"event": "error", "data": {"type": kind, "message": message}, "pipe": "data"}
    said = agent.run_program("sink.py", "say", json.dumps(error), "exit", "1")
    assert verdict(said) == ended("failed", "out-of-memory", f"{kind}: {message}".splitlines()[0], 1)


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 4000 bytes.",
        "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 3.64 PiB",
    ],
)
def test_running_out_of_the_hosts_memory_is_told_apart(agent: Any, text: str) -> None:
    said = agent.run("sh", "-c", 'echo "$0" >&2; exit 1', text)
    assert verdict(said) == ended("failed", "out-of-memory", text, 1)


def test_a_full_disk_is_told_apart(agent: Any) -> None:
    text = "OSError: [Errno 28] No space left on device"
    said = agent.run("sh", "-c", f"echo '{text}' >&2; exit 1")
    assert verdict(said) == ended("failed", "no-space", text, 1)


@pytest.mark.parametrize("code", [0, 1])
def test_a_step_that_says_that_its_probe_failed_has_failed(agent: Any, code: int) -> None:
    fail = json.dumps({"fail": {"why": "probe", "detail": "the loader was never called"}})
    said = agent.run_program("sink.py", "say", fail, "exit", code)
    assert verdict(said) == ended("failed", "probe", "the loader was never called", code)


def test_an_exit_code_says_more_than_a_missing_observation(agent: Any) -> None:
    fail = json.dumps({"fail": {"why": "no-data", "detail": "nothing"}})
    said = agent.run_program("sink.py", "say", fail, "exit", "5")
    assert said["why"] == "exit"


def test_ending_well_without_an_observation_is_a_failure(agent: Any) -> None:
    said = agent.run_program("sink.py", "say", '{"event":"data","data":{"x":1},"pipe":"data"}', needs_data=True)
    assert verdict(said) == ended("failed", "no-data", "it ended well but made no observation")


def test_observations_that_are_all_no_numbers_are_a_failure(agent: Any) -> None:
    rates = ["null", "NaN", "-Infinity", "0.0", "0"]
    lines = [f'{{"event":"data","data":{{"task":"train","rate": {rate},"n": 1}},"pipe":"data"}}' for rate in rates]
    said = agent.run_program("sink.py", *(word for line in lines for word in ("say", line)), needs_data=False)
    assert verdict(said) == ended("failed", "invalid", "none of its 5 observations is a number")


@pytest.mark.parametrize("rate", ["0.5", "1e-3", "7"])
def test_one_number_among_observations_that_are_none_is_enough(agent: Any, rate: str) -> None:
    lines = [f'{{"event":"data","data":{{"rate":{text}}},"pipe":"data"}}' for text in ("null", rate, "null")]
    said = agent.run_program("sink.py", *(word for line in lines for word in ("say", line)), needs_data=True)
    assert verdict(said) == ended("passed")


def test_warm_up_alone_is_an_observation_whose_worth_the_report_judges(agent: Any) -> None:
    spec = {"entries": [entry(0, flags=1), entry(1, flags=1)], "closed": 1}
    said = agent.run_program("sink.py", "ring", json.dumps(spec), needs_data=True)
    assert verdict(said) == ended("passed")
    assert [data["warmup"] for data in agent.data("data")] == [True, True]


def test_what_the_instruments_say_of_every_process_is_no_measurement(agent: Any) -> None:
    line = '{"event":"data","data":{"metric": "host_memory_peak", "value": 1},"pipe":"data"}'
    said = agent.run_program("sink.py", "say", line, needs_data=True)
    assert verdict(said) == ended("failed", "no-data", "it ended well but made no observation")


@pytest.mark.parametrize(
    ("error", "outcome"),
    [("", ended("passed")), ("refused", ended("failed", "no-data", "it ended well but made no observation"))],
)
def test_of_a_sweep_the_requests_that_were_answered_are_the_observations(
    agent: Any, error: str, outcome: Mapping[str, Any]
) -> None:
    data = [{"point": {"name": "rate=2", "rate": 2}}, {"request": {"point": "rate=2", "index": 0, "error": error}}]
    lines = [json.dumps({"event": "data", "data": one, "pipe": "data"}) for one in data]
    said = agent.run_program("sink.py", *(word for line in lines for word in ("say", line)), needs_data=True)
    assert verdict(said) == outcome


@pytest.mark.parametrize("data", [{"rate": 1.0, "units": "items/s"}, {"metric": "tflops", "value": 1.0}])
def test_one_measurement_is_enough(agent: Any, data: dict[str, Any]) -> None:
    record = json.dumps({"event": "data", "data": data, "pipe": "data"})
    assert agent.run_program("sink.py", "say", record, needs_data=True)["outcome"] == "passed"


def test_the_end_is_recorded_once_and_last(agent: Any) -> None:
    agent.run("sh", "-c", "echo out; echo err >&2; exit 2")
    first, *_, last = agent.events()
    assert first["event"] == "start"
    assert last["event"] == "end"
    assert [record["event"] for record in agent.events()].count("end") == 1
    assert last["data"].items() >= {"return_code": 2, "outcome": "failed", "why": "exit", "detail": "err"}.items()


def test_several_steps_run_at_once(agent: Any) -> None:
    agent.start("sh", "-c", "read x < fifo; exit 0", step="a", cwd="/")
    agent.start("sleep", "600", step="b")
    agent.end_of("a")
    assert "b" not in agent.ended
    agent.ask("end", step="b")
    assert agent.end_of("b")["outcome"] == "cancelled"


def test_a_step_cannot_be_started_twice(agent: Any) -> None:
    agent.start("sleep", "600")
    assert agent.start("true") == {"id": 2, "ok": False, "error": "ValueError: step s is already running"}


def test_a_request_that_cannot_be_understood_is_refused_and_nothing_breaks(agent: Any) -> None:
    assert not agent.ask("dance")["ok"]
    assert not agent.ask("start", step="x")["ok"]
    agent.process.stdin.write(b"no json\n")
    assert agent.run("true")["outcome"] == "passed"


# ------------------------------------------------------------------------------------- nothing is left


def pids_of(agent: Any) -> dict[str, int]:
    return json.loads(agent.printed())


def test_nothing_of_a_tree_outlives_its_end(agent: Any, gone: Callable[[int], bool]) -> None:
    agent.program("tree.py", "wait", grace_s=0.3)
    pids = pids_of(agent)
    agent.ask("end", step="s")
    assert agent.end_of()["outcome"] == "cancelled"
    assert [name for name, pid in pids.items() if not gone(pid)] == []


def test_nothing_of_a_tree_outlives_its_leader_and_it_is_told(agent: Any, gone: Callable[[int], bool]) -> None:
    agent.program("tree.py", "exit", grace_s=0.3)
    pids = pids_of(agent)
    assert agent.end_of()["outcome"] == "passed"
    assert [name for name, pid in pids.items() if not gone(pid)] == []
    (message,) = agent.data("message")
    assert message["message"].startswith("killed leftover processes: ")
    assert str(pids["daemon"]) in message["message"]


def test_a_daemon_that_shed_its_environment_is_found(agent: Any, gone: Callable[[int], bool]) -> None:
    agent.program("tree.py", "exit", "bare", grace_s=0.3)
    pids = pids_of(agent)
    agent.end_of()
    assert gone(pids["daemon"])


def test_a_step_ends_only_its_own(agent: Any, gone: Callable[[int], bool]) -> None:
    agent.program("tree.py", "wait", step="a", grace_s=0.3)
    agent.program("tree.py", "wait", step="b", grace_s=0.3)
    kept = json.loads(agent.printed("b"))
    agent.ask("end", step="a")
    agent.end_of("a")
    assert [name for name, pid in kept.items() if gone(pid)] == []
    agent.ask("end", step="b")
    agent.end_of("b")
    assert [name for name, pid in kept.items() if not gone(pid)] == []


def test_a_closed_stdin_ends_everything(
    agent: Any, wait_until: Callable[..., Any], gone: Callable[[int], bool]
) -> None:
    agent.program("tree.py", "wait", grace_s=0.3)
    pids = pids_of(agent)
    agent.let_go()
    assert [name for name, pid in pids.items() if not gone(pid)] == []
    assert agent.ended["s"]["outcome"] == "cancelled"
    assert agent.ended["s"]["detail"] == "the control plane is gone"


def test_a_reader_that_died_ends_everything(
    agent: Any, wait_until: Callable[..., Any], gone: Callable[[int], bool]
) -> None:
    agent.program("tree.py", "wait", grace_s=0.3)
    pids = pids_of(agent)
    agent.process.stdin.close()
    agent.process.stdout.close()
    agent.process.wait(30)
    assert [name for name, pid in pids.items() if not gone(pid)] == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_the_agent_ends_everything(agent: Any, number: int, gone: Callable[[int], bool]) -> None:
    agent.program("tree.py", "wait", grace_s=0.3)
    pids = pids_of(agent)
    agent.process.send_signal(number)
    assert agent.wait() == 0
    assert [name for name, pid in pids.items() if not gone(pid)] == []
    assert agent.ended["s"]["outcome"] == "cancelled"


def test_a_killed_agent_takes_the_leader_along_and_a_sweep_the_rest(
    agent: Any, wait_until: Callable[..., Any], gone: Callable[[int], bool]
) -> None:
    agent.program("tree.py", "wait")
    pids = pids_of(agent)
    folder = Path(agent.hello["folder"])
    agent.kill()
    wait_until(lambda: gone(pids["leader"]))
    answer = sweep_orphans([agent.run_id], 0.3)
    assert answer["left"] == []
    assert {one["pid"] for one in answer["ended"]} >= {pids["daemon"], pids["setsid"], pids["deaf"]}
    assert [name for name, pid in pids.items() if not gone(pid)] == []
    assert not folder.exists()


def test_an_agent_removes_what_a_killed_one_left_and_nothing_of_a_living_one(
    agent: Any, agents: Callable[..., Any]
) -> None:
    living = agents()
    folders = [each.read_until(lambda each=each: each.hello)["folder"] for each in (agent, living)]
    agent.kill()
    agents().ask("usage")
    assert [Path(folder).exists() for folder in folders] == [False, True]


def test_a_sweep_spares_other_runs(agent: Any) -> None:
    agent.start("sleep", "600")
    assert sweep_orphans(["another run"], 5.0) == {"ended": [], "left": []}
    assert "s" not in agent.ended


def test_a_stranger_that_holds_stdout_does_not_delay_the_end(agent: Any) -> None:
    pid = agent.start("sh", "-c", "echo up; read x < /dev/zero & sleep 600")["pid"]
    agent.printed()
    with Path(f"/proc/{pid}/fd/1").open("wb"):
        agent.ask("end", step="s", grace_s=0.3)
        agent.end_of()
    (message,) = agent.data("message")
    assert message["message"].startswith(f"stdout is still held open after the end, by {os.getpid()} (")


# ----------------------------------------------------------------------------------------------- lines


def lines(agent: Any, script: str, **fields: Any) -> list[str]:
    agent.run(sys.executable, "-S", "-c", "import os, time\nw = lambda b: os.write(1, b)\n" + script, **fields)
    return [record["data"] for record in agent.events() if record["event"] == "line"]


def test_bytes_that_are_no_text_are_shown_escaped(agent: Any) -> None:
    assert lines(agent, r"w(b'\xff\x00\xe9t\xc3\xa9\n')") == ["\\xff\x00\\xe9té\n"]


def test_a_character_that_comes_in_two_pieces_is_one(agent: Any) -> None:
    assert "".join(lines(agent, r"w(b'\xe2\x82'); time.sleep(1.3); w(b'\xac\n')")) == "€\n"


def test_a_last_line_without_an_end_is_kept(agent: Any) -> None:
    assert lines(agent, r"w(b'a\nb')") == ["a\n", "b"]


def test_a_line_without_an_end_is_shown_while_the_step_runs(agent: Any) -> None:
    agent.start("sh", "-c", "printf 'password: '; sleep 600")
    assert agent.read_until(agent.text) == "password: "


def test_updates_of_a_progress_bar_are_one_line(agent: Any) -> None:
    assert lines(agent, r"[w(b'\r%d%%' % i) for i in range(100)]; w(b'\r100%\n')") == ["100%\n"]


def test_windows_line_ends_are_line_ends(agent: Any) -> None:
    assert lines(agent, r"w(b'a\r'); time.sleep(0.3); w(b'\nb\r\n')") == ["a\n", "b\n"]


def test_an_endless_line_is_cut(agent: Any) -> None:
    found = lines(agent, r"[w(b'x' * 100_000) for i in range(25)]; w(b'\n')")
    assert "".join(found) == "x" * 2_500_000 + "\n"
    assert max(map(len, found)) <= 1 << 20
    assert len(found) <= 4


def test_no_line_of_many_is_lost(agent: Any) -> None:
    found = lines(agent, r"[w(b'%d\n' % i) for i in range(20_000)]")
    assert found == [f"{number}\n" for number in range(20_000)]


def test_standard_input_is_empty(agent: Any) -> None:
    assert agent.run("cat")["outcome"] == "passed"


# ------------------------------------------------------------------------------------------------ sink


def test_records_are_forwarded_stamped(agent: Any) -> None:
    record = {"event": "phase", "data": {"name": "init"}, "pipe": "data"}
    agent.run_program("sink.py", "say", json.dumps(record), "say", json.dumps(record, separators=(",", ":")))
    first, second = (each for each in agent.events() if each["event"] == "phase")
    assert first.pop("t") > 1e9
    assert second.pop("t") > 1e9
    assert first == second == record


def test_records_of_a_megabyte_pass_whole(agent: Any) -> None:
    agent.run_program("sink.py", "records", 5, 1 << 20)
    assert [len(data["text"]) for data in agent.data("data")] == [1 << 20] * 5


def test_records_of_many_processes_do_not_mix(agent: Any) -> None:
    agent.run_program("sink.py", "children", 6, 400, 3000)
    by_process: dict[int, list[int]] = {}
    for data in agent.data("data"):
        assert data["text"] == "x" * 3000
        by_process.setdefault(data["pid"], []).append(data["number"])
    assert list(by_process.values()) == [list(range(400))] * 6


def test_what_is_no_record_is_told_once(agent: Any) -> None:
    said = agent.run_program("sink.py", "say", "nonsense", "say", '{"event": "data"', "say", '{"x": 1}')
    assert said["outcome"] == "passed"
    assert agent.data("message") == [{"message": "a line on the sink is no record: nonsense"}]


def test_a_torn_record_is_told_and_not_forwarded(agent: Any) -> None:
    script = (
        "import os, socket\ns = socket.socket(socket.AF_UNIX); s.connect(os.environ['MILABENCH_SINK'][5:])\n"
        's.sendall(b\'{"event":"data","data":{\')'
    )
    agent.run(sys.executable, "-S", "-c", script)
    text = "the sink was closed in the middle of a record, of which 24 bytes came"
    assert agent.data("message") == [{"message": text}]
    assert agent.data("data") == []


def test_the_sink_is_private(agent: Any) -> None:
    agent.start("sh", "-c", 'echo "$MILABENCH_SINK"; sleep 600')
    path = Path(agent.printed().removeprefix("unix:"))
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert len(str(path)) < 100


def test_values_known_only_at_the_start_are_filled_in(agent: Any) -> None:
    agent.run(
        "sh", "-c", 'cat "$CONFIG"; echo; echo "$RUN" "$1" "$2"; test "$3" = "$4"', "sh",
        "--out=@run", "me@run", "@port", "@port",
        env={"CONFIG": "@config", "RUN": "@run"}, config={"a": [1]}, values={"run": "/runs/x"},
    )  # fmt: skip
    assert agent.text() == '{"a": [1]}\n/runs/x --out=/runs/x me@run\n'
    assert agent.ended["s"]["outcome"] == "passed"


def test_the_start_record_names_secrets_without_their_values(agent: Any) -> None:
    agent.run("true", env={"TOKEN": "hunter2", "PLAIN": "1"}, secret_env=["TOKEN"])
    (start,) = agent.data("start")
    assert "hunter2" not in json.dumps(agent.events())
    assert start["secret_env"] == ["TOKEN"]
    assert start["env"]["PLAIN"] == "1"


DEEP = 50_000 * "["  # more levels than a parser follows


@pytest.mark.parametrize(
    "line",
    [
        DEEP,
        '{"hello": {"world_size": 1e999}}',
        '{"event": "error", "data": ' + DEEP + "]}",
        '{"event": "data", "data": {"rate": 1, "error": ' + DEEP + "]}}",
    ],
    ids=["deep", "infinite", "deep error", "deep data"],
)
def test_no_line_on_the_sink_ends_the_agent(agent: Any, line: str) -> None:
    agent.run_program("sink.py", "say", line, "print", "said")
    assert agent.ended["s"]["outcome"] == "passed"


def test_no_record_holds_a_secret_whoever_writes_it(agent: Any) -> None:
    secret = "s3cr3t-of-mine"
    program = (
        "import os, sys, time; value = os.environ['GIVEN']; write = lambda text: (sys.stdout.write(text), sys.stdout.flush())\n"
        "write(value[:6]); time.sleep(1.2); write(value[6:] + '\\n'); print('failed with', value, file=sys.stderr); sys.exit(3)"
    )
    agent.run(sys.executable, "-c", program, secret, env={"GIVEN": secret}, secrets=[secret])
    assert agent.text() == "***\n"
    assert secret not in json.dumps(agent.events())
    assert agent.ended["s"]["detail"] == "failed with ***"
    (start,) = agent.data("start")
    assert start["command"][-1] == "***"


def test_secrets_of_the_node_are_masked_too(agents: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODEPASSWORD", "s3cr3t-of-the-node")
    agent = agents()
    agent.run("sh", "-c", 'echo "$NODEPASSWORD"; echo "$NODEPASSWORD" >&2')
    assert agent.text() == "***\n"
    assert "s3cr3t-of-the-node" not in json.dumps(agent.events())


def test_a_group_of_one_goes_at_once(agent: Any) -> None:
    agent.run_program("sink.py", "say", '{"ready": true}', "await")
    assert list(json.loads(agent.text())) == ["go"]


def test_the_members_of_a_group_go_together(agent: Any) -> None:
    group = {"group": "g", "group_size": 2}
    agent.program("sink.py", "say", '{"ready": true}', "print", "ready", "await", step="a", **group)
    assert agent.printed("a") == "ready"
    agent.program("sink.py", "print", "up", "say", '{"ready": true}', "await", step="b", **group)
    agent.end_of("a")
    agent.end_of("b")
    assert agent.text(step="a").splitlines()[1] == agent.text(step="b").splitlines()[1]


def test_a_member_that_ended_is_not_waited_for(agent: Any) -> None:
    group = {"group": "g", "group_size": 2}
    agent.program("sink.py", "say", '{"ready": true}', "await", step="a", **group)
    agent.start("false", step="b", **group)
    assert agent.end_of("a")["outcome"] == "passed"


# ----------------------------------------------------------------------------------------------- rings


def test_observations_survive_the_kill_of_their_process(agent: Any) -> None:
    spec = {"entries": [entry(0, flags=1), entry(1, wait_ns=1000), entry(2, device_ns=SECOND // 4, steps=2)]}
    said = agent.run_program("sink.py", "ring", json.dumps(spec), "die", "KILL")
    assert said["why"] == "signal"
    common = {"task": "train", "units": "items/s", "n": 8, "host_ns": SECOND // 2}
    assert agent.data("data") == [
        {**common, "rate": 16, "time": 0.5, "elapsed": 0.5, "batch_id": 0, "t0_ns": 0, "clock": "host", "warmup": True},
        {**common, "rate": 16, "time": 1.5, "elapsed": 0.5, "batch_id": 1, "t0_ns": SECOND, "clock": "host",
         "parts": {"wait": 1e-6}},
        {**common, "rate": 32, "time": 2.5, "elapsed": 0.25, "batch_id": 2, "t0_ns": 2 * SECOND, "clock": "event",
         "steps": 2},
    ]  # fmt: skip


def test_a_ring_that_was_never_announced_is_found(agent: Any) -> None:
    spec = {"entries": [entry(0)], "announce": False}
    agent.run_program("sink.py", "ring", json.dumps(spec), "die", "KILL")
    assert len(agent.data("data")) == 1


def test_observations_are_seen_while_the_step_runs(agent: Any) -> None:
    spec = {"entries": [entry(0, flags=1), entry(1), entry(2)], "observed": 2, "wanted": 60}
    agent.program("sink.py", "ring", json.dumps(spec), "sleep", "600")
    (frame,) = agent.read_until(lambda: [frame for frame in agent.frames if frame["k"] == "obs"])
    assert frame["count"] == 3
    # Of the warm-up, and of the window: from the begin of the first to the end of the last, and their items.
    spans = [[0, SECOND // 2, 8, 1], [SECOND, 2 * SECOND + SECOND // 2, 16, 0]]
    assert frame["last"] == {"task": "train", "units": "items/s", "rank": 0, "progress": [2, 60], "spans": spans}


def test_a_device_time_that_is_still_to_come_is_waited_for(agent: Any) -> None:
    spec = {"entries": [entry(0, device_ns=SECOND), entry(1, device_ns=-2), entry(2, device_ns=SECOND)]}
    agent.program("sink.py", "ring", json.dumps(spec), "sleep", "600")
    agent.read_until(lambda: agent.data("data"))
    assert [data["batch_id"] for data in agent.data("data")] == [0]
    agent.ask("end", step="s")
    agent.end_of()
    assert [(data["batch_id"], data["clock"]) for data in agent.data("data")] == [
        (0, "event"), (1, "host"), (2, "event"),
    ]  # fmt: skip


def test_losses_are_records_and_nan_is_null(agent: Any) -> None:
    import struct

    def bits(value: float) -> int:
        return struct.unpack("<q", struct.pack("<d", value))[0]

    spec = {
        "meta": {"task": "train", "kind": "loss", "rank": 0},
        "entries": [[3, SECOND, bits(0.1), 0, 0, 0, 0, 0], [4, SECOND, bits(float("nan")), 0, 0, 0, 0, 0]],
        "closed": 1,
    }
    said = agent.run_program("sink.py", "ring", json.dumps(spec), needs_data=True)
    assert agent.data("data") == [
        {"task": "train", "loss": 0.1, "time": 1.0, "batch_id": 3},
        {"task": "train", "loss": None, "time": 1.0, "batch_id": 4, "nonfinite": ["loss"]},
    ]
    assert verdict(said) == ended("failed", "no-data", "it ended well but made no observation")


def test_the_parts_of_a_step_stand_in_the_slot_before_it(agent: Any) -> None:
    def parts(number: int, *ns: int, pending: bool = False) -> list[int]:
        return [number, *ns, -2 if pending else -1, 0, 8, 0]

    entries = [
        *(parts(0, 100_000_000, 200_000_000, -1), entry(0, wait_ns=50_000_000)),
        *(parts(1, 100_000_000, -1, -1), entry(1)),
        entry(2, wait_ns=0),
        *(parts(3, 1, 2, 3, pending=True), entry(3, device_ns=-2)),
    ]
    spec = {"entries": entries}
    agent.run_program("sink.py", "ring", json.dumps(spec))
    found = [data.get("parts") for data in agent.data("data")]
    assert found[:3] == [{"wait": 0.05, "forward": 0.1, "backward": 0.2}, {"forward": 0.1}, {"wait": 0.0}]
    assert len(found) == 4  # the last is what a dead process left


def test_a_step_of_no_duration_has_no_rate(agent: Any) -> None:
    spec = {"entries": [[0, 0, 0, 8, -1, 1, 0, -1]], "closed": 1}
    agent.run_program("sink.py", "ring", json.dumps(spec))
    (data,) = agent.data("data")
    assert (data["rate"], data["nonfinite"]) == (None, ["rate"])


def test_ranks_are_named_where_there_are_several(agent: Any) -> None:
    meta = {"task": "train", "units": "items/s", "rank": 3, "kind": "rate"}
    spec = {"entries": [entry(0, n=1500, flags=4)], "meta": meta}
    agent.run_program("sink.py", "ring", json.dumps(spec), env={"WORLD_SIZE": "4"})
    (data,) = agent.data("data")
    assert (data["rank"], data["n"], data["rate"]) == (3, 1.5, 3.0)


def test_what_was_overwritten_is_counted(agent: Any) -> None:
    spec = {"entries": [entry(number) for number in range(4)], "capacity": 4, "head": 6, "lost": 1}
    agent.run_program("sink.py", "ring", json.dumps(spec))
    assert agent.data("message") == [{"message": "3 observations were overwritten before they could be read"}]


def test_a_ring_that_wraps_is_read_in_order(agent: Any) -> None:
    entries = [entry(4), entry(5), entry(2), entry(3)]
    agent.run_program("sink.py", "ring", json.dumps({"entries": entries, "capacity": 4, "head": 6}))
    assert [data["batch_id"] for data in agent.data("data")] == [2, 3, 4, 5]


@pytest.mark.parametrize("broken", [{"capacity": 0}, {"meta": None}, {"capacity": 64, "name": "../out.ring"}])
def test_a_broken_ring_is_told_and_breaks_nothing(agent: Any, broken: dict[str, Any]) -> None:
    said = agent.run_program("sink.py", "ring", json.dumps({"entries": [], **broken}))
    assert said["outcome"] == "passed"
    assert agent.data("message")[0]["message"].startswith("the ring ")


# --------------------------------------------------------------------------- the other side, and locks


def test_a_control_plane_that_does_not_read_does_not_stop_the_supervision(
    agent: Any, wait_until: Callable[..., Any], gone: Callable[[int], bool]
) -> None:
    pid = agent.start("yes", "x" * 1000, timeout_s=1.0)["pid"]
    wait_until(lambda: gone(pid))
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{agent.process.pid}/status").read_text())
    assert peak is not None
    assert int(peak[1]) < 256 << 10
    assert agent.end_of()["why"] == "timeout"
    assert len(agent.records["s"]) > 1 << 24


def test_two_agents_cannot_hold_one_device(agents: Callable[..., Any]) -> None:
    first, second = agents(), agents()
    assert first.ask("lock", devices=["cuda-GPU/1", "cuda-2"])["ok"]
    reply = second.ask("lock", devices=["cuda-2", "cuda-3"])
    assert not reply["ok"]
    (holder,) = reply["holders"]
    assert (holder["name"], holder["run"], holder["pid"]) == ("cuda-2", first.run_id, first.process.pid)
    assert second.ask("lock", devices=["cuda-3"])["ok"]
    first.let_go()
    assert second.ask("lock", devices=["cuda-2", "cuda-3"])["ok"]


def test_a_lock_that_is_waited_for_is_had_when_its_holder_dies(agents: Callable[..., Any]) -> None:
    first, second = agents(), agents()
    first.ask("lock", devices=["cuda-1"])
    number = second.send("lock", devices=["cuda-1"], wait=True)
    second.read_until(lambda: [frame for frame in second.frames if frame["k"] == "waiting"])
    assert second.run("true")["outcome"] == "passed"
    first.kill()
    assert second.read_until(lambda: second.replies.get(number))["ok"]
    assert first.process.returncode == -signal.SIGKILL
    third = agents()
    assert third.ask("lock", devices=["cuda-1"])["holders"][0]["run"] == second.run_id


def test_a_device_is_held_as_long_as_a_process_of_the_step_lives(agents: Callable[..., Any], tmp_path: Path) -> None:
    first, second = agents(), agents()
    first.ask("lock", devices=["cuda-1"])
    first.program("tree.py", "wait", grace_s=0.3)
    pids_of(first)
    first.kill()
    assert not second.ask("lock", devices=["cuda-1"])["ok"]
    sweep_orphans([first.run_id], 0.3)
    assert second.ask("lock", devices=["cuda-1"])["ok"]


def test_the_time_of_a_command_begins_after_what_runs_before_it(agent: Any) -> None:
    clock = "import time; print(time.monotonic())"
    agent.run(sys.executable, "-S", "-c", clock, prerun=[sys.executable, "-S", "-c", clock])
    before, inside = map(float, agent.text().split())
    (end,) = agent.data("end")
    assert end["wall_s"] > 0
    after = time.monotonic()
    # The command began between what ran before it and its own first line, and ended before now.
    assert end["wall_s"] < after - before
    assert [record["event"] for record in agent.events()].count("start") == 1
    assert inside > before


def test_what_is_said_before_a_command_stands_before_what_it_says(agent: Any) -> None:
    # So many short lines that they are gathered for a while before they are read.
    says = 'for i in $(seq 30); do echo "$i"; sleep 0.01; done'
    agent.run("echo", "command", prerun=["sh", "-c", says])
    assert agent.text("stdout").split() == [*map(str, range(1, 31)), "command"]


def test_the_limit_of_a_command_begins_after_what_runs_before_it(agent: Any) -> None:
    said = agent.run("sleep", "3", prerun=["sleep", "3"], timeout_s=5)
    assert verdict(said) == ended("passed", None, "", 0)


def test_what_runs_before_a_command_has_a_limit_of_its_own(agent: Any) -> None:
    said = agent.run("echo", "never", prerun=["sleep", "600"], timeout_s=0.2)
    detail = "the command before it (prerun) is still running after 0.2 s"
    assert verdict(said) == ended("failed", "timeout", detail, -signal.SIGTERM)


def test_what_runs_before_a_command_and_fails_is_why_it_did_not_run(agent: Any) -> None:
    said = agent.run("echo", "never", prerun=["sh", "-c", "exit 4"])
    assert verdict(said) == ended("failed", "exit", "the command before it (prerun) exited with code 4", 4)
    assert agent.text() == ""
    assert "wall_s" not in agent.data("end")[0]


def test_a_step_that_is_ended_before_its_command_runs_never_runs_it(agent: Any) -> None:
    agent.start("echo", "never", prerun=["sleep", "300"])
    agent.ask("end", step="s")
    assert verdict(agent.end_of()) == ended("cancelled", None, "ended on request", -signal.SIGTERM)
    assert agent.text() == ""


def test_a_command_that_is_missing_after_what_ran_before_it_is_told_as_such(agent: Any) -> None:
    said = agent.run("no-such-command-anywhere", prerun=["true"])
    detail = "cannot start no-such-command-anywhere: No such file or directory"
    assert verdict(said) == ended("failed", "environment", detail, None)
