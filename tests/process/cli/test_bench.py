"""`milabench bench`: any command in one line, measured as a benchmark of a suite is."""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import pty
import signal
import statistics
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands import PYTHON, ROOT, Said
from tests.processes import started, until

# The time of a launch by its own clock, from its first line to its last.
CLOCK = "import time; begin = time.monotonic(); time.sleep(0.25); print('own', time.monotonic() - begin)"


@pytest.fixture
def bench(milabench: Callable[..., Said]) -> Callable[..., Said]:
    """`milabench bench ARGUMENTS`."""

    def run(*argv: str, **more: Any) -> Said:
        return milabench("bench", "--display", "none", *argv, **more)

    return run


def run_of(environ: dict[str, str]) -> Path:
    """The one run below the base."""
    (run,) = Path(environ["MILABENCH_BASE"], "runs").iterdir()
    return run


def wall_of(records: Path) -> float:
    """The seconds of a launch by its records."""
    seconds: float = json.loads(records.read_text().splitlines()[-1])["data"]["wall_s"]
    return seconds


def summary_of(milabench: Callable[..., Said], run: Path) -> dict[str, Any]:
    """What its report says."""
    summary: dict[str, Any] = json.loads(milabench("report", "--json", str(run)).out)
    return summary


def test_the_number_is_the_seconds_of_a_launch_and_is_a_run_like_any_other(
    bench: Callable[..., Said], milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    begin = time.monotonic()
    said = bench("--runs", "4", "--warmup", "1", "--", sys.executable, "-S", "-c", CLOCK)
    lasted = time.monotonic() - begin
    assert said.code == 0, said.err
    run = run_of(environ)  # that of the warm-up is gone
    summary = summary_of(milabench, run)
    (result,) = summary["benchmarks"]
    assert (result["units"], result["direction"], result["counts"]["passed"]) == ("s", "lower", 4)
    own = [float(path.read_text().split()[1]) for path in run.glob("*.stdout")]
    walls = [wall_of(path) for path in run.glob("*.data")]
    # By other clocks: more than the program saw from inside, and all together less than the whole command took.
    assert all(wall > seen for wall, seen in zip(sorted(walls), sorted(own), strict=True))
    assert sum(walls) < lasted
    assert min(walls) <= result["perf"] <= max(walls)
    assert result["bench"] in said.out
    # Later commands take it as a run.
    assert milabench("compare", str(run), str(run)).code == 0
    assert milabench("bundle", "-o", str(tmp_path / "run.zip"), str(run)).code == 0
    assert milabench("db", "add", str(run)).code == 0
    assert "all of its 4 steps have passed" in milabench("resume").err


def test_the_time_does_not_hold_what_runs_before_the_command(
    bench: Callable[..., Said], milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    clock = f"{PYTHON} -S -c 'import time; print(time.monotonic())' >> {trace}"
    said = bench("--runs", "2", "--prepare", f"{clock}; sleep 2; {clock}", "--", "true")
    assert said.code == 0, said.err
    _, first_end, second_begin, second_end = map(float, trace.read_text().split())
    run = run_of(environ)
    first, second = (wall_of(run / f"true.0.R{at}.data") for at in range(2))
    # A launch lies between the end of what ran before it, and what came next.
    assert 0 < first < second_begin - first_end
    assert 0 < second < time.monotonic() - second_end
    (result,) = summary_of(milabench, run)["benchmarks"]
    assert min(first, second) <= result["perf"] <= max(first, second)


def test_several_commands_take_turns_and_each_is_compared_with_the_first(
    bench: Callable[..., Said], milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    lines = [f"echo {name} >> {trace}; sleep {seconds}" for name, seconds in (("a", 0.4), ("b", 0.1), ("c", 0.4))]
    names = ("--name", "slow", "--name", "quick", "--name", "slow-too")
    said = bench("--shell", "--runs", "5", "--no-gate", *names, *lines)
    assert said.code == 0, said.err
    turns = trace.read_text().split()
    assert [sorted(turns[start : start + 3]) for start in range(0, 15, 3)] == [["a", "b", "c"]] * 5
    run = run_of(environ)
    pairs = {pair["bench"]: pair for pair in summary_of(milabench, run)["ab"]["pairs"]}
    assert pairs.keys() == {"quick", "slow-too"}
    for name, pair in pairs.items():
        walls = [[wall_of(run / f"{side}.0.R{at}.data") for side in ("slow", name)] for at in range(5)]
        # Less is better, so above 1 is the other in front.
        ratio = math.exp(statistics.fmean(math.log(first / other) for first, other in walls))
        assert pair["ratio"] == pytest.approx(ratio, rel=1e-3)
        assert pair["verdict"] in said.out


def test_metrics_are_found_in_the_output(
    bench: Callable[..., Said], milabench: Callable[..., Said], environ: dict[str, str]
) -> None:
    line = "echo 'speed: 4 img/s'; echo 'speed: 8 img/s'; echo 'loss=0.5'"
    words = ("--metric", r"speed=speed: (\S+)", "--metric", r"loss=(?P<final>\S+)", "--direction", "final=lower")
    options = (*words, "--units", "speed=img/s", "--reduce", "speed=harmonic", "--runs", "2")
    said = bench(*options, "--shell", line)
    assert said.code == 0, said.err
    assert "estimate: not known before a run" in said.err and "warm-up and window" not in said.err
    (result,) = summary_of(milabench, run_of(environ))["benchmarks"]
    assert (result["perf"], result["units"], result["direction"]) == (pytest.approx(16 / 3), "img/s", "higher")
    metrics = {metric["metric"]: metric for metric in result["metrics"]}
    assert (metrics["final"]["value"], metrics["final"]["direction"]) == (0.5, "lower")


def test_a_command_is_run_as_in_the_shell_that_it_was_given_in(
    bench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    program = folder / "{program} $x"
    program.write_text('#!/bin/sh\nprintf "%s|" "$PWD" "$GIVEN" "$PASSED" "$PYTHONUNBUFFERED" "$XDG_CACHE_HOME" "$@"\n')
    program.chmod(0o755)
    words = ("--runs", "1", "--env", "GIVEN=a b${HOME}{x}", "--env", "PASSED", "--cwd", str(folder))
    said = bench(*words, "--", "./{program} $x", "two words", "${HOME}", "--runs", PASSED="on", PYTHONUNBUFFERED="")
    assert said.code == 0, said.err
    (out,) = run_of(environ).glob("*.stdout")
    cache = environ["XDG_CACHE_HOME"]
    assert out.read_text().split("|")[:-1] == [
        *(str(folder), "a b${HOME}{x}", "on", "", cache, "two words", "${HOME}", "--runs")
    ]


def test_what_is_quoted_needs_no_shell(bench: Callable[..., Said], environ: dict[str, str]) -> None:
    line = r"""printf '%s\n' '|' "a;b*" \$HOME 'a $x `y`' """
    said = bench("--runs", "1", line)
    assert said.code == 0, said.err
    (out,) = run_of(environ).glob("*.stdout")
    assert out.read_text().splitlines() == ["|", "a;b*", "$HOME", "a $x `y`"]


def test_no_file_holds_a_secret_that_a_command_is_given(
    bench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    said = bench("--runs", "1", "--env", "MY_API_TOKEN=swordfish-1234", "--shell", 'echo "${MY_API_TOKEN}"')
    assert said.code == 0, said.err
    base = Path(environ["MILABENCH_BASE"])
    assert [path for path in base.rglob("*") if path.is_file() and b"swordfish" in path.read_bytes()] == []
    (out,) = run_of(environ).glob("*.stdout")
    assert out.read_text() == "***\n"


def holding(base: Path, secret: str) -> list[Path]:
    """What is below a folder and has a secret in its name or in what it says."""
    paths = base.rglob("*") if base.exists() else ()
    return [path for path in paths if secret in path.name or (path.is_file() and secret.encode() in path.read_bytes())]


@pytest.mark.parametrize(
    "words",
    [
        ("--", "echo", "--token=abc123456xyz"),
        ("--", "echo", "--token", "abc123456xyz"),
        ("echo https://me:abc123456xyz@host/x",),
        ("--shell", "MY_TOKEN=abc123456xyz true"),
        ("--prepare", "echo --token=abc123456xyz", "true"),
        ("--name", "token=abc123456xyz", "true"),
    ],
)
def test_a_secret_among_the_words_is_refused_and_kept_nowhere(
    bench: Callable[..., Said], environ: dict[str, str], words: tuple[str, ...]
) -> None:
    said = bench("--runs", "1", *words)
    assert (said.code, said.out) == (2, "")
    assert "a secret is among the words. Give it by --env NAME" in said.err
    assert "abc123456xyz" not in said.err
    assert holding(Path(environ["MILABENCH_BASE"]), "abc123456xyz") == []


def test_a_secret_that_a_variable_gives_may_be_among_the_words(
    bench: Callable[..., Said], milabench: Callable[..., Said], environ: dict[str, str]
) -> None:
    said = bench("--runs", "1", "--env", "MY_TOKEN=abc123456xyz", "--", "echo", "abc123456xyz")
    assert said.code == 0, said.err
    said = bench("--runs", "1", "--env", "MY_TOKEN=abc123456xyz", "--shell", 'echo --token "$MY_TOKEN"')
    assert said.code == 0, said.err
    base = Path(environ["MILABENCH_BASE"])
    assert holding(base, "abc123456xyz") == []
    for run in (base / "runs").iterdir():
        (result,) = summary_of(milabench, run)["benchmarks"]
        assert result["perf"] > 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "no command. Give a command after --, or one or several, each quoted"),
        (("true", "--", "true"), "give a single command after --, or several before it, each quoted, but not both"),
        (("--", "no-such-program", "x"), "no-such-program: no such command on the PATH"),
        (("sleep", "0.1"), "0.1: no such command on the PATH. Quote a command with its arguments, or put -- before it"),
        (("./nowhere",), "./nowhere: no such program in"),
        (("true | cat",), "true | cat: '|' needs a shell. Run `milabench bench --shell 'true | cat'`"),
        (("echo a;echo b",), "echo a;echo b: ';' needs a shell"),
        (("echo a>/dev/null",), "'>' needs a shell"),
        (("cat *.py",), "'*' needs a shell"),
        (('echo "$HOME"',), "'$' needs a shell"),
        (("echo 'a' `true`",), "'`' needs a shell"),
        (("true\ntrue",), "needs a shell"),
        (("echo 'open",), "no closing quotation. Give the line to a shell with --shell"),
        (("echo --out=@run",), "--out=@run: each repeat replaces @run by a value"),
        (("--", "echo", "@{step_dir}/a"), "each repeat replaces @{step_dir} by a value"),
        ((" ",), "a command is empty"),
        (("--metric", "x(", "true"), "--metric x(: is no regular expression: missing ), unterminated subpattern"),
        (("--metric", "(a)(b)", "true"), "has 2 groups. Keep a single group, around the number"),
        (("--metric", "a=1", "--metric", "a=2", "true"), "there is a metric 'a' already"),
        (("--metric", "a=1", "--units", "b=s", "true"), "--units b=s: no metric is named 'b'. Known: a"),
        (("--metric", "a=1", "--direction", "up", "true"), "--direction up: is none of higher, lower, none"),
        (("--units", "s", "true"), "--units s: it needs --metric. The seconds of a command need no option"),
        (("--env", "1=2", "true"), "--env 1: is no NAME=VALUE, and no NAME of a variable"),
        (("--env", "NOT_THERE", "true"), "--env NOT_THERE: there is no such variable here"),
        (("--cwd", "/no/folder", "true"), "--cwd /no/folder: is no folder"),
        (("--name", "a", "--name", "b", "true"), "--name is given 2 times for 1 commands"),
    ],
)
def test_what_cannot_be_measured_is_one_line(
    bench: Callable[..., Said], environ: dict[str, str], words: tuple[str, ...], message: str
) -> None:
    said = bench(*words)
    assert (said.code, said.out) == (2, "")
    assert message in said.err
    assert len(said.err.splitlines()) <= 3, "one error, and where the help is"
    assert not Path(environ["MILABENCH_BASE"], "runs").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--", "false"), "false.0.R0: exit: exited with code 1"),
        (("--metric", r"speed=(\d+)", "--", "echo", "nothing"), "no-data: metric speed: "),
        (("--metric", r"speed (\d+)", "--", "echo", "nothing"), "no line of the output matched"),
        (("--timeout", "1s", "--", "sleep", "60"), "timeout: still running after 1 s"),
        (("--prepare", "exit 4", "--", "true"), "the command before it (prerun) exited with code 4"),
    ],
)
def test_the_first_launch_that_fails_ends_it_with_the_reason(
    bench: Callable[..., Said], environ: dict[str, str], words: tuple[str, ...], message: str
) -> None:
    said = bench("--runs", "3", *words)
    assert said.code == 1, said.err
    assert message in said.err
    assert len(list(run_of(environ).glob("*.data"))) == 1, "the others were not started"
    assert [line for line in said.err.splitlines() if line.startswith("error:") and "cancelled" in line] == []
    assert "; None" not in said.err


