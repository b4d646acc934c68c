"""Programs that give their data by voir's protocol, run through the relay: real processes and an agent that listens."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agent import Agent, Ran
from hypothesis import given
from hypothesis import strategies as st

from benchmate.voir_stream import HiddenDataDecoder, RecordDecoder, parse_line

RELAY = "benchmate.milabench13.relay"
PRELUDE = """\
import json, os, signal, sys, time
data = int(os.environ["DATA_FD"])
def give(**record): os.write(data, json.dumps(record).encode() + b"\\n")
def event(name, value=None): os.write(data, json.dumps({"$event": name, "$data": value}).encode() + b"\\n")
"""


def hide(payload: bytes) -> bytes:
    digits = payload.hex().translate(str.maketrans("abcdef", ":;<=>?"))
    return b"\x1b[" + digits.encode() + b"z"


def script(folder: Path, code: str) -> str:
    file = folder / "program.py"
    file.write_text(PRELUDE + textwrap.dedent(code))
    return str(file)


def rates(agent: Agent) -> list[float]:
    return [data["rate"] for data in agent.records() if "rate" in data]


def relayed(agent: Agent, code: str, **more: Any) -> Ran:
    return agent.run("--", sys.executable, script(agent.folder, code), module=RELAY, **more)


def start(agent: Agent, code: str, **more: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", RELAY, "--", sys.executable, script(agent.folder, code)]
    env = {**os.environ, "MILABENCH_SINK": f"unix:{agent.path}"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, env=env, **more)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


# The streams, as values


@given(st.lists(st.tuples(st.binary(), st.binary(max_size=40))), st.data())
def test_hidden_data_is_found_wherever_the_stream_is_split(pieces, data):
    # An escape in the output itself may swallow what follows, on a terminal too.
    pieces = [(output.replace(b"\x1b", b"?"), hidden) for output, hidden in pieces]
    stream = b"".join(output + (hide(hidden) if hidden else b"") for output, hidden in pieces)
    decoder, outputs, found = HiddenDataDecoder(), [], []
    while stream:
        cut = data.draw(st.integers(1, len(stream)))
        output, hidden = decoder.feed(stream[:cut])
        outputs.append(output)
        found.append(hidden)
        stream = stream[cut:]
    assert b"".join(outputs) + decoder.rest() == b"".join(output for output, _ in pieces)
    assert b"".join(found) == b"".join(hidden for _, hidden in pieces)


@given(st.binary(), st.integers(1, 7))
def test_output_without_hidden_data_is_unchanged(output, size):
    output = output.replace(b"z", b"\x1b[3")
    decoder = HiddenDataDecoder()
    pieces = [output[begin : begin + size] for begin in range(0, len(output), size)]
    assert b"".join(decoder.feed(piece)[0] for piece in pieces) + decoder.rest() == output


@pytest.mark.parametrize(
    "output", [b"\x1b[31mred\x1b[0m", b"\x1b[123z", b"\x1b[z", b"\x1b", b"\x1b[1;2;3", b"\x1b[1 z"]
)
def test_other_escape_sequences_are_output(output):
    decoder = HiddenDataDecoder()
    assert decoder.feed(output)[0] + decoder.rest() == output


@given(st.lists(st.dictionaries(st.text().filter(lambda key: key != "$event"), st.integers() | st.text())), st.data())
def test_records_are_read_wherever_the_stream_is_split(records, data):
    stream = b"".join(
        json.dumps(record, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n" for record in records
    )
    decoder, got = RecordDecoder(), []
    while stream:
        cut = data.draw(st.integers(1, len(stream)))
        got += decoder.feed(stream[:cut])
        stream = stream[cut:]
    assert [*got, *decoder.rest()] == [("data", record) for record in records]


def test_what_two_processes_wrote_into_one_line_is_two_records():
    assert list(parse_line(b'{"rate": 1} {"rate": 2}')) == [("data", {"rate": 1}), ("data", {"rate": 2})]


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (b"[1]", "format_error"),
        (b"{", "format_error"),
        (b"\xff", "binary"),
        (b'{"$event": "end", "$data": {"return_code": 0}}', "format_error"),
        (b'{"$event": "phase", "$data": {"name": "init"}}', "phase"),
        (b'{"$event": "message", "$data": "text"}', "message"),
        (b"[" * 100_000, "format_error"),
    ],
)
def test_each_line_is_one_record(line, event):
    assert [kind for kind, _ in parse_line(line)] == [event]


# Programs


def test_what_a_program_gives_is_recorded_and_its_output_and_exit_code_pass(agent):
    ran = relayed(
        agent,
        f"""
        give(task="train", rate=10.0, units="items/s", time=1.0)
        event("phase", {{"name": "run_script"}})
        sys.stdout.buffer.write(b"before " + {hide('{"loss": NaN, "task": "träin"}'.encode())!r})
        sys.stdout.buffer.write({hide(b"{chr(10)}")!r} + b"after \\x1b[31mred\\x1b[0m \\xff\\n")
        print("on stderr", file=sys.stderr)
        sys.exit(3)
        """.replace("{chr(10)}", "\n"),
    )
    assert ran == Ran(3, "before after \x1b[31mred\x1b[0m \ufffd\n", "on stderr\n")
    rate = {"task": "train", "rate": 10.0, "units": "items/s", "time": 1.0, "clock": "program", "warmup": True}
    progress = {"task": "train", "progress": [0, 5], "clock": "program"}
    loss = {"task": "träin", "loss": None, "nonfinite": ["loss"]}
    assert [data for data in agent.records() if "metric" not in data] == [rate, progress, loss]
    assert agent.metrics().keys() == {"first_step", "host_memory_peak"}
    assert agent.records("phase") == [{"name": "run_script"}]
    assert agent.malformed == []


def test_a_line_that_cannot_be_read_stops_nothing(agent):
    ran = relayed(agent, """os.write(data, b"oops\\n\\xff\\n"); give(rate=1.0); os.write(data, b'{"rate": 2.0}')""")
    assert ran.code == 0
    assert [line["line"] for line in agent.records("format_error")] == ["oops"]
    assert len(agent.records("binary")) == 1
    assert {"message": "a line of the program's data is no record: oops"} in agent.records("message")
    assert rates(agent) == [1.0, 2.0]


@pytest.mark.parametrize("ending", ["", "signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))"])
def test_a_program_that_asks_to_stop_is_ended_with_success(agent, ending):
    ran = relayed(agent, f"{ending}\nevent('stop')\nevent('stop')\nsignal.pause()\nsignal.pause()")
    assert ran.code == 0
    assert agent.records("stop") == [{"reason": "the program has all the observations that it wanted"}]


def test_the_measuring_profile_decides_when_a_program_that_gives_rates_is_ended(agent):
    code = "for index in range(100_000):\n    give(rate=1.0 + index)\n    event('stop')\n    time.sleep(0.001)"
    assert relayed(agent, code).code == 0
    assert rates(agent) == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    assert [data.get("warmup", False) for data in agent.records() if "rate" in data] == [True] * 2 + [False] * 5
    assert [window["why"] for window in agent.windows()] == ["complete"]
    assert agent.records("stop") == [{"reason": "train: 5 rates"}]


def test_devices_that_a_program_watches_are_left_to_milabench(agent):
    assert relayed(agent, "give(gpudata={'0': {'load': 1.0}}, task='main')\ngive(process={'pid': 1})").code == 0
    assert agent.lines == []


def test_voir_itself_with_an_early_stop_is_ended_with_success(agent):
    (agent.folder / "voirfile.py").write_text(
        "from voir.instruments import early_stop, log\n"
        "def instrument_main(ov):\n"
        "    ov.require(log('value', 'rate', 'units', 'loss', context='task'))\n"
        "    ov.require(early_stop(n=3, key='rate', task='train', signal='stop'))\n"
    )
    loop = "while True:\n    give(task='train', rate=5.0, units='items/s')\n    time.sleep(0.01)"
    code = f"import time\nfrom giving import give\n{loop}"
    (agent.folder / "main.py").write_text(code)
    voir = str(Path(sys.executable).with_name("voir"))
    ran = agent.run("--", voir, "main.py", module=RELAY)
    assert (ran.code, ran.stderr) == (0, "")
    assert len(agent.records("stop")) == 1
    assert rates(agent) == [5.0] * 7
    assert {"name": "init"} in agent.records("phase")


def test_records_arrive_while_the_program_runs_and_a_kill_ends_both(agent):
    relay = start(agent, "event('program', {'pid': os.getpid()})\nsignal.pause()")
    until(lambda: agent.records("program"))
    relay.kill()
    relay.communicate()
    (record,) = agent.records("program")
    until(lambda: is_gone(record["pid"]))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_reaches_the_program(agent, number):
    code = f"signal.signal({int(number)}, lambda n, _: sys.exit(40 + n))\nprint('ready')\nsignal.pause()"
    relay = start(agent, code)
    assert relay.stdout is not None
    assert relay.stdout.readline() == b"ready\n"
    # From another process than its parent: that one, the agent, signals the program itself.
    subprocess.run(["/bin/sh", "-c", f"kill -{int(number)} {relay.pid}"], check=True)
    relay.communicate(timeout=60)
    assert relay.returncode == 40 + number


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGABRT])
def test_a_program_ended_by_a_signal_is_seen_as_that(agent, number):
    ran = relayed(agent, f"give(rate=1.0)\nos.kill(os.getpid(), {int(number)})")
    assert ran.code == -number
    assert rates(agent) == [1.0]
    # The final record is missing: whether it had all it wanted is not known.
    assert not any("overhead" in data for data in agent.records())


def test_output_without_a_line_end_passes_at_once(agent):
    relay = start(agent, "os.write(1, b'name? ')\nprint(sys.stdin.readline().upper())", stdin=subprocess.PIPE)
    assert relay.stdout is not None
    assert os.read(relay.stdout.fileno(), 100) == b"name? "
    assert relay.communicate(b"x\n", timeout=60)[0] == b"X\n\n"


def test_what_a_program_leaves_behind_does_not_hold_the_relay(agent):
    relay = start(agent, "pid = os.fork()\nif pid == 0: time.sleep(300)\nevent('child', {'pid': pid})")
    assert relay.stdout is not None
    with relay.stdout:
        assert relay.wait(timeout=60) == 0
        until(lambda: agent.records("child"))
        os.kill(agent.records("child")[0]["pid"], signal.SIGKILL)


def test_a_closed_stdout_ends_the_program_as_it_would_without_the_relay(agent):
    relay = start(agent, "print('ready')\nwhile True: os.write(1, bytes(65536))", stderr=subprocess.PIPE)
    assert relay.stdout is not None
    assert relay.stdout.readline() == b"ready\n"
    relay.stdout.close()
    assert relay.stderr is not None
    with relay.stderr:
        assert b"BrokenPipeError" in relay.stderr.read()
    assert relay.wait(timeout=60) == 1


def test_a_program_that_cannot_be_started_is_one_line(agent):
    ran = agent.run("--", "/nowhere/program", module=RELAY)
    assert ran == Ran(127, "", "benchmate.relay: /nowhere/program: No such file or directory\n")
    assert agent.controls("fail") == [
        {"why": "environment", "detail": "/nowhere/program: No such file or directory"},
    ]


def test_a_broken_configuration_is_one_line(agent):
    (agent.folder / "broken.json").write_text("{")
    ran = relayed(agent, "print('ran')", env={"MILABENCH_BENCH_CONFIG": str(agent.folder / "broken.json")})
    assert (ran.code, ran.stdout, ran.stderr.count("\n")) == (2, "", 1)
    assert ran.stderr.startswith(f"benchmate.relay: {agent.folder}/broken.json: not JSON")


def test_words_are_expected():
    done = subprocess.run([sys.executable, "-m", RELAY], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: ")


def test_a_program_that_uses_benchmate_itself_is_counted_once(agent):
    code = """
    import benchmate
    for _ in benchmate.observed([[0, 0]] * 8): pass
    """
    assert relayed(agent, code).code == 0
    assert len(agent.entries()) == 8
    assert len(agent.controls("hello")) == 1


LOGS = """
from benchmate.monitor import setupvoir
log, monitor = setupvoir()
for index in range(LAST):
    log({"task": "train", "rate": 1.0 + index, "units": "items/s"})
    time.sleep(0.001)
