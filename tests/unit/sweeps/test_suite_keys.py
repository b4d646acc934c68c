"""What a suite may say of a sweep over a server, and what it may not, with its place and a hint."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from milabench.analysis.intervals import most_bounds
from milabench.analysis.serving_model import POINT_METRICS
from milabench.config.read import read_suite
from milabench.config.schema import BenchmarkConfig
from milabench.config.serving import SLO_NAMES, ServeConfig
from milabench.config.show import explain, to_yaml
from milabench.errors import ConfigError

ROOT = Path(__file__).resolve().parents[3]
SERVER = "server: {argv: {--port: '@port'}, ready: {port: '@port'}}"


class Suites:
    """Writes suites with one sweep, and reads them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def bench(self, serve: str, others: str = f"definition: x, {SERVER}") -> BenchmarkConfig:
        file = self.folder / "suite.yaml"
        file.write_text(f"a: {{{others}, serve: {serve}}}\n")
        return read_suite([file]).benchmarks["a"]

    def serve(self, text: str) -> Any:
        serve = self.bench(f"{{model: /m, {text}}}").serve
        assert serve is not None
        return serve

    def error(self, *texts: str) -> str:
        with pytest.raises(ConfigError) as caught:
            self.bench(*texts)
        return str(caught.value).replace(f"{self.folder}/", "")


@pytest.fixture
def suites(tmp_path: Path) -> Suites:
    return Suites(tmp_path)


def test_a_limit_of_the_slo_is_a_number_of_a_point() -> None:
    assert set(SLO_NAMES) <= POINT_METRICS.keys()
    in_ms = {name for name, metric in POINT_METRICS.items() if metric.units == "ms"}
    assert set(SLO_NAMES) == {*in_ms, "error_rate"}


def test_a_number_is_a_list_of_one_point(suites: Suites) -> None:
    serve = suites.serve("client: loadgen, concurrency: 4, rate: [0.5, 1], scenario: offline")
    assert (serve.concurrency, serve.rate, serve.scenario, serve.points) == ((4,), (0.5, 1), ("offline",), 4)


@pytest.mark.parametrize("length", [100, {"mean": 100, "stddev": 20.5}, {"least": 10, "most": 10}])
def test_lengths_are_a_number_or_a_distribution(suites: Suites, length: Any) -> None:
    assert suites.serve(f"concurrency: 1, output_tokens: {length}").output_tokens == length


