"""Declared pauses: against a clock of the program's own."""

from __future__ import annotations

import os
import threading
import time

import pytest
from test_observer import Stop, measuring
from test_probes import run

from benchmate.clock import wait_for_devices
from benchmate.observed_loops import ObservedIterable
from benchmate.session import Session
from benchmate.summary_table import SummaryTable

CONFIG = {"measure": {"warmup_steps": 1, "warmup_s": 0, "window_steps": 4, "window_s": 0.2}}

VALIDATING = """
    import time
    class Model:
        def validate(self, epoch):
            time.sleep(0.05)
            if epoch == 1:
                raise ValueError("no data")
            return epoch

    def batches():
        yield from range(3)

    def report():
        yield

    if __name__ == "__main__":
        for epoch in range(1000):
            for batch in batches():
                time.sleep(0.01)
            begin = time.perf_counter_ns()
            try:
                answer = Model().validate(epoch=epoch)
                assert answer == epoch
            except ValueError:
                pass
            print(begin, time.perf_counter_ns(), flush=True)
"""
LOOP = 'probes.iterable(ov, "__main__.batches", units="items/s", batch_size=1)\n'


def test_each_call_of_a_function_is_a_pause_also_one_that_raises(agent, tmp_path):
    probe = LOOP + 'probes.pause(ov, "__main__.Model.validate", name="validation")'
    ran = run(agent, tmp_path, VALIDATING, probe, config=CONFIG)
    assert (ran.code, ran.stderr) == (0, "")
    stamps = [tuple(map(int, line.split())) for line in ran.stdout.splitlines()]
    pauses = [data for data in agent.records() if "pause" in data]
    assert [data["task"] for data in pauses] == ["main"] * len(stamps)
    assert len(stamps) >= 2
    for (begin, end), data in zip(stamps, pauses, strict=True):
        pause = data["pause"]
        assert pause["name"] == "validation"
        assert begin <= pause["start_ns"] < pause["stop_ns"] <= end
        assert end - begin - (pause["stop_ns"] - pause["start_ns"]) < 25_000_000


def test_pauses_are_no_part_of_the_seconds_of_a_window(agent, tmp_path):
    run(agent, tmp_path, VALIDATING, LOOP + 'probes.pause(ov, "__main__.Model.validate", name="v")', config=CONFIG)
    (window,) = agent.windows()
    pauses = [data["pause"] for data in agent.records() if "pause" in data]
    paused_ns = sum(max(0, pause["stop_ns"] - max(pause["start_ns"], window["start_ns"])) for pause in pauses)
    assert paused_ns > 50_000_000
    assert 200_000_000 <= window["stop_ns"] - window["start_ns"] - paused_ns < 400_000_000


@pytest.mark.parametrize(
    ("target", "said"),
    [("__main__.Model.valdiate", "Did you mean 'validate'"), ("__main__.report", "generator or async")],
)
def test_a_function_that_cannot_be_a_pause_fails_the_step(agent, tmp_path, target, said):
    ran = run(agent, tmp_path, VALIDATING, LOOP + f'probes.pause(ov, "{target}", name="v")', config=CONFIG)
    assert ran.code == 1
    assert said in " ".join(fail["detail"] for fail in agent.controls("fail"))


def test_a_function_that_is_not_called_in_the_window_is_no_failure(agent, tmp_path):
    config = {"measure": {"warmup_steps": 0, "warmup_s": 0, "window_steps": 2, "window_s": 0}}
    probe = LOOP + 'probes.pause(ov, "__main__.Model.validate", name="v")'
    assert run(agent, tmp_path, VALIDATING, probe, config=config).code == 0