"""


@pytest.mark.parametrize(
    "code",
    [
        LOGS.replace("LAST", "100_000"),
        # A launcher that closes its descriptors, DATA_FD too.
        f"import subprocess\nsubprocess.run([sys.executable, '-c', {'import time' + LOGS.replace('LAST', '100_000')!r}])",
    ],
    ids=["itself", "below a launcher"],
)
def test_a_program_that_logs_to_the_agent_itself_is_ended_with_its_window(agent, code):
    assert relayed(agent, code) == Ran(0, "", "")
    assert rates(agent) == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    assert [window["why"] for window in agent.windows()] == ["complete"]
    assert agent.records("stop") == [{"reason": "train: 5 rates"}]
    progress = [data["progress"] for data in agent.records() if "progress" in data]
    assert progress == [[0, 5], [1, 5], [2, 5], [3, 5], [4, 5], [5, 5]]


@pytest.mark.parametrize(
    "env",
    [
        {"WORLD_SIZE": "2", "RANK": "0"},  # other ranks would wait for this one
        {"MILABENCH_SINK": ""},  # in a script of its own the program decides
    ],
)
def test_a_program_that_logs_itself_runs_to_its_end_where_the_relay_does_not_decide(agent, env):
    ran = relayed(agent, f"{LOGS.replace('LAST', '50')}\nprint('its end')", env=env)
    assert (ran.code, ran.stdout) == (0, "its end\n")
    assert agent.records("stop") == []


def test_the_window_of_a_rank_that_runs_on_is_recorded_when_it_is_complete(agent):
    code = f"{LOGS.replace('LAST', '50')}\nos.kill(os.getpid(), signal.SIGKILL)"
    assert relayed(agent, code, env={"WORLD_SIZE": "2", "RANK": "0"}).code == -signal.SIGKILL
    assert len(rates(agent)) == 50
    assert [window["why"] for window in agent.windows()] == ["complete"]


def test_a_pipe_that_is_not_the_relays_is_not_written_to(agent):
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as pipe:
        (agent.folder / "program.py").write_text(PRELUDE.replace("DATA_FD", "NUMBER") + LOGS.replace("LAST", "50"))
        place = f"{os.fstat(reading).st_ino + 1}:/proc/{os.getpid()}/fd/{reading}"
        env = {"NUMBER": "1", "MILABENCH_RELAY": place}
        assert agent.run(str(agent.folder / "program.py"), module="", env=env).code == 0
        os.close(writing)
        assert pipe.read() == b""
    assert len(rates(agent)) == 50


def test_without_an_agent_the_given_rates_are_a_line(agent):
    ran = relayed(agent, "for rate in range(50): give(rate=rate, units='items/s')", env={"MILABENCH_SINK": ""})
    assert ran.code == 0
    assert "rate (train): 48 by the program after 2 of warm-up, median 25.5 items/s\n" in ran.stderr