@pytest.mark.parametrize(
    ("serve", "line"),
    [
        ("{concurrency: 1}", "a.serve: the key 'model' is missing. Name the model that requests ask for"),
        ("{model: /m}", "a.serve: a sweep needs a point. Give concurrency, rate or scenario"),
        ("{model: /m, concurrency: []}", "a.serve: a sweep needs a point"),
        ("{model: /m, concurrency: [1, 2, 1]}", "a.serve.concurrency.2: 1 is there twice. Remove a copy"),
        ("{model: /m, rate: [2, 2.0]}", "a.serve.rate.1: 2.0 is there twice"),
        ("{model: /m, concurrency: 0}", "a.serve.concurrency.0: expected a whole number that is at least 1, got 0"),
        ("{model: /m, rate: -1}", "a.serve.rate.0: expected a number that is at least 0.001, got -1"),
        ("{model: /m, rate: 1e-300}", "a.serve.rate.0: expected a number that is at least 0.001, got 1e-300"),
        ("{model: /m, rate: 1e300}", "a.serve.rate.0: expected a number that is at most 1000000, got 1e300"),
        (
            "{model: /m, rate: 1, requests: 1000000000000}",
            "a.serve.requests: expected a whole number that is at most 1",
        ),
        (
            "{model: /m, rate: [1, 1000], seconds: 1e4}",
            "a.serve: a point would have 1e+07 requests, 1000000 are the most. Give fewer requests, rounds or seconds",
        ),
        (
            # Its rounds are full.
            "{model: /m, concurrency: 600000, requests: 700000, rounds: 1}",
            "a.serve: a point would have 1.2e+06 requests, 1000000 are the most",
        ),
        (
            "{model: /m, concurrency: [1, 1000000], rounds: 2}",
            "a.serve: a point would have 2e+06 requests, 1000000 are the most",
        ),
        ("{model: /m, rate: 1, seconds: -1}", "a.serve.seconds: expected a number that is at least 0, got -1"),
        ("{model: /m, rate: 1, requests: 0}", "a.serve.requests: expected a whole number that is at least 1, got 0"),
        (
            "{model: /m, rate: 1, client: vlm}",
            "a.serve.client: expected one of vllm, aiperf, loadgen, plain, got 'vlm'. Did",
        ),
        ("{model: /m, scenario: offline}", "a.serve.scenario: vllm has no scenarios. Write client: loadgen, or give"),
        (
            "{model: /m, rate: 1, slo: {ttft_p95_ms: 1}}",
            "a.serve.slo: unknown key 'ttft_p95_ms'. Did you mean 'ttft_p9",
        ),
        ("{model: /m, rate: 1, slo: {goodput: 1}}", "a.serve.slo: unknown key 'goodput'. Known: e2e_p50_ms, "),
        (
            "{model: /m, rate: 1, slo: {error_rate: 2}}",
            "a.serve.slo.error_rate: expected a number that is at most 1, got 2",
        ),
        (
            "{model: /m, rate: 1, input_tokens: {mean: 3}}",
            "a.serve.input_tokens: expected a number of tokens, {mean, stddev}",
        ),
        (
            "{model: /m, rate: 1, input_tokens: {least: 3, most: 2}}",
            "a.serve.input_tokens: `least` (3) is above `most` (2)",
        ),
        ("{model: /m, rate: 1, input_tokens: 1.5}", "a.serve.input_tokens: expected a whole number, got 1.5"),
        (
            "{model: /m, rate: 1, prefix_tokens: 100, input_tokens: 8}",
            "a.serve.prefix_tokens: 100 is above input_tokens, 8, of which it is a part. Give a longer input or a shorter",
        ),
        ("{model: /m, rate: 1, prefix_tokens: 129}", "a.serve.prefix_tokens: 129 is above input_tokens, 128, of"),
        (
            "{model: /m, rate: 1, prefix_tokens: 9, input_tokens: {mean: 8, stddev: 1}}",
            "a.serve.prefix_tokens: 9 is above input_tokens.mean, 8, of",
        ),
        (
            "{model: /m, rate: 1, prefix_tokens: 9, input_tokens: {least: 8, most: 100}}",
            "a.serve.prefix_tokens: 9 is above input_tokens.least, 8, of",
        ),
        (
            "{model: /m, rate: 1, request_options: {max_tokens: 3}}",
            "a.serve.request_options.max_tokens: the client itself sets it. Write serve.output_tokens",
        ),
        (
            "{model: /m, rate: 1, request_options: {top_p: 1, stream: false}}",
            "a.serve.request_options.stream: the client itself sets it. Leave it out: times are measured on a stream",
        ),
        (
            "{model: m, rate: 1}",
            "a.serve.model: m/tokenizer.json is not a whole path. In serve.tokenizer name its folder, as {mila",
        ),
        ("{model: m, rate: 1, tokenizer: ./m}", "a.serve.tokenizer: ./m/tokenizer.json is not a whole path. In serve."),
        ("{model: /m, rate: 1, retries: 3}", "a.serve: unknown key 'retries'"),
    ],
)
def test_a_sweep_that_cannot_be_run_is_refused(suites: Suites, serve: str, line: str) -> None:
    said = suites.error(serve)
    assert said.startswith("suite.yaml:1:")
    assert line in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("others", "more", "line"),
    [
        ("definition: x", "", "a.serve: a sweep needs a server. Write server: {command"),
        ("server: {url: 'http://h:1'}", "", "a.serve: its client needs an environment. Write definition: FOLDER"),
        (
            "definition: x, server: {url: 'http://h:1', ready: {port: 1}}",
            "",
            "a.server.ready: server.url names a server that runs already. Leave out either of them",
        ),
        (
            "definition: x, server: {url: 'http://h:1'}",
            ", on_server_exit: restart",
            "a.serve.on_server_exit: nobody here starts the server of server.url. Leave it out",
        ),
        (
            "definition: x, server: {url: 'http://me:secret@h:1'}",
            "",
            "a.server.url: expected http://HOST:PORT or https://HOST, without a password, got",
        ),
        (SERVER, "", "a.serve: its client needs an environment. Write definition: FOLDER"),
        (
            f"definition: x, command: run, {SERVER}",
            "",
            "a.command: with a sweep it would be server and client. Write it as",
        ),
        (
            "definition: x, server: {argv: [a], ready: up}",
            "",
            "a.server: the client does not know its port: ready has none",
        ),
        (
            "definition: x, server: {argv: ['@port'], ready: up}",
            ", on_server_exit: restart",
            "a.serve.on_server_exit: nobody would know when the server is back. Write server.ready: {port",
        ),
    ],
)
def test_a_sweep_in_a_benchmark_that_cannot_have_one_is_refused(
    suites: Suites, others: str, more: str, line: str
) -> None:
    assert line in suites.error(f"{{model: /m, rate: 1{more}}}", others)


