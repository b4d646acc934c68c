from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

from milabench.display.base import Display, Tally
from milabench.display.live import ROWS, Live
from milabench.display.plain import Plain
from milabench.display.selection import choose_display
from milabench.events import wire
from milabench.events.model import Line
from milabench.plan.model import Plan, SkippedBench, Step


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def step(number: int = 0) -> Step:
    return Step(id=f"digits.D{number}", bench="digits", phase="run", argv=("python",))


def plan(steps: int = 2) -> Plan:
    skipped = (SkippedBench(bench="llama", why="not fetched"),)
    return Plan(phase="run", steps=tuple(step(number) for number in range(steps)), skipped=skipped)


def output(text: str) -> bytes:
    return wire.encode(Line(step="digits.D0", text=text, pipe="stdout"))


def a_run(display: Display, clock: Clock) -> None:
    display.on_plan(plan())
    display.on_start("digits.D0")
    for second in range(25):
        clock.now += 1
        last = {"task": "train", "rate": 800.0 + second, "units": "images/s", "progress": [second + 1, 60]}
        last["is_warmup"] = second < 5
        display.on_progress("digits.D0", last)
    display.on_line("digits.D0", output("epoch 1 \x1b[31mdone\n"))
    display.on_end("digits.D0", "passed", "", "816.50 images/s")
    display.on_end("digits.D1", "failed", "environment: no\nvenv")
    display.on_message("waiting: held by 42")
    display.close()


EXPECTED = """\
[    0.0s] run: 2 steps of 1 benchmark
[    0.0s] llama: skipped: not fetched
[    0.0s] 0/2 digits.D0: started
[    1.0s] 0/2 digits.D0: first observation, 1/60, 800.00 images/s warm-up
[   11.0s] 0/2 digits.D0: 11/60, 810.00 images/s so far
[   21.0s] 0/2 digits.D0: 21/60, 820.00 images/s so far
[   25.0s] 1/2 digits.D0: passed, 816.50 images/s, 25.0 s
[   25.0s] 2/2 digits.D1: failed: environment: no venv
[   25.0s] waiting: held by 42
[   25.0s] 2/2 done: 1 passed, 1 failed
"""


def test_plain_lines_tell_each_change_and_a_little_in_between() -> None:
    stream, clock = io.StringIO(), Clock()
    a_run(Plain(stream, clock=clock), clock)
    assert stream.getvalue() == EXPECTED


def test_the_output_of_steps_is_shown_when_asked_for_without_control_sequences() -> None:
    stream, clock = io.StringIO(), Clock()
    a_run(Plain(stream, is_verbose=True, clock=clock), clock)
    assert "digits.D0| epoch 1 done\n" in stream.getvalue()


def test_progress_without_a_rate_or_a_goal_is_shown_as_far_as_it_is_known() -> None:
    stream = io.StringIO()
    display = Plain(stream, clock=Clock())
    display.on_progress("a", {})
    display.on_progress("b", {"progress": [7, 0]})
    assert stream.getvalue() == "[    0.0s] 0/0 b: first observation, 7 steps\n"


def test_of_a_sweep_the_point_in_hand_is_shown_and_named_while_nothing_else_comes() -> None:
    stream, clock = io.StringIO(), Clock()
    display = Plain(stream, clock=clock)
    display.on_plan(plan())
    for name in ("digits.D0", "digits.D1"):
        display.on_start(name)
    display.on_progress("digits.D1", {"progress": [3, 3], "case": "concurrency=8"})
    clock.now += 60
    display.tick()
    assert stream.getvalue().splitlines()[-2:] == [
        "[    0.0s] 0/2 digits.D1: concurrency=8, 3 of 3",
        "[   60.0s] 0/2 digits.D1 and 1 more: started 60 s ago, concurrency=8, 3 of 3",
    ]
    terminal = Terminal()
    live = Live(terminal, clock=clock, size=(80, 24))
    live.on_start("digits.D1")
    live.on_progress("digits.D1", {"progress": [1, 7], "case": "rate=2.5"})
    clock.now += 1
    live.tick()
    assert "rate=2.5, 1 of 7" in terminal.getvalue()


