"""Steps in containers: a service that owns them stands in for docker; the agent and its client are real processes."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from milabench.execute.agent.orphans import container_name, containers_of, list_orphans, sweep_orphans
from tests.commands import PYTHON

PROGRAMS = Path(__file__).resolve().parents[1] / "programs"


class Engine:
    """A container engine on PATH, and what its client was told to do."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        client = folder / "docker"
        client.write_text(f'#!/bin/sh\nexec {PYTHON} -S {shlex.quote(str(PROGRAMS / "engine.py"))} {folder} "$@"\n')
        client.chmod(0o755)
        self.service = subprocess.Popen(
            [sys.executable, "-S", PROGRAMS / "engine.py", folder, "serve"], stdout=subprocess.PIPE, text=True
        )
        assert self.service.stdout is not None
        assert self.service.stdout.readline() == "serving\n"

    def calls(self, verb: str) -> list[list[str]]:
        """The command lines with this verb."""
        known = [json.loads(line) for line in (self.folder / "calls").read_text().splitlines()]
        return [words for words in known if words[0] == verb]

    def close(self) -> None:
        """Ends it, and whatever still runs in it."""
        self.service.terminate()
        self.service.wait()
        assert self.service.stdout is not None
        self.service.stdout.close()


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    folder = tmp_path / "engine"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    made = Engine(folder)
    yield made
    made.close()


def contained(*command: object) -> dict[str, Any]:
    """A step as plans have it: its command in a container, and what ends that."""
    words = ["docker", "run", "--rm", "--name=@container", "--label=milabench.marker=@marker", "--workdir=/"]
    passed = [f"--env={name}" for name in ("MILABENCH_SINK", "MILABENCH_RUN_MARKER", "MILABENCH_STEP", "A_TOKEN")]
    argv = [*words, *passed, "--volume=@folder", "--user=@user", "image", *map(str, command)]
    return {
        "argv": argv,
        "env": {"MILABENCH_SINK": "@sink", "A_TOKEN": "secret-value"},
        "end_argv": ["docker", "rm", "--force", "@container"],
    }


SLEEPER = (
    "import os, signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN if sys.argv[1] == 'deaf' else "
    "signal.SIG_DFL); print(os.getpid(), flush=True); time.sleep(600)"
)


def sleeper(how: str) -> dict[str, Any]:
    return contained(sys.executable, "-S", "-c", SLEEPER, how)


def test_a_program_in_a_container_reports_over_the_sink(engine: Engine, agent: Any) -> None:
    step = contained(sys.executable, "-S", PROGRAMS / "steps.py", 50, 0.2)
    agent.ask("start", step="s", needs_data=True, **step)
    ended = agent.end_of()
    assert ended["outcome"] == "passed", (ended, agent.text("stderr"))
    assert sum("rate" in data for data in agent.data("data")) == 10
    assert engine.calls("rm") == []


def test_values_of_secrets_are_in_no_command_line(engine: Engine, agent: Any) -> None:
    agent.ask("start", step="s", **contained("/bin/sh", "-c", 'echo "$A_TOKEN"'))
    assert agent.end_of()["outcome"] == "passed"
    assert agent.text() == "secret-value\n"
    assert "secret-value" not in (engine.folder / "calls").read_text()


@pytest.mark.parametrize("how", ["polite", "deaf"])
def test_what_ends_a_step_ends_its_container_also_when_it_ignores_the_client(
    engine: Engine, agent: Any, wait_until: Callable[..., Any], gone: Callable[[int], bool], how: str
) -> None:
    agent.ask("start", step="s", grace_s=0.2, timeout_s=1.0, **sleeper(how))
    inside = int(agent.printed())
    ended = agent.end_of()
    assert (ended["outcome"], ended["why"]) == ("failed", "timeout")
    wait_until(lambda: gone(inside))
    assert engine.calls("rm") == [["rm", "--force", f"milabench-{agent.run_id}-s"]]


def test_a_client_that_is_killed_leaves_no_container(
    engine: Engine, agent: Any, wait_until: Callable[..., Any], gone: Callable[[int], bool]
) -> None:
    client = agent.ask("start", step="s", **sleeper("polite"))["pid"]
    inside = int(agent.printed())
    os.kill(client, 9)
    ended = agent.end_of()
    assert (ended["outcome"], ended["why"]) == ("failed", "signal")
    wait_until(lambda: gone(inside))
    assert any("outlived" in said["message"] for said in agent.data("message"))


def test_the_end_of_the_lease_ends_containers(
    engine: Engine, agent: Any, wait_until: Callable[..., Any], gone: Callable[[int], bool]
) -> None:
    agent.ask("start", step="s", grace_s=0.2, **sleeper("deaf"))
    inside = int(agent.printed())
    agent.let_go()
    wait_until(lambda: gone(inside))


def test_a_sweep_finds_the_containers_that_a_killed_agent_left_and_ends_them(
    engine: Engine, agent: Any, wait_until: Callable[..., Any], gone: Callable[[int], bool]
) -> None:
    agent.ask("start", step="s", **sleeper("polite"))
    inside = int(agent.printed())
    agent.kill()
    assert not gone(inside)
    assert containers_of([agent.run_id]) == [("docker", f"milabench-{agent.run_id}-s")]
    assert {"pid": 0, "command": f"docker container milabench-{agent.run_id}-s"} in list_orphans([agent.run_id])["left"]
    assert containers_of(["another"]) == []
    assert sweep_orphans([agent.run_id], 5.0)["left"] == []
    wait_until(lambda: gone(inside))
    assert list_orphans([agent.run_id])["left"] == []


def test_a_container_is_called_after_its_run_and_step_in_letters_that_engines_allow() -> None:
    assert container_name("run.2026-01-02_03-04-05-1f", "a b.D0", "") == "milabench-run.2026-01-02_03-04-05-1f-a_b.D0"
    assert container_name("r@h1", "b", "2") == "milabench-r_h1-b-2"


def test_what_an_engine_says_of_a_signal_is_told_as_one(engine: Engine, agent: Any) -> None:
    agent.ask("start", step="s", **contained("/bin/sh", "-c", "kill -9 $$"))
    ended = agent.end_of()
    assert (ended["outcome"], ended["why"]) == ("failed", "signal")
    assert ended["detail"].startswith("ended by SIGKILL")