def test_only_a_sweep_goes_to_a_server_that_runs_already(tmp_path: Path) -> None:
    file = tmp_path / "suite.yaml"
    file.write_text("a: {definition: x, server: {url: 'http://h:1'}}\n")
    with pytest.raises(
        ConfigError, match=r"a\.server\.url: only a sweep goes to a server that runs already. Write serve:"
    ):
        read_suite([file])


GOOD = '{"session": "a", "turns": [{"input": "hello", "output_tokens": 4, "delay_ms": 0.5}, {"input": "more"}]}\n'


def test_a_trace_is_beside_its_suite(suites: Suites) -> None:
    (suites.folder / "talks.jsonl").write_text(GOOD + "\n" + GOOD)
    assert suites.serve("rate: 1, trace: talks.jsonl").trace == str(suites.folder / "talks.jsonl")


@pytest.mark.parametrize("tokenizer", ["words", "/models/m", "'{milabench_data}/m'"])
def test_a_model_of_any_name_has_a_tokenizer_that_can_be_found(suites: Suites, tokenizer: str) -> None:
    assert suites.bench(f"{{model: m, rate: 1, tokenizer: {tokenizer}}}").serve.tokenizer == tokenizer.strip("'")


def test_other_keys_of_a_request_are_as_they_are_written(suites: Suites) -> None:
    serve = suites.serve(
        "rate: 1, request_options: {ignore_eos: null, stream_options: {include_usage: true}, stop: [a]}"
    )
    assert serve.request_options == {"ignore_eos": None, "stream_options": {"include_usage": True}, "stop": ["a"]}


def test_a_line_of_a_trace_ends_where_json_lines_end(suites: Suites) -> None:
    # JSON may hold line separators of Unicode; editors may put a mark before the first line.
    (suites.folder / "talks.jsonl").write_text("\ufeff" + GOOD.replace("hello", "hel\u2028lo\u0085") + " \n")
    assert suites.serve("rate: 1, trace: talks.jsonl").trace == str(suites.folder / "talks.jsonl")


