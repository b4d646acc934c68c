"""A sweep over a server becomes a server step and a client step, which both know all of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from milabench.bench.api import Benchmark
from milabench.config.read import read_suite
from milabench.config.schema import Suite
from milabench.errors import ConfigError
from milabench.facts.model import Device, Node, SystemFacts
from milabench.plan.context import PlanContext, ResolvedBenchmark, benchmark_on, dirs_under
from milabench.plan.model import Step
from milabench.plan.prepare import prepare_step
from milabench.plan.profile import PROFILES
from milabench.plan.run import plan_run

VLLM = Benchmark(module="vllm.entrypoints.openai.api_server")
SUITE = """
chat:
  definition: x
  plan: {method: multigpu}
  argv: {--shared: 1}
  server: {argv: {--port: "@port", --tp: "{gpu_count}"}, ready: {port: "@port", path: /health, timeout: 30}}
  client: {argv: {--save: all}}
  serve:
    model: "{milabench_data}/tiny"
    concurrency: [1, 8]
    rate: 2.5
    input_tokens: {least: 10, most: 20}
    slo: {ttft_p90_ms: 500}
    request_options: {user: "{milabench_name}", temperature: 0}
"""
PYTHON = "/base/venv/chat/bin/python"


def node(name: str = "one", ip: str = "10.0.0.1", count: int = 2) -> Node:
    devices = tuple(
        Device(index=index, uuid=f"{name}-{index}", name="X9", arch="cuda", memory_mib=1000) for index in range(count)
    )
    return Node(name=name, ip=ip, cpu_count=16, devices=devices, main=name == "one")


def steps(tmp_path: Path, suite: str, *nodes: Node, **changed: Any) -> tuple[Step, ...]:
    """The steps of a suite, some text of which is changed: `{"old text": "new text"}`."""
    for old, new in changed.items():
        assert old in suite
        suite = suite.replace(old, new)
    read_in, context = read(tmp_path, suite, *nodes)
    benches = [
        ResolvedBenchmark(config=bench, folder="/suite/x", declared=VLLM) for bench in read_in.benchmarks.values()
    ]
    return plan_run(benches, context).steps


def read(tmp_path: Path, text: str, *nodes: Node) -> tuple[Suite, PlanContext]:
    path = tmp_path / "suite.yaml"
    path.write_text(text)
    suite = read_suite([path])
    context = PlanContext(
        facts=SystemFacts(arch="cuda", nodes=nodes or (node(),)),
        system=suite.system,
        dirs=dirs_under("/base", suite.system.dirs),
        profile=PROFILES["quick"],
        run_name="r",
    )
    return suite, context


def test_the_program_of_the_benchfile_is_the_server_and_the_client_is_ours(tmp_path: Path) -> None:
    server, client = steps(tmp_path, SUITE)
    words = ("--port", "@port", "--tp", "2", "--shared", "1")
    assert server.argv == (PYTHON, "-m", "vllm.entrypoints.openai.api_server", *words)
    assert client.argv == (PYTHON, "-m", "benchmate.serving", "--url", "http://127.0.0.1:@port", "--save", "all")
    assert (server.config["role"], client.config["role"]) == ("server", "client")
    assert (client.env["NO_PROXY"], client.env["no_proxy"]) == ("127.0.0.1,localhost",) * 2
    assert "NO_PROXY" not in server.env


def test_any_program_may_be_the_server(tmp_path: Path) -> None:
    command = {"server: {": 'server: {command: [llama-server, -m, "{milabench_data}/m"], '}
    server, client = steps(tmp_path, SUITE, **command)
    assert server.argv == ("llama-server", "-m", "/base/data/m", "--port", "@port", "--tp", "2", "--shared", "1")
    assert client.argv[:3] == (PYTHON, "-m", "benchmate.serving")


def test_both_steps_hold_the_sweep_with_every_key(tmp_path: Path) -> None:
    server, client = steps(tmp_path, SUITE)
    assert server.config["serve"] == client.config["serve"]
    assert client.config["serve"] == {
        "client": "vllm",
        "model": "/base/data/tiny",
        "served_model": "/base/data/tiny",
        "tokenizer": "/base/data/tiny",
        "endpoint": "completions",
        "concurrency": [1, 8],
        "rate": [2.5],
        "scenario": [],
        "arrivals": "poisson",
        "requests": 32,
        "rounds": 4,
        "seconds": 10,
        "warmup": 2,
        "input_tokens": {"least": 10, "most": 20},
        "output_tokens": 128,
        "prefix_tokens": 0,
        "trace": "",
        "slo": {"ttft_p90_ms": 500},
        "on_server_exit": "stop",
        "seed": 1,
        "request_options": {"user": "chat", "temperature": 0},
    }
    ready = {"port": "@port", "path": "/health", "hosts": ["127.0.0.1", "10.0.0.1"], "timeout_s": 30}
    assert client.config["server"] == {"ready": ready, "step": "chat.server", "node": "one"}


def test_on_two_machines_the_client_goes_to_the_address_of_the_server(tmp_path: Path) -> None:
    two = {"definition: x": "definition: x\n  num_machines: 2"}
    server, client = steps(tmp_path, SUITE, node(), node("two", "10.0.0.2"), **two)
    assert (server.node, client.node) == ("one", "two")
    assert client.argv[3:5] == ("--url", "http://10.0.0.1:@port")
    assert client.env["NO_PROXY"] == "10.0.0.1,127.0.0.1,localhost"
    (_, client) = steps(tmp_path, SUITE, node(ip="fd00::1"), node("two", "10.0.0.2"), **two)
    assert client.argv[4] == "http://[fd00::1]:@port"


URL = {'argv: {--port: "@port", --tp: "{gpu_count}"}, ready: {port: "@port", path: /health, timeout: 30}': "url: 'URL'"}


@pytest.mark.parametrize("url", ["http://models.example:8000", "https://models.example/team/a"])
@pytest.mark.parametrize("method", ["multigpu", "per_gpu"])
def test_a_server_that_runs_already_has_a_client_alone(tmp_path: Path, url: str, method: str) -> None:
    (old, new), *_ = URL.items()
    (client,) = steps(tmp_path, SUITE, **{old: new.replace("URL", url), "multigpu": method})
    words = (PYTHON, "-m", "benchmate.serving", "--url", url, "--save", "all")
    assert (client.argv, client.config["role"]) == (words, "client")
    assert client.env["NO_PROXY"] == "models.example,127.0.0.1,localhost"
    assert "step" not in client.config["server"]


def test_a_port_of_the_suite_is_the_port_of_the_client(tmp_path: Path) -> None:
    _, client = steps(tmp_path, SUITE, **{'"@port"': "8000"})
    assert client.argv[4] == "http://127.0.0.1:8000"


def test_the_time_limit_of_a_sweep_is_that_of_its_points(tmp_path: Path) -> None:
    server, client = steps(tmp_path, SUITE, **{"definition: x": "definition: x\n  max_duration: 100"})
    assert (server.timeout_s, client.timeout_s) == (330, 300)


def test_a_server_for_each_device_has_a_client_for_each(tmp_path: Path) -> None:
    planned = steps(tmp_path, SUITE, multigpu="per_gpu")
    assert [step.id for step in planned] == ["chat.D0.server", "chat.D0.client", "chat.D1.server", "chat.D1.client"]


def test_a_server_that_is_to_be_started_again_has_somebody_who_does_it(tmp_path: Path) -> None:
    (plain, _), (server, _) = (
        steps(tmp_path, SUITE),
        steps(tmp_path, SUITE, **{"    rate: 2.5": "    rate: 2.5\n    on_server_exit: restart"}),
    )
    assert server.argv == (PYTHON, "-m", "benchmate.serving.restarting", "--", *plain.argv)


def test_in_a_container_of_its_own_program_is_the_server_alone(tmp_path: Path) -> None:
    image = SUITE.replace("definition: x", "definition: x\n  docker_image: vendor/server")
    server, client = steps(tmp_path, image)
    assert (server.container, client.container) == ("vendor/server", "vendor/server")
    restarted = {"server: {": "server: {command: serve-it, ", "    rate: 2.5": "    on_server_exit: restart"}
    server, client = steps(tmp_path, image, **restarted)
    assert (server.container, client.container) == ("vendor/server", None)
    assert server.argv[:6] == (PYTHON, "-m", "benchmate.serving.restarting", "--", "docker", "run")
    assert server.argv[server.argv.index("vendor/server") + 1] == "serve-it"
    assert client.argv[:3] == (PYTHON, "-m", "benchmate.serving")


@pytest.mark.parametrize(("server", "container"), [("", "vendor/server"), ("command: serve-it, ", None)])
def test_what_prepares_for_a_server_of_its_own_image_runs_outside(
    tmp_path: Path, server: str, container: str | None
) -> None:
    text = SUITE.replace("definition: x", "definition: x\n  docker_image: vendor/server")
    suite, context = read(tmp_path, text.replace("server: {", "server: {" + server))
    resolved = ResolvedBenchmark(config=suite.benchmarks["chat"], folder="/suite/x", declared=VLLM)
    step = prepare_step(benchmark_on(context.facts.main, resolved, context))
    assert step is not None
    assert step.container == container
    assert step.config["serve"]["model"] == "/base/data/tiny"


@pytest.mark.parametrize("launcher", ["torchrun", "accelerate"])
def test_a_launcher_of_python_does_not_start_another_program(tmp_path: Path, launcher: str) -> None:
    changed = {"multigpu": f"multigpu, launcher: {launcher}", "server: {": "server: {command: serve-it, "}
    with pytest.raises(ConfigError, match=f"{launcher} starts Python programs"):
        steps(tmp_path, SUITE, **changed)


def test_a_size_and_a_matrix_change_keys_of_the_sweep(tmp_path: Path) -> None:
    sized = SUITE + "  sizes: {tiny: {serve: {concurrency: [2], requests: 4}}}\nsize: tiny\n"
    _, client = steps(tmp_path, sized)
    serve = client.config["serve"]
    assert (serve["concurrency"], serve["requests"], serve["rate"]) == ([2], 4, [2.5])
    matrix = (
        "several:\n  matrix: {n: [16, 32]}\n  job: {name: 'chat-{n}', inherits: chat, serve: {input_tokens: '{n}'}}\n"
    )
    planned = steps(tmp_path, SUITE + matrix, **{"    input_tokens: {least: 10, most: 20}\n": ""})
    lengths = {step.bench: step.config["serve"]["input_tokens"] for step in planned}
    assert lengths == {"chat": 128, "chat-16": 16, "chat-32": 32}


TRACE = '{"session": "a", "turns": [{"input": "hello", "output_tokens": 4}]}\n'
REPLAY = """
chat:
  definition: x
  num_machines: 2
  docker_image: image
  plan: {method: multigpu}
  server: {argv: ["@port"], ready: {port: "@port"}}
  serve: {model: /m, rate: 1, trace: talks.jsonl}
"""


def test_a_trace_is_seen_where_the_client_is(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    nodes = (node(), replace(node("two", "10.0.0.2"), local=False, base="/far"))
    for place in ("talks.jsonl", "x/talks.jsonl"):
        (tmp_path / place).write_text(TRACE)
    server, client = steps(tmp_path, REPLAY, *nodes)
    assert client.config["serve"]["trace"] == server.config["serve"]["trace"] == str(tmp_path / "talks.jsonl")
    assert f"--volume={tmp_path}:{tmp_path}" in client.argv
    server, client = steps(tmp_path, REPLAY, *nodes, **{"talks.jsonl": "x/talks.jsonl"})
    assert server.config["serve"]["trace"] == "/suite/x/talks.jsonl"
    assert client.config["serve"]["trace"] == "/far/definitions/suite-x/talks.jsonl"