def test_a_plan_that_grows_and_what_never_began_are_not_printed_line_by_line() -> None:
    stream = io.StringIO()
    display = Plain(stream)
    for steps in (2, 3, 4):
        display.on_plan(plan(steps))
    display.on_start("digits.D0")
    for number, outcome in enumerate(("cancelled", "cancelled", "failed", "passed")):
        display.on_end(f"digits.D{number}", outcome, "")
    said = [line.partition("] ")[2] for line in stream.getvalue().splitlines()]
    assert said[:3] == ["run: 2 steps of 1 benchmark", "llama: skipped: not fetched", "0/4 digits.D0: started"]
    assert [line.partition(": ")[0].partition(" ")[2] for line in said[3:]] == ["digits.D0", "digits.D2", "digits.D3"]


@pytest.mark.parametrize("kind", [Plain, Live])
def test_closing_a_display_whose_terminal_is_gone_is_no_error(kind: type[Plain] | type[Live]) -> None:
    stream = Terminal()
    display = kind(stream)
    display.on_plan(plan(1))
    stream.close()
    display.close()


def test_the_live_view_is_redrawn_at_most_once_a_second() -> None:
    stream, clock = Terminal(), Clock()
    display = Live(stream, clock=clock, size=(80, 24))
    display.on_plan(plan())
    clock.now += 1
    display.on_start("digits.D0")
    drawn = stream.tell()
    for number in range(50):
        display.on_progress("digits.D0", {"rate": float(number)})
    assert stream.tell() == drawn
    clock.now += 1
    display.tick()
    assert "49.00" in stream.getvalue()[drawn:]
    drawn = stream.tell()
    clock.now += 1
    display.tick()
    assert stream.tell() == drawn  # nothing changed
    clock.now += 9
    display.tick()
    assert re.search(r"\[12 s\].*digits.D0 +11 s", stream.getvalue()[drawn:], re.S)  # but time went on
    display.close()


def test_what_ended_is_not_shown_as_running_while_the_next_step_says_nothing() -> None:
    stream, clock = Terminal(), Clock()
    display = Live(stream, clock=clock, size=(80, 24))
    display.on_plan(plan())
    display.on_start("digits.D0")
    clock.now += 2
    display.on_end("digits.D0", "passed", "")
    below = stream.getvalue().rpartition("digits.D0")[2]
    assert "passed" in below and "1/2 done" in below and "0/2 done" not in below
    display.on_start("digits.D1")
    drawn = stream.tell()
    clock.now += 1
    display.tick()
    table = stream.getvalue()[drawn:]
    assert "digits.D1" in table and "digits.D0" not in table
    display.close()


def test_plain_lines_say_every_ten_seconds_what_runs_where_nothing_is_observed() -> None:
    stream, clock = io.StringIO(), Clock()
    display = Plain(stream, clock=clock)
    display.on_plan(plan())
    display.on_start("digits.D0")
    for _ in range(25):
        clock.now += 1
        display.tick()
    display.on_progress("digits.D0", {"progress": [1, 60]})
    display.on_start("digits.D1")
    for _ in range(11):
        clock.now += 1
        display.tick()
    lines = [line.partition("] ")[2] for line in stream.getvalue().splitlines()[3:]]
    assert lines == [
        "0/2 digits.D0: started 10 s ago, no observation yet",
        "0/2 digits.D0: started 20 s ago, no observation yet",
        "0/2 digits.D0: first observation, 1/60",
        "0/2 digits.D1: started",
        "0/2 digits.D0 and 1 more: started 35 s ago, no new observation",
    ]
    # What was observed since the last line about a step is said, though less than ten seconds have passed since that line.
    display.on_progress("digits.D0", {"progress": [2, 60]})
    clock.now += 9
    display.on_progress("digits.D0", {"progress": [40, 60]})
    clock.now += 1
    display.tick()
    assert stream.getvalue().endswith("0/2 digits.D0: 40/60\n")
    preparation = Plain(stream, clock=clock)
    preparation.on_plan(Plan(phase="prepare", steps=(step(),)))
    preparation.on_start("digits")
    clock.now += 10
    preparation.tick()
    assert stream.getvalue().endswith("] 0/1 digits: preparing, 10 s\n")


@pytest.mark.parametrize(("lines", "rows"), [(24, 21), (80, ROWS)])
def test_the_live_view_shows_no_more_rows_than_fit_and_never_more_than_its_limit(lines: int, rows: int) -> None:
    stream, clock = Terminal(), Clock()
    display = Live(stream, clock=clock, size=(80, lines))
    display.on_plan(plan(200))
    for number in range(200):
        display.on_start(f"digits.D{number}")
    start = stream.tell()
    clock.now += 1
    display.tick()
    shown = stream.getvalue()[start:]
    assert shown.count("digits.D") == rows
    assert f"and {200 - rows} more" in shown
    display.close()