def test_a_trace_that_is_prepared_is_not_looked_for(suites: Suites) -> None:
    assert suites.serve("rate: 1, trace: '{milabench_data}/talks.jsonl'").trace == "{milabench_data}/talks.jsonl"


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (None, ": cannot be read: no such file or directory. Is the path right?"),
        ("", ": it has no line. A line is"),
        (GOOD + "hello\n", ":2: not JSON. A line is"),
        (GOOD + "\n[1]\n", ":3: it is [1], not a mapping"),
        ('{"session": "a"}\n', ":1: it has no turns"),
        ('{"turns": []}\n', ":1: turns is [], not a list of length >= 1"),
        ('{"turns": [{"input": "a"}, {"output_tokens": 3}]}\n', ":1: turns.1 has no input"),
        (
            '{"turns": [{"input": "a", "output_tokens": 0}]}\n',
            ":1: turns.0.output_tokens is 0, not a whole number >= 1",
        ),
        ('{"turns": [{"input": "a", "delay_ms": -1}]}\n', ":1: turns.0.delay_ms is -1, not a number >= 0"),
    ],
)
def test_a_file_that_is_no_trace_is_refused_with_its_line(suites: Suites, content: str | None, what: str) -> None:
    if content is not None:
        (suites.folder / "talks.jsonl").write_text(content)
    said = suites.error("{model: /m, rate: 1, trace: talks.jsonl}")
    assert f"a.serve.trace: talks.jsonl{what}" in said
    assert "\n" not in said


@pytest.mark.parametrize("key", ["input_tokens", "prefix_tokens"])
def test_a_trace_has_prompts_of_its_own(suites: Suites, key: str) -> None:
    (suites.folder / "talks.jsonl").write_text(GOOD)
    said = suites.error(f"{{model: /m, rate: 1, trace: talks.jsonl, {key}: 3}}")
    assert f"a.serve.{key}: a trace has prompts of its own. Leave out {key} or trace" in said


def test_what_is_shown_reads_back_the_same(suites: Suites) -> None:
    (suites.folder / "talks.jsonl").write_text(GOOD)
    serve = "{model: '{milabench_data}/m', rate: [1], trace: talks.jsonl, slo: {itl_p99_ms: 9}, request_options: {stop: [1]}}"
    others = (
        "definition: x, server: {command: [run, it], argv: ['@port'], ready: {port: '@port', path: /up, timeout: 9}}"
    )
    bench = suites.bench(serve, others)
    suite = read_suite([suites.folder / "suite.yaml"])
    again = suites.folder / "again.yaml"
    again.write_text(to_yaml(suite))
    assert read_suite([again]).benchmarks["a"] == bench
    assert explain(suite, "a.serve.requests") == ("a.serve.requests = 32", "  built-in default")
    assert explain(suite, "a.serve.rate")[0] == "a.serve.rate = [1]"


def test_a_size_that_is_not_chosen_is_checked_key_by_key(suites: Suites) -> None:
    sized = f"definition: x, {SERVER}, sizes: {{device: {{}}, tiny: {{serve: {{requests: 8, slo: {{x: 1}}}}}}}}"
    assert "a.sizes.tiny.serve.slo: unknown key 'x'" in suites.error("{model: /m, rate: 1}", sized)


def test_routing_and_acceptance_are_written_only_where_they_are_declared() -> None:
    assert not {"expert_routing", "acceptance_length"} & set(ServeConfig().to_json())
    stated = ServeConfig(expert_routing="uniform_random", acceptance_length=3.2).to_json()
    assert (stated["expert_routing"], stated["acceptance_length"]) == ("uniform_random", 3.2)


@pytest.mark.parametrize("file", ["config/serving.yaml", "config/suite/serving.yaml"])
def test_shipped_sweeps_have_as_many_requests_as_their_quantiles_need(file: str) -> None:
    text = (ROOT / file).read_text()
    limits = [int(share) for share in re.findall(r"_p(\d\d)_ms", re.sub(r"#.*", "", text))]
    counts = [int(count) for count in re.findall(r"requests: (\d+)", re.sub(r"#.*", "", text))]
    assert limits and counts
    assert min(counts) >= most_bounds(max(limits) / 100)
