"""What an agent collects of a step before it ends it for silence or time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

from milabench.execute.agent.helpers import PROGRAM
from milabench.execute.agent.protocol import RUN_MARKER, STEP_MARKER
from milabench.execute.messages import EVIDENCE
from milabench.records.hang_evidence import NodeEvidence
from tests.processes import started, until

COLLECTOR = "hangs.on_node.collecting"
SLEEPS = "import time\ndef load_batch(password):\n    print('up', flush=True); time.sleep(600)\nload_batch('hunter2-hunter2')"


def evidence_of(agent: Any, *, step: str = "s") -> NodeEvidence:
    """Wait for the evidence of a step."""
    return EVIDENCE.read(agent.read_until(lambda: agent.evidence.get(step)))


def test_a_silent_step_is_looked_at_before_it_is_ended(agent: Any) -> None:
    said = agent.run(sys.executable, "-c", SLEEPS, max_silence_s=0.5, collector=COLLECTOR)
    evidence = evidence_of(agent)
    (process,) = evidence.processes
    assert (said["why"], process.state, process.wchan != "") == ("silent", "S", True)
    assert process.pid not in (os.getpid(), agent.process.pid)
    kinds = [frame["k"] for frame in agent.frames]
    assert kinds.index("hung") < kinds.index("evidence") < kinds.index("ended")


def test_without_a_collector_a_step_is_ended_at_once(agent: Any) -> None:
    agent.run("sleep", "600", timeout_s=0.1)
    assert not agent.evidence


def test_evidence_can_be_asked_for_and_the_step_goes_on(agent: Any) -> None:
    agent.start("sleep", "600", collector=COLLECTOR)
    assert agent.ask("collect", step="s")["running"]
    assert [process.name for process in evidence_of(agent).processes] == ["sleep"]
    assert "s" not in agent.ended
    assert agent.ask("end", step="s")["ok"]
    agent.end_of()


def test_a_process_without_the_environment_of_its_step_is_looked_at_too() -> None:
    """As of vLLM's engine, which writes its title there."""
    marked = {**os.environ, STEP_MARKER: "s", RUN_MARKER: "run"}
    words = ["sh", "-c", "env -i sleep 600 & echo up; wait"]
    with started(words, env=marked, start_new_session=True, stdout=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        until(lambda: "sleep" in names_in("--step", "s", "--marker", "run"))
        os.killpg(process.pid, signal.SIGKILL)


def names_in(*options: str) -> list[str]:
    words = [sys.executable, "-I", "-S", PROGRAM, "feature", COLLECTOR, *options]
    evidence = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
    return [process["name"] for process in evidence["processes"]]


def test_a_step_that_ends_meanwhile_is_not_waited_for(agent: Any) -> None:
    agent.start("sleep", "600", collector=COLLECTOR)
    number = agent.send("collect", step="s")
    agent.ask("end", step="s", grace_s=0)
    agent.end_of()
    assert agent.read_until(lambda: agent.replies.get(number))["ok"]
    assert not agent.evidence


def test_no_argument_and_no_secret_is_in_the_evidence(agent: Any) -> None:
    words = ["-c", SLEEPS, "--api-key", "sesame-sesame"]
    environment = {"HF_TOKEN": "hf_abcdefghijkl", "RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "8"}
    agent.run(sys.executable, *words, timeout_s=1.0, collector=COLLECTOR, env=environment, secret_env=["HF_TOKEN"])
    (process,) = evidence_of(agent).processes
    assert (process.rank, process.local_rank, process.world_size) == (3, 1, 8)
    text = agent.evidence["s"].decode()
    assert not [word for word in ("hunter2", "sesame", "hf_abc", "--api-key") if word in text]


def test_a_stopped_process_is_seen_and_ended(agent: Any) -> None:
    said = agent.run("sh", "-c", "kill -STOP $$", timeout_s=0.3, collector=COLLECTOR)
    assert [process.state for process in evidence_of(agent).processes] == ["T"]
    assert said["why"] == "timeout"


def test_a_process_is_a_rank_where_it_says_so(agent: Any) -> None:
    program = (
        "import json, os, socket, time\n"
        "sink = socket.socket(socket.AF_UNIX); sink.connect(os.environ['SINK'][5:])\n"
        "hello = {'pid': os.getpid(), 'role': 'rank', 'rank': 5, 'local_rank': 1, 'world_size': 8}\n"
        "sink.sendall(json.dumps({'hello': hello}).encode() + b'\\n'); print('up', flush=True); time.sleep(600)"
    )
    agent.run(sys.executable, "-c", program, timeout_s=1.5, collector=COLLECTOR, env={"SINK": "@sink"})
    assert [process.rank for process in evidence_of(agent).processes] == [5]


TWO_RANKS = """
import json, os, socket, struct, sys, time
folder = os.path.dirname(os.environ["SINK"][5:])
sink = socket.socket(socket.AF_UNIX)
sink.connect(os.environ["SINK"][5:])
wanted = int(sys.argv[1])
for rank in (0, 1):
    meta = json.dumps({"task": "train", "units": "items/s", "rank": rank, "clock": "host", "kind": "rate"}).encode()
    header = bytearray(4096)
    header[:8] = b"MBRING02"
    struct.pack_into("<11q", header, 8, 4096, 3, 0, 0, 0, 0, wanted, 0, 0, 0, len(meta))
    header[512 : 512 + len(meta)] = meta
    with open(f"{folder}/{rank}.ring", "wb") as file:
        file.write(header + struct.pack("<8q", 0, 0, 1000, 1, -1, 1, 0, -1) * 4096)
    sink.sendall(json.dumps({"ring": {"path": f"{folder}/{rank}.ring"}}).encode() + b"\\n")
moving = os.open(f"{folder}/0.ring", os.O_RDWR)
for head in range(4, 4000):
    print("still here", flush=True)
    os.pwrite(moving, struct.pack("<q", head), 16)
    time.sleep(0.05)
    if head == 100 and wanted:
        break
"""


def test_a_rank_that_makes_no_step_is_silent_whatever_is_printed(agent: Any) -> None:
    words = (sys.executable, "-c", TWO_RANKS, "0")
    said = agent.run(*words, max_silence_s=3.0, env={"SINK": "@sink"}, collector=COLLECTOR)
    assert (said["why"], said["detail"]) == ("silent", "no step of rank 1 for 3 s")
    (moving, stuck) = evidence_of(agent).progress
    assert (moving[0], stuck[:2]) == (0, (1, 3))
    assert moving[2] < stuck[2]


def test_a_rank_that_has_made_its_steps_may_print_for_longer(agent: Any) -> None:
    said = agent.run(sys.executable, "-c", TWO_RANKS, "3", max_silence_s=3.0, env={"SINK": "@sink"})
    assert said["outcome"] == "passed"
