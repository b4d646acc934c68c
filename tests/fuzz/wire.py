"""What comes over the wire: our own clients against a node, a model server and a scheduler that answer what a file says.

    python -m tests.fuzz.wire node|server|scheduler

A node is the real agent behind the proxy of tests/hostile_agent.py, which sends `in/bytes` in place of the message that
`in/where.json` names. A model server answers `in/answer`, and `in/endless` again and again after it; with `in/stays` it keeps the
connection open. The commands of Slurm print what stands in `in/squeue`, `in/sacct`, `in/scontrol`, `in/sinfo` and `in/version`.
Each prints what its client made of that; the exit code is 0, or that of an error of ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmate.records import encode
from benchmate.serving import server_watch
from benchmate.serving.clients import plain
from benchmate.serving.figures import point_notes
from benchmate.serving.load import LoadPoint, PlannedRequest, PointResult, Target, Workload
from benchmate.serving.server_watch import parse_metrics
from benchmate.serving.sweep import request_record
from milabench.devices.regular_file import MIB, read_regular
from milabench.errors import NOT_WRITTEN, MilabenchError
from milabench.execute.api import Outcome, Progress, StepRequest
from milabench.execute.remote_host import remote_node
from milabench.plan.model import Step
from milabench.schedulers.scheduler import JobHandle, job_name
from milabench.shown import visible
from milabench.slurm.scheduler import SlurmScheduler
from tests.hostile_agent import Change, Message, hostile_machine
from tests.slurm.fake_commands import FakeSlurm

WAIT_S = 1.0  # for an answer that does not come, before the connection is cut
START_S = 20.0  # for the first words of an agent, on a busy machine
TICK_S = 0.1
RECORDINGS = 5  # tries to run a step to its end within its time, on a busy machine
COMMANDS = ("squeue", "sacct", "scontrol", "sinfo")
TOKENS = 4
NAME = job_name("m1", "s")


def main(words: Sequence[str]) -> int:
    """Return the exit code."""
    try:
        {"node": node, "server": server, "scheduler": scheduler}[words[0]]()
    except MilabenchError as error:
        print(f"error: {visible(str(error))}"[:4000], file=sys.stderr)
        return error.exit_code
    except (OSError, ValueError) as error:  # a file of ours that is a device, or no JSON
        if "in/" not in str(error):
            raise
        print(f"error: {visible(str(error))}"[:4000], file=sys.stderr)
        return NOT_WRITTEN
    return 0


def _read(name: str, missing: bytes = b"") -> bytes:
    path = Path("in", name)
    try:
        return read_regular(path, 64 * MIB) if path.exists() or path.is_symlink() else missing
    except ValueError as error:
        raise ValueError(f"in/{name}: {error}") from None


# --- nodes ---------------------------------------------------------------------------------------------------------


def node() -> None:
    """Run a step on a node of which one message is another one."""
    try:
        where = json.loads(_read("where.json", b"{}"))
        wanted, nth = str(where["kind"]), int(where["nth"])
    except (ValueError, LookupError, TypeError, RecursionError):
        raise ValueError("in/where.json is not ours") from None
    instead, seen = _read("bytes"), 0

    def change(message: Message) -> Iterable[bytes]:
        nonlocal seen
        seen += message.kind == wanted
        return [instead] if message.kind == wanted and seen == nth + 1 else [message.whole]

    print(visible(str(run_on_node(change))))


def run_on_node(change: Change, silent_s: float = WAIT_S) -> Outcome:
    """Return how a step ended on a node whose messages pass through a change; its connection is cut when it is silent."""
    heard: list[Message] = []

    def listen(message: Message) -> Iterable[bytes]:
        heard.append(message)
        return change(message)

    argv = ("sh", "-c", "echo one; echo two >&2")
    step = Step(id="s", bench="b", phase="run", argv=argv, needs_data=False, node="h0", timeout_s=10.0)
    seen: list[Progress] = []

    async def work() -> Outcome:
        machine = hostile_machine(listen)
        connection = await machine.connection()
        locks = Path(tempfile.gettempdir()) / "milabench-fuzz-locks"
        node = remote_node(machine, f"fuzz-{os.getpid()}-{time.monotonic_ns()}", grace_s=0.1, locks=locks)
        running = asyncio.ensure_future(node.run(StepRequest(step=step, grace_s=0.1), seen.append))
        try:
            quiet_s = 0.0
            while not running.done() and quiet_s < (silent_s if heard else START_S):
                count = len(heard)
                await asyncio.wait({running}, timeout=TICK_S)
                quiet_s = 0.0 if len(heard) > count else quiet_s + TICK_S
            if not running.done():
                await connection.close()
            return await running
        finally:
            await node.close()
            await connection.close()

    return asyncio.run(work())


def record_messages() -> tuple[Message, ...]:
    """Return what a real agent says in a step."""
    messages: list[Message] = []

    def keep(message: Message) -> Iterable[bytes]:
        messages.append(message)
        return [message.whole]

    for _ in range(RECORDINGS):
        messages.clear()
        outcome = run_on_node(keep, START_S)
        if outcome == Outcome("passed"):
            return tuple(messages)
    raise AssertionError(outcome)


# --- model servers -------------------------------------------------------------------------------------------------


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    answer = endless = b""
    stays = False


class _Answers(socketserver.StreamRequestHandler):
    server: _Server
    timeout = 4 * WAIT_S

    def handle(self) -> None:
        with contextlib.suppress(OSError):  # the client has had enough
            length = 0
            while line := self.rfile.readline().strip().lower():
                length = int(line.partition(b":")[2]) if line.startswith(b"content-length:") else length
            self.rfile.read(length)
            self.wfile.write(self.server.answer)
            while self.server.endless:
                self.wfile.write(self.server.endless * (1 + 65536 // len(self.server.endless)))
            if self.server.stays:
                self.rfile.read(1)


def server() -> None:
    """Measure a server, and read its metrics."""
    server_watch.ANSWER_S = WAIT_S / 2
    with _Server(("127.0.0.1", 0), _Answers) as serving:
        serving.answer, serving.endless = _read("answer"), _read("endless")
        serving.stays = Path("in/stays").exists()
        threading.Thread(target=serving.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{serving.server_address[1]}"
        try:
            _measure(url)
            with contextlib.suppress(OSError, ValueError, server_watch.http.client.HTTPException):
                print(json.dumps(parse_metrics(server_watch.get(url, "/metrics")[1]), allow_nan=False))
        finally:
            serving.shutdown()


def _measure(url: str) -> None:
    workload = Workload(sessions=((PlannedRequest(text="a b", input_tokens=2, output_tokens=TOKENS),),) * 2)
    for endpoint in ("completions", "chat"):
        point = LoadPoint(name="rate=1000", rate=1000.0, deadline=time.monotonic() + WAIT_S)
        target = Target(url=url, model="m", endpoint=endpoint)  # type: ignore[arg-type]
        result: PointResult = plain.CLIENT.measure(target, point, workload, Path())
        assert all(request.output_tokens <= TOKENS or not request.has_usage for request in result.requests)
        for request in result.requests:
            print(visible(encode(request_record("p", request)).decode()))
        print(visible(str(point_notes(point, workload, result.requests, result.client))))


def record_answers() -> tuple[tuple[bytes, ...], ...]:
    """Return answers of the simulated server, as a head and what follows it in pieces: events of a stream, or a body."""
    program = [sys.executable, "-m", "benchmate.serving.simulated", "--port", "0"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline().rpartition(":")[2])
            usage = {"include_usage": True, "continuous_usage_stats": True}
            asked: Mapping[str, object] = {"model": "m", "max_tokens": TOKENS, "stream": True, "stream_options": usage}
            return tuple(
                (head, *(piece + b"\n\n" for piece in body.split(b"\n\n") if piece))
                for path, body_ in (
                    ("/v1/completions", asked | {"prompt": "a b"}),
                    ("/v1/chat/completions", asked | {"messages": [{"role": "user", "content": "a b"}]}),
                    ("/v1/completions", {"model": "m"}),
                    ("/metrics", None),
                )
                for head, body in [_ask(port, path, body_)]
            )
        finally:
            process.terminate()


def _ask(port: int, path: str, body: object) -> tuple[bytes, bytes]:
    """Return the head of an answer without what says how its body is written, and the body."""
    import http.client

    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        connection.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body))
        answer = connection.getresponse()
        kind = answer.getheader("content-type", "text/plain")
        return f"HTTP/1.1 {answer.status} {answer.reason}\r\nContent-Type: {kind}\r\n".encode(), answer.read()


# --- schedulers ----------------------------------------------------------------------------------------------------


def scheduler() -> None:
    """Ask Slurm for jobs, those of a run, and nodes."""
    environ = {"PATH": f"{Path('fixed', 'bin').absolute()}:/usr/bin:/bin"}
    slurm = SlurmScheduler(environ, timeout_s=WAIT_S / 2)
    handles = [JobHandle(id=id_, name=NAME) for id_ in ("100", "101", "102_1")]
    for state in slurm.observe(handles).values():
        print(visible(str(asdict(state)))[:1000])
    for ask in (lambda: slurm.adopt("m1"), lambda: slurm.nodes("")):
        try:
            print(visible(str(ask()))[:1000])
        except MilabenchError as error:
            print(visible(str(error))[:1000])


def write_commands(folder: Path) -> None:
    """Write Slurm's commands, which print the files below `in`."""
    folder.mkdir()
    for name in COMMANDS:
        path = folder / name
        words = shlex.join(["cat", f"in/{name}"])
        path.write_text(f'#!/bin/sh\ncase "$*" in *--version*) exec cat in/version;; esac\nexec {words}\n')
        path.chmod(0o755)