def test_short_launches_are_read_by_the_agent_and_valid_on_an_idle_machine(
    bench: Callable[..., Said], milabench: Callable[..., Said], environ: dict[str, str]
) -> None:
    said = bench("--runs", "2", "--", "true")
    assert said.code == 0, said.err
    (result,) = summary_of(milabench, run_of(environ))["benchmarks"]
    assert result["reasons"] == []
    (verdict, _) = (verdict for verdict in result["validations"] if verdict["check"] == "contended")
    assert verdict["numbers"]["readings"] == 2
    assert " ms " in said.out
    assert "min to max" in said.out


def test_a_single_command_is_measured_until_it_is_precise(
    bench: Callable[..., Said], milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    """Every second run is faster by a fifth."""
    line = "echo >> seen; echo speed $((100 + $(wc -l < seen) % 2 * 20))"
    said = bench("--metric", r"speed (\d+)", "--cwd", str(tmp_path), "--shell", line)
    assert said.code == 0, said.err
    (result,) = summary_of(milabench, run_of(environ))["benchmarks"]
    assert result["bench"].startswith("echo")
    assert 10 < result["counts"]["passed"] <= 30
    assert result["uncertainty"]["asked"] == 0.05


def test_a_printed_number_of_a_short_launch_is_read_too(
    bench: Callable[..., Said], milabench: Callable[..., Said], environ: dict[str, str]
) -> None:
    said = bench("--runs", "3", "--metric", r"speed (\d+)", "--", "echo", "speed", "812")
    assert said.code == 0, said.err
    (result,) = summary_of(milabench, run_of(environ))["benchmarks"]
    assert result["reasons"] == []


def test_the_report_fits_the_terminal(environ: dict[str, str]) -> None:
    argv = [sys.executable, "-m", "milabench", "bench", "--display", "none", "--runs", "1", "true", f"echo {'x' * 28}"]
    terminal, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    with started(argv, env=environ, cwd=ROOT, stderr=subprocess.DEVNULL, stdout=end) as process:
        os.close(end)
        shown = ""
        with contextlib.suppress(OSError):  # the end of a terminal
            while piece := os.read(terminal, 4096).decode():
                shown += piece
        assert process.wait() == 0
    os.close(terminal)
    lines = [line.rstrip() for line in shown.splitlines()]
    start = next(number for number, line in enumerate(lines) if line.startswith("score:"))
    assert lines[start] == "score: none (A and B are compared in pairs, below)"
    # Commands are kept whole: they are copied.
    assert [line for line in lines if len(line) > 80 and not line.startswith(("next:", "  "))] == []


def test_a_warm_up_that_fails_measures_nothing_and_keeps_its_log(
    bench: Callable[..., Said], milabench: Callable[..., Said], environ: dict[str, str]
) -> None:
    said = bench("--warmup", "2", "--shell", "echo broken >&2; exit 3")
    assert said.code == 1
    assert "a warm-up run failed, so nothing was measured" in said.err
    assert "exit: broken" in said.err
    assert (said.out, milabench("report").code) == ("", 3), "it is no run that could be reported"


def test_a_slower_command_is_the_first_word_and_the_exit_code(bench: Callable[..., Said]) -> None:
    said = bench("--runs", "6", "sleep 0.05", "sleep 0.2")
    assert (said.code, said.out.startswith("SLOWER: sleep 0.2 is 0.")) == (1, True)


def test_an_interrupt_ends_it_and_resume_goes_on(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    line = f"touch {tmp_path}/began; test -e {tmp_path}/go || sleep 300"
    argv = [sys.executable, "-m", "milabench", "bench", "--display", "none", "--runs", "2", "--shell", line]
    with started(argv, env=environ, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        until((tmp_path / "began").exists)
        os.kill(process.pid, signal.SIGINT)
        _, err = process.communicate()
    assert process.returncode == 130, err
    (tmp_path / "go").touch()
    assert milabench("resume", "--display", "none").code == 0
    (result,) = summary_of(milabench, run_of(environ))["benchmarks"]
    assert result["counts"]["passed"] == 2


def test_an_interrupt_in_the_warm_up_leaves_no_run(environ: dict[str, str], tmp_path: Path) -> None:
    line = f"touch {tmp_path}/began; sleep 300"
    argv = [sys.executable, "-m", "milabench", "bench", "--display", "none", "--warmup", "1", "--shell", line]
    with started(argv, env=environ, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        until((tmp_path / "began").exists)
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate()
    assert (process.returncode, out) == (130, ""), err
    assert list(Path(environ["MILABENCH_BASE"], "runs").iterdir()) == []
