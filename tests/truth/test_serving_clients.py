"""What each client of a sweep reports against the log of the server that it asked, whose times are known.

    pytest tests/truth/test_serving_clients.py -m e2e -k aiperf

One run of serving_clients/suite.yaml; its environment is made in a base of the session, or taken from MILABENCH_TRUTH_BASE. The
figures are those of `milabench report`; the server's log knows nothing of clients, records or reports.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from milabench.workflow.environments import requirements_of
from tests.commands import ROOT, milabench_in
from tests.truth.served import Served, data_records, figures, served_in

pytestmark = [pytest.mark.e2e, pytest.mark.long]

HERE = Path(__file__).parent / "serving_clients"
CLOSE, FAR = 0.01, 0.05
STALL_AT_S, STALL_S = 4.0, 2.0
CLOSED, OPEN = ("concurrency=1", "concurrency=4"), "rate=6"
POINTS: Mapping[str, Sequence[str]] = {
    "plain": (*CLOSED, OPEN),
    "vllm": (*CLOSED, OPEN),
    "aiperf": (*CLOSED, OPEN),
    "loadgen": (CLOSED[0], OPEN),
}
# A tokenizer of words, as the simulated server counts.
TOKENIZER: Mapping[str, object] = {
    "tokenizer.json": {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "model": {"type": "WordLevel", "vocab": {"?": 0}, "unk_token": "?"},
    },
    "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "?"},
}


@dataclass
class HostDelays:
    """How late threads wake up that only nap, one for each processor: what the host itself does to whoever waits there."""

    naps: list[tuple[float, float]] = field(default_factory=list)

    def __enter__(self) -> HostDelays:
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._nap, args=(processor,)) for processor in sorted(os.sched_getaffinity(0))[:8]
        ]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _nap(self, processor: int) -> None:
        os.sched_setaffinity(0, {processor})  # of this thread alone
        while not self._ended.is_set():
            before = time.time()
            time.sleep(0.01)
            self.naps.append((before, time.time() - before - 0.01))

    def allowance_ms(self, start: float, stop: float, name: str) -> float:
        """Return what a figure may be off by beside its 1 %: a request is delayed where it is sent and where it is received."""
        late = sorted(late for at, late in self.naps if start <= at <= stop)
        # One delay meets all the requests that are under way, and of a few those are a tenth.
        return 2e3 * late[round((0.98 if "_p50_" in name else 1.0) * (len(late) - 1))] if late else 0.0


@dataclass(frozen=True)
class Point:
    """A point as the report has it, its window and its requests as they are recorded, and what the server logged in that time."""

    reported: Mapping[str, Any]
    window: Mapping[str, Any]
    requests: Sequence[Mapping[str, Any]]
    served: Sequence[Served]
    delays: HostDelays

    def value(self, name: str) -> float:
        """A figure of the report."""
        return float(self.reported["values"][name]["value"])

    def assert_is_the_servers(self, *names: str) -> None:
        """Hold these figures, without names every latency and the throughput, against the server's log.

        A figure that only the host's delays can excuse, and that is far off, tells nothing: the test is skipped and says so.
        """
        own = figures(self.served)
        start, stop = self.window["start"], self.window["stop"]
        wrong, unknown = {}, {}
        for name in names or own:
            off, allowed = abs(self.value(name) - own[name]), self.delays.allowance_ms(start, stop, name)
            if off > CLOSE * own[name] + allowed:
                wrong[name] = (self.value(name), own[name])
            elif off > FAR * own[name]:
                unknown[name] = (self.value(name), own[name], allowed)
        assert wrong == {}
        if unknown:
            pytest.skip(f"the host delays whoever waits (reported, the server's, allowed for it): {unknown}")


@dataclass(frozen=True)
class Place:
    """The run, its report, and where the server's logs are."""

    base: Path
    folder: Path
    benches: Mapping[str, Mapping[str, Any]]
    delays: HostDelays

    def log(self, bench: str) -> Path:
        """What the server of a benchmark wrote."""
        return self.base / "data" / f"{bench}.jsonl"

    def point(self, bench: str, name: str) -> Point:
        """A point of a benchmark that was measured."""
        assert self.benches[bench]["outcome"] == "passed", self.benches[bench]["failures"]
        (reported,) = [point for point in self.benches[bench]["serving"]["points"] if point["name"] == name]
        assert reported["state"] == "measured", reported["why"]
        records = self.folder / f"{bench}.0.client.data"
        (window,) = [point for point in data_records(records, "point") if point["name"] == name]
        requests = [request for request in data_records(records, "request") if request["point"] == name]
        served = served_in(self.log(bench), window["start"], window["stop"])
        assert len(served) == len(requests) == reported["requests"]
        return Point(reported, window, requests, served, self.delays)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """All clients, run once in one environment."""
    folder = tmp_path_factory.mktemp("serving")
    given = os.environ.get("MILABENCH_TRUTH_BASE")
    base = Path(given) if given else folder / "base"
    for file in ("suite.yaml", "trace.jsonl"):
        shutil.copy(HERE / file, folder)
    (folder / "program").mkdir()
    shutil.copy(HERE / "benchfile.py", folder / "program")
    for source in requirements_of(ROOT / "benchmarks" / "serving").glob("requirements*cpu*"):
        shutil.copy(source, folder / "program")
    words = base / "data" / "words"
    words.mkdir(parents=True, exist_ok=True)
    for name, content in TOKENIZER.items():
        (words / name).write_text(json.dumps(content))
    for log in (base / "data").glob("*.jsonl"):
        log.unlink()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MILABENCH_")}
    milabench = milabench_in({**kept, "MILABENCH_BASE": str(base), "MILABENCH_LOCK_DIR": str(folder / "locks")})
    suite = ("--config", str(folder / "suite.yaml"))
    installed = milabench("install", *suite)
    assert installed.code == 0, installed.err
    run = f"clients-{os.getpid()}"
    with HostDelays() as delays:
        milabench("run", *suite, "--run-name", run)
    (records,) = (base / "runs").glob(f"{run}.*")
    benches = {bench["bench"]: bench for bench in json.loads(milabench("report", run, "--json").out)["benchmarks"]}
    yield Place(base, records, benches, delays)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize(("client", "name"), [(client, name) for client, names in POINTS.items() for name in names])