def record_cluster(folder: Path) -> Mapping[str, bytes]:
    """Return what the commands of a cluster print."""
    folder.mkdir(parents=True, exist_ok=True)
    fake = FakeSlurm(folder, accounting=True)
    script = folder / "job.sh"
    script.write_text("#!/bin/sh\ntrue\n")
    for options in ((), (), ("--array=0-2",)):
        words = (f"--job-name={NAME}", "--comment=m1", "--parsable", *options)
        subprocess.run(
            [fake.folder / "bin" / "sbatch", *words, script], env=fake.environ, check=True, stdout=subprocess.DEVNULL
        )
    for job in fake.jobs()[:2]:
        fake.set(job, state="RUNNING", nodes="n[1-2]", reason="")
    printed: dict[str, bytes] = {"version": b"slurm 25.05.1\n"}
    recorded = SlurmScheduler(fake.environ)
    ask = recorded._commands.ask

    def keep(name: str, *words: str, timeout_s: float | None = None) -> object:
        answer = ask(name, *words, timeout_s=timeout_s)
        if "--version" not in words:
            printed[name] = answer.output.encode()
        return answer

    recorded._commands.ask = keep  # type: ignore[method-assign, assignment]
    handles = [JobHandle(id=job, name=NAME) for job in fake.jobs()]
    recorded.observe(handles)
    for job in fake.jobs():
        fake.forget(job, "squeue")
    kept = printed["squeue"]
    recorded.observe(handles)
    separator = "\x1f"
    nodes = "".join(f"{part}{separator}{name}{separator}{state}\n" for part, name, state in _NODES)
    return {"scontrol": b"", "sacct": b"", **printed, "squeue": kept, "sinfo": nodes.encode()}


_NODES = (("gpu*", "n1", "idle"), ("gpu*", "n2", "mixed"), ("cpu", "n3", "down*"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