def pauses(here: Session) -> list[tuple[str, int]]:
    """(name, whole milliseconds) of each."""
    found = [data["pause"] for data in here.sink.of("pause")]
    return [(pause["name"], (pause["stop_ns"] - pause["start_ns"]) // 1_000_000) for pause in found]


def test_pauses_inside_one_another_are_one():
    here = measuring()
    begin = time.perf_counter_ns()
    with pytest.raises(Stop), here.pause("validation"):
        time.sleep(0.01)
        with here.pause("checkpoint"):
            time.sleep(0.01)
        raise Stop
    took_ms = (time.perf_counter_ns() - begin) // 1_000_000
    ((name, paused_ms),) = pauses(here)
    assert name == "validation"
    assert took_ms - 9 <= paused_ms <= took_ms


def test_pauses_of_two_threads_at_once_are_one():
    here = measuring()
    inside = threading.Event()

    def save():
        with here.pause("checkpoint"):
            inside.set()
            time.sleep(0.05)

    other = threading.Thread(target=save)
    other.start()
    inside.wait()
    with here.pause("validation"):
        pass
    assert pauses(here) == []
    other.join()
    assert [name for name, _ in pauses(here)] == ["checkpoint"]


def test_the_pause_of_a_rank_says_which(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    here = measuring()
    with here.pause("validation"):
        pass
    (data,) = here.sink.of("pause")
    assert (data["task"], data["rank"]) == ("main", 1)


def test_a_forked_worker_pauses_nothing():
    here = measuring()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        here.forked()
        with here.pause("transform"):
            pass
        os.write(write, bytes([len(here.sink.of("pause"))]))
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 1) == b"\0"


def test_devices_finish_what_was_asked_of_them_before_a_pause(monkeypatch):
    waits = []
    monkeypatch.setattr("benchmate.session.wait_for_devices", lambda: waits.append(time.perf_counter_ns()))
    here = measuring()
    with here.pause("validation"):
        with here.pause("inner"):
            pass
        assert len(waits) == 1
    (data,) = here.sink.of("pause")
    assert waits[0] < data["pause"]["start_ns"] < waits[1] < data["pause"]["stop_ns"]
    wait_for_devices()


def test_without_an_agent_the_table_shows_the_wall_clock_less_the_pauses():
    table = SummaryTable()
    here = measuring(warmup=1, window=100, stop=None)
    monotonic = []
    for _ in ObservedIterable([None] * 4, here.observer("train", "items/s"), 1):
        monotonic.append(time.perf_counter())
        time.sleep(0.02)
    time.sleep(0.03)  # between two epochs
    with here.pause("validation"):
        time.sleep(0.05)
    for _ in ObservedIterable([None] * 4, here.observer("train", "items/s"), 1):
        time.sleep(0.02)
    end = time.perf_counter()
    here.finish()
    for event, data in here.sink.events:
        table.add(event, data)
    _header, row, *_ = table.text().splitlines()
    seconds = float(row.split()[3])
    paused = sum(data["pause"]["stop_ns"] - data["pause"]["start_ns"] for data in here.sink.of("pause")) / 1e9
    assert seconds == pytest.approx(end - monotonic[1] - paused, abs=0.02)
    assert float(row.split()[4].replace(",", "")) == pytest.approx(7 / seconds, rel=0.01)
    assert paused >= 0.05
    assert f"pause (validation): 1 of {paused:.3f} s together" in table.text()


def test_no_item_of_a_loop_in_a_pause_counts():
    here = measuring(window=100)
    observer = here.observer("train", "items/s")
    inner = ObservedIterable(range(7), observer, 1)
    for index in ObservedIterable(range(9), observer, 10):
        if index in (1, 6):
            with here.pause("validation"):
                assert list(inner) == list(range(7))
    here.finish()
    assert [data["n"] for data in here.sink.of("rate")] == [10] * 9
    assert here.failures == []


def test_an_iterator_that_a_pause_begins_is_observed_after_it():
    here = measuring(window=100)
    batches = iter(ObservedIterable(range(9), here.observer("train", "items/s"), 1))
    with here.pause("setup"):
        next(batches)
    assert list(batches) == list(range(1, 9))
    here.finish()
    assert len(here.sink.of("rate")) == 8
