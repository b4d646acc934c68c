"""What stands between a client of somebody else's and a point: its input, its command, what is read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmate.serving.clients import ClientFailed, aiperf, loadgen
from benchmate.serving.figures import point_figures, point_notes
from benchmate.serving.load import LoadPoint, PlannedRequest, RequestResult, Target, Workload

CLOSED, OPEN = LoadPoint(name="concurrency=2", concurrency=2), LoadPoint(name="rate=4", rate=4.0, arrivals="constant")
TARGET = Target(url="http://h:1", model="m", options={"ignore_eos": True}, arguments=("--workers-max", "1"))


def planned(*lengths: int, delay_s: float = 0.5) -> tuple[PlannedRequest, ...]:
    return tuple(
        PlannedRequest(text=f"text {length}", input_tokens=2, output_tokens=length, delay_s=delay_s if turn else 0.0)
        for turn, length in enumerate(lengths)
    )


def aiperf_record(conversation: str, turn: int = 0, *, start_s: float = 100.0, **metrics: Any) -> dict[str, Any]:
    where = {"conversation_id": conversation, "turn_index": turn, "request_start_ns": int(start_s * 1e9)}
    return {"metadata": where, "metrics": {name: {"value": value} for name, value in metrics.items()}}


ANSWERED = {"time_to_first_token": 200.0, "inter_chunk_latency": [50.0, 51.0], "usage_completion_tokens": 3}


def test_aiperf_gets_the_sessions_by_their_index_after_what_warms_it_up() -> None:
    workload = Workload(sessions=(planned(4, 5), planned(6)))
    *warm_up, first, second = aiperf.input_lines(CLOSED, workload)
    assert [line["session_id"] for line in warm_up] == ["warm-up 0", "warm-up 1"]
    assert first == {
        "session_id": "0",
        "turns": [{"text": "text 4", "output_length": 4}, {"text": "text 5", "output_length": 5, "delay": 500.0}],
    }
    assert second["session_id"] == "1"


def test_an_open_loop_of_aiperf_has_a_time_for_each_session() -> None:
    lines = list(aiperf.input_lines(OPEN, Workload(sessions=(planned(4), planned(4)))))
    begin = aiperf.WARMUP_S * 1e3
    assert [line["timestamp"] for line in lines[-2:]] == [begin, begin + 250.0]
    assert {line["timestamp"] for line in lines[:-2]} == {0.0}
    words = aiperf.arguments(TARGET, OPEN, Workload(sessions=()), Path("in"), Path("/tok"))
    assert "--fixed-schedule" in words and "--concurrency" not in words


def test_aiperf_counts_tokens_by_the_server_and_takes_the_arguments_of_the_suite_last() -> None:
    words = aiperf.arguments(TARGET, CLOSED, Workload(sessions=(planned(4),)), Path("/f/in"), Path("/tok"))
    assert "--use-server-token-count" in words
    assert words[-2:] == ["--workers-max", "1"]
    assert words[words.index("--conversation-num") + 1] == "1"


def test_a_record_of_aiperf_is_a_request() -> None:
    workload = Workload(sessions=(planned(3), planned(3)))
    records = [aiperf_record("warm-up 0"), aiperf_record("1", **ANSWERED)]
    (request,) = aiperf.point_result(records, {}, CLOSED, workload).requests
    assert request == RequestResult(
        index=1, at=100.0, first=0.2, end=pytest.approx(0.301), gaps_us=(50000, 51000), output_tokens=3
    )


def test_what_the_server_answers_wrongly_is_the_error_of_a_record() -> None:
    body = '{"error": {"message": "the maximum context length\\nis 8"}}'
    record = aiperf_record("0") | {"error": {"code": 400, "type": "Bad Request", "message": body}}
    (request,) = aiperf.point_result([record], {}, CLOSED, Workload(sessions=(planned(3),))).requests
    assert request.error == "HTTP 400: the maximum context length is 8"
    assert request.first is None


def test_of_tokens_that_came_together_neither_aiperf_nor_its_records_tell_the_gaps() -> None:
    summary = {name: {"p50": 1.0, "p90": 2.0, "p99": 3.0} for name in ("inter_token_latency", "inter_chunk_latency")}
    record = aiperf_record("0", **(ANSWERED | {"usage_completion_tokens": 5}))
    workload = Workload(sessions=(planned(5),))
    point = aiperf.point_result([record], summary, CLOSED, workload)
    assert (point.requests[0].tokens, point.requests[0].output_tokens) == ((), 5)
    assert point_figures(point.requests)["tpot_p50_ms"] == pytest.approx(101 / (5 - 5 / 3))
    (note,) = point_notes(CLOSED, workload, point.requests, point.client)
    assert note.startswith("chunks: 5 tokens came in 3 pieces")


def test_a_request_of_aiperfs_open_loop_was_due_by_the_least_late_one() -> None:
    workload = Workload(sessions=(planned(3), planned(3, 3)))
    records = [
        aiperf_record("0", start_s=100.02, **ANSWERED),
        aiperf_record("1", start_s=100.25, **ANSWERED),
        aiperf_record("1", 1, start_s=101.1, **ANSWERED),
    ]
    requests = aiperf.point_result(records, {}, OPEN, workload).requests
    assert [request.due for request in requests] == pytest.approx([100.0, 100.25, 100.25 + 0.301 + 0.5])


def test_why_aiperf_failed_is_one_line(tmp_path: Path) -> None:
    output = tmp_path / "output.txt"
    output.write_text("│ Error: CommandError │\n│ Reason: no tokenizer in │\n│    /tok │\n│ • Service: x │\n")
    assert aiperf.last_words(output) == "no tokenizer in /tok"
    output.write_text("one\n\nlast\n")
    assert aiperf.last_words(output) == "last"


@pytest.mark.parametrize(
    ("point", "scenario"),
    [
        (LoadPoint(name="rate=2", rate=2.0), "Server"),
        (LoadPoint(name="concurrency=1", concurrency=1), "SingleStream"),
        (LoadPoint(name="scenario=single_stream", scenario="single_stream"), "SingleStream"),
        (LoadPoint(name="scenario=offline", scenario="offline"), "Offline"),
    ],
)
def test_each_point_that_loadgen_knows_is_a_scenario(point: LoadPoint, scenario: str) -> None:
    assert loadgen.scenario_of(point) == scenario


@pytest.mark.parametrize(("point", "said"), [(CLOSED, "concurrency=2"), (OPEN, "poisson")])
def test_a_point_that_loadgen_has_not_is_refused_before_it_starts(point: LoadPoint, said: str) -> None:
    with pytest.raises(ClientFailed, match=said):
        loadgen.scenario_of(point)


def test_sessions_of_turns_are_refused_where_a_client_has_none(tmp_path: Path) -> None:
    workload = Workload(sessions=(planned(3, 3),))
    with pytest.raises(ClientFailed, match="turns"):
        loadgen.CLIENT.measure(TARGET, LoadPoint(name="rate=2", rate=2.0), workload, tmp_path)
    with pytest.raises(ClientFailed, match="chat"):
        aiperf.CLIENT.measure(TARGET, CLOSED, workload, tmp_path)


def test_the_arguments_of_loadgen_are_its_settings() -> None:
    assert loadgen.settings(OPEN, ("min_duration_ms=600000",))["min_duration_ms"] == 600000
    with pytest.raises(ClientFailed, match="NAME=NUMBER"):
        loadgen.settings(OPEN, ("--fast",))


SUMMARY = """Result is : INVALID
  Min duration satisfied : Yes
  Early stopping satisfied: NO
