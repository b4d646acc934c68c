"""Sweeps over a server as a user runs them: whole, and with a server that ends in the middle or cannot start."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import socket
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.processes import started

ROOT = Path(__file__).resolve().parents[3]
SERVED = ("--use-current-env", "--config", str(ROOT / "tests" / "suite" / "served.yaml"))
Milabench = Callable[..., Any]


class Sweep:
    """What a run recorded of its only benchmark."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        (self.run,) = Path(environ["MILABENCH_BASE"], "runs").iterdir()
        entries = map(json.loads, (self.run / "journal.jsonl").read_text().splitlines())
        self.ended = {entry["step"].split(".")[1]: entry for entry in entries if entry.get("state") == "ended"}

    @property
    def outcomes(self) -> dict[str, tuple[str, str | None]]:
        return {role: (entry["outcome"], entry.get("why")) for role, entry in self.ended.items()}

    @property
    def points(self) -> dict[str, tuple[str, str]]:
        (file,) = self.run.glob("*.client.data")
        records = [json.loads(line) for line in file.read_text().splitlines()]
        data = [record["data"] for record in records if record["event"] == "data"]
        return {
            each["point"]["name"]: (each["point"]["state"], each["point"]["why"]) for each in data if "point" in each
        }


def wait_for_port(port: int) -> None:
    """Return when somebody listens there."""
    for _ in range(600):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.05)
    raise AssertionError(f"nothing listens at {port}")


MEASURED = ("measured", "")


def test_every_point_of_a_sweep_is_measured(milabench: Milabench, environ: Mapping[str, str]) -> None:
    said = milabench("run", *SERVED, "--select", "whole")
    assert said.code == 0, said.err
    sweep = Sweep(environ)
    assert sweep.outcomes == {"server": ("passed", None), "client": ("passed", None)}
    assert sweep.points == {f"concurrency={number}": MEASURED for number in (1, 2, 3)}
    assert re.search(r"whole\S*client: concurrency=(\d), \1 of 3\n", said.err)
    brief = milabench("report").out
    assert re.search(r"^concurrency=3 +\| +[\d.]+ \|", brief, re.M), brief


def test_a_server_that_ends_in_the_middle_leaves_points_that_failed_and_points_that_were_skipped(
    milabench: Milabench, environ: Mapping[str, str]
) -> None:
    assert milabench("run", *SERVED, "--select", "dies").code == 1
    sweep = Sweep(environ)
    assert sweep.outcomes == {"server": ("failed", "exit"), "client": ("failed", "exit")}
    assert sweep.ended["server"]["detail"].startswith("it ended before its client")
    assert sweep.points == {
        "concurrency=1": MEASURED,
        "concurrency=2": ("failed", "the server ended"),
        "concurrency=3": ("skipped", "the server ended at an earlier point"),
    }


def test_a_server_that_is_started_again_loses_one_point(milabench: Milabench, environ: Mapping[str, str]) -> None:
    milabench("run", *SERVED, "--select", "again")
    sweep = Sweep(environ)
    assert sweep.outcomes == {"server": ("passed", None), "client": ("passed", None)}
    assert sweep.points == {
        "concurrency=1": MEASURED,
        "concurrency=2": ("failed", "the server ended"),
        "concurrency=3": MEASURED,
    }


def test_a_secret_of_the_server_is_in_nothing_that_its_client_writes(
    milabench: Milabench, environ: Mapping[str, str]
) -> None:
    said = milabench("run", *SERVED, "--select", "leaks")
    sweep = Sweep(environ)
    assert sweep.points["concurrency=1"][0] == "failed"
    assert "HTTP 401: " in sweep.points["concurrency=1"][1]
    assert "not the key ***" in sweep.points["concurrency=1"][1]
    written = [file.read_text() for file in sweep.run.rglob("*") if file.is_file()]
    assert not [text for text in (*written, said.out, said.err) if "only-the-server-has-4711" in text]


def test_a_server_that_runs_already_is_measured_and_left_running(
    milabench: Milabench, environ: Mapping[str, str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, str(ROOT / "tests" / "suite" / "served" / "main.py"), str(port), "0"]
    with started(command) as server:
        wait_for_port(port)
        url = f"elsewhere.server.url=http://127.0.0.1:{port}"
        said = milabench("run", *SERVED, "--select", "elsewhere", "--override", url)
        assert said.code == 0, said.err
        assert server.poll() is None
        server.kill()
    sweep = Sweep(environ)
    assert sweep.outcomes == {"client": ("passed", None)}
    assert sweep.points == {f"concurrency={number}": MEASURED for number in (1, 2, 3)}
    brief = milabench("report").out
    assert re.search(r"^concurrency=3 +\| +[\d.]+ \|", brief, re.M), brief


def test_a_server_that_does_not_run_where_it_should_is_said(milabench: Milabench, environ: Mapping[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
    said = milabench("run", *SERVED, "--select", "elsewhere", "--override", f"elsewhere.server.url={url}")
    assert said.code == 1
    assert f"error: {url}: nothing listens there" in said.err


def test_a_port_in_use_is_refused_before_the_server_starts(milabench: Milabench, environ: Mapping[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        overrides = (f"whole.server.argv=['{port}', '0']", f"whole.server.ready.port={port}")
        options = [word for override in overrides for word in ("--override", override)]
        assert milabench("run", *SERVED, "--select", "whole", *options).code == 1
    sweep = Sweep(environ)
    assert sweep.outcomes == {"server": ("failed", "environment"), "client": ("skipped", None)}
    assert f"port {port} is in use already" in sweep.ended["server"]["detail"]


@pytest.mark.parametrize("override", ["whole.serve.concurrency=[]", "whole.serve.slo={ttft: 3}"])
def test_a_sweep_that_cannot_be_run_stops_every_command_with_one_line(milabench: Milabench, override: str) -> None:
    for verb in (("run",), ("plan", "run"), ("dev", "whole")):
        said = milabench(*verb, *SERVED, "--override", override)
        assert said.code == 2
        assert said.err.startswith("error: ")
        assert said.err.count("\n") == 1
        assert "whole.serve" in said.err


def test_a_sweep_is_not_estimated_by_the_window_of_a_profile(milabench: Milabench) -> None:
    said = milabench("plan", "run", *SERVED, "--select", "whole")
    assert "estimate: not known before a run below this base has passed with whole\n" in said.out


def test_dev_says_how_server_and_client_would_be_started(milabench: Milabench) -> None:
    said = milabench("dev", "whole", *SERVED, "--", "true")
    assert said.code == 0, said.err
    assert "# whole.client: run would execute at the same time:\n" in said.err
    assert "-m benchmate.serving --url http://127.0.0.1:@port\n" in said.err
    assert f"{shlex.quote(str(ROOT / 'tests' / 'suite' / 'served' / 'main.py'))} @port 0\n" in said.err