def test_every_latency_and_the_throughput_are_those_of_the_servers_own_log(
    place: Place, client: str, name: str
) -> None:
    point = place.point(client, name)
    assert point.reported["errors"] == 0
    assert {request.output_tokens for request in point.served} == {20}
    point.assert_is_the_servers()


def test_all_requests_at_once_have_the_throughput_of_the_servers_own_log(place: Place) -> None:
    point = place.point("loadgen", "scenario=offline")
    # Two dozen connections are opened in one moment, which the first tokens wait for.
    point.assert_is_the_servers("output_tps", "e2e_p50_ms")


@pytest.mark.parametrize("name", [*CLOSED, OPEN])
@pytest.mark.parametrize("figure", ["ttft_p50_ms", "tpot_p50_ms", "itl_p50_ms", "e2e_p50_ms"])
def test_the_clients_agree_with_each_other(place: Place, name: str, figure: str) -> None:
    points = {client: place.point(client, name) for client, names in POINTS.items() if name in names}
    values = {client: point.value(figure) for client, point in points.items()}
    middle = statistics.median(values.values())
    allowed = {
        client: CLOSE * middle + place.delays.allowance_ms(point.window["start"], point.window["stop"], figure)
        for client, point in points.items()
    }
    assert {client: value for client, value in values.items() if abs(value - middle) > allowed[client]} == {}


@pytest.mark.parametrize("client", POINTS)
def test_requests_that_fail_are_counted_and_are_in_no_other_figure(place: Place, client: str) -> None:
    point = place.point(f"{client}-errors", OPEN)
    failed = [request for request in point.served if request.error]
    assert {request.error for request in failed} == {"error on request", "closed early"}
    assert point.reported["errors"] == len(failed)
    point.assert_is_the_servers()


@pytest.mark.parametrize("client", POINTS)
def test_an_open_loop_sends_on_time_while_the_server_stands_still(place: Place, client: str) -> None:
    point = place.point(f"{client}-stall", "rate=20")
    log = place.log(f"{client}-stall").read_text().splitlines()
    begin = min(json.loads(line)["received"] for line in log) + STALL_AT_S
    due = [request for request in point.requests if begin <= request["due"] <= begin + STALL_S]
    came = [request for request in point.served if begin <= request.received <= begin + STALL_S]
    # About forty are due in two seconds. One client that waited for an answer would send none of them.
    assert len(due) >= 20
    assert abs(len(came) - len(due)) <= 2
    # They wait for as long as the server does, and what they waited is in their time to the first token.
    answers = {request["index"]: request["at"] + request["first"] for request in due}
    assert min(answers.values()) >= begin + STALL_S
    point.assert_is_the_servers("ttft_p90_ms", "e2e_p90_ms", "output_tps")


def test_sessions_of_turns_are_replayed_alike(place: Place) -> None:
    """Each turn brings the ones before it and their answers, and waits for as long as the trace says."""
    plain, aiperf = (
        sorted((request["index"], request["input_tokens"], request["output_tokens"]) for request in point.requests)
        for point in (place.point(f"{client}-turns", "concurrency=2") for client in ("plain", "aiperf"))
    )
    assert [request[1:] for request in plain[:3]] == [(10, 4), (10 + 4 + 3, 6), (10 + 4 + 3 + 6 + 5, 3)]
    assert aiperf == plain
    by_index = {request["index"]: request for request in place.point("aiperf-turns", "concurrency=2").requests}
    turns = [(by_index[index - 1], request) for index, request in by_index.items() if index % 3]
    assert min(after["at"] - before["at"] - before["end"] for before, after in turns) >= 0.5