Completed tokens per second: 82.0
50.00 percentile latency (ns)   : 400000000
50.00 percentile first token latency (ns)   : 200000000
"""


def answer(index: int, *, late_s: float = 0.0, first: float = 0.2, end: float = 0.4) -> RequestResult:
    return RequestResult(index=index, at=100.0 + late_s, due=100.0, first=first, end=end, output_tokens=3)


def test_an_invalid_result_of_loadgen_is_a_note_with_its_reason() -> None:
    (note,) = loadgen.invalid_notes(SUMMARY)
    assert "INVALID" in note and "early stopping satisfied" in note and "duration" not in note
    assert not list(loadgen.invalid_notes("Result is : VALID\n"))


def test_figures_of_loadgen_that_the_records_do_not_give_are_a_note() -> None:
    assert not list(loadgen.differences(SUMMARY, [answer(0)]))
    (note,) = loadgen.differences(SUMMARY, [answer(0, first=0.21)])
    assert note.startswith("client differs: TTFT p50 is 200.00 ms by loadgen, 210.00 ms")


def test_loadgen_counts_from_when_a_request_was_due() -> None:
    assert not list(loadgen.differences(SUMMARY, [answer(0, late_s=0.05, first=0.15, end=0.35)]))


def test_the_trace_says_when_a_query_was_due() -> None:
    trace = '{"name":"Sample","cat":"default","ph":"b","id":1,"args":{"sample_seq":1,"query_seq":1,"issue_start_ns":2000000}},\n'
    requests = loadgen.with_due_times([answer(0), answer(1)], trace)
    assert [request.due for request in requests] == pytest.approx([100.0, 99.998])