def test_the_live_view_leaves_every_ending_on_the_screen() -> None:
    stream, clock = Terminal(), Clock()
    a_run(Live(stream, clock=clock, size=(100, 24)), clock)
    shown = stream.getvalue()
    for text in ("skipped: not fetched", "passed  816.50 images/s  25.0 s", "environment: no venv", "held by 42"):
        assert shown.count(text) == 1
    assert shown.rstrip().endswith("2/2 done: 1 passed, 1 failed")


@pytest.mark.parametrize(
    ("choice", "is_terminal", "term", "kind"),
    [
        ("auto", True, "xterm", Live),
        ("auto", True, "dumb", Plain),
        ("auto", False, "xterm", Plain),
        ("live", False, "xterm", Plain),
        ("plain", True, "xterm", Plain),
        ("none", True, "xterm", Display),
    ],
)
def test_a_display_that_is_redrawn_needs_a_terminal_that_can(
    choice: str, is_terminal: bool, term: str, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", term)
    display = choose_display(choice, Terminal() if is_terminal else io.StringIO())
    assert type(display) is kind
    display.close()


def test_plain_lines_need_no_rich(root: Path) -> None:
    program = "import sys; from milabench.display.selection import *; choose_display('auto', sys.stderr)"
    check = "print('rich' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", f"{program}; {check}"], capture_output=True, text=True, check=True, cwd=root
    )
    assert done.stdout == "False\n"


def test_activities_are_lines_in_a_log_and_not_more_often_than_every_ten_seconds() -> None:
    clock, stream = Clock(), io.StringIO()
    display = Plain(stream, clock=clock)
    for second in range(1, 25):
        clock.now += 1
        display.on_activities([f"torch: installing\x1b[2J, {second} s"] if second > 3 else [])
    assert stream.getvalue() == "  torch: installing␛[2J, 10 s\n  torch: installing␛[2J, 20 s\n"


def test_activities_are_the_table_of_a_terminal_and_messages_stand_above_them() -> None:
    stream = Terminal()
    display = Live(stream, clock=Clock(), size=(80, 24))
    assert display.is_redrawn
    display.on_activities(["torch: installing, 3 s"])
    display.on_message("  flax: ready: 3.0 s")
    display.on_activities(["torch: installing, 4 s"])
    display.close()
    shown = stream.getvalue()
    assert shown.index("installing, 3 s") < shown.index("flax: ready") < shown.rindex("installing, 4 s")
    assert "0/0 done" not in shown
    assert not display.is_redrawn
    display.on_activities(["torch: too late"])
    assert "too late" not in stream.getvalue()


@pytest.mark.parametrize(
    ("seconds", "at_the_start", "later"),
    [
        ({"digits": 100.0}, "0/2 digits.D0: started, about 3 min left", "about 2 min left"),
        ({"digits": 100.0, "llama": 5.0}, "0/2 digits.D0: started, about 3 min left", "about 2 min left"),
        ({}, "0/2 digits.D0: started\n", "no observation yet\n"),
    ],
)
def test_plain_lines_say_the_time_left_where_it_is_known(
    seconds: dict[str, float], at_the_start: str, later: str
) -> None:
    stream, clock = io.StringIO(), Clock()
    display = Plain(stream, clock=clock)
    display.on_estimate(seconds)
    display.on_plan(plan())
    display.on_start("digits.D0")
    assert at_the_start in stream.getvalue()
    display.on_end("digits.D0", "passed", "")
    display.on_start("digits.D1")
    clock.now += 10
    display.tick()
    assert later in stream.getvalue()


def test_the_time_left_says_that_there_is_more_where_a_benchmark_is_unknown() -> None:
    tally = Tally(seconds={"digits": 60.0})
    unknown = Step(id="sft.D0", bench="sft", phase="run", argv=("python",))
    tally.expect(Plan(phase="run", steps=(step(), unknown)))
    assert tally.left({"digits.D0": 20.0}) == ", more than 40 s left"
    tally.outcomes["digits.D0"] = "passed"
    assert tally.left({}) == ""


def test_the_live_view_says_the_time_left() -> None:
    stream, clock = Terminal(), Clock()
    display = Live(stream, clock=clock, size=(80, 24))
    display.on_estimate({"digits": 100.0})
    display.on_plan(plan())
    display.on_start("digits.D0")
    clock.now += 20
    display.tick()
    assert "[20 s, about 3 min left]" in stream.getvalue()
    display.close()
