"""How often a benchmark is run: shuffled blocks, on until it is precise, a budget, pairs of two suites, an estimate."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from milabench.plan.canonical import digest
from tests.commands import PYTHON, Said
from tests.processes import CEILING_S, until

from .test_resume import start
from .written import ends, once, runs, suite

# Sends observations whose rate depends on the number of the launch, not on how fast this machine is.
REPORTS = """\
import json, os, pathlib, re, socket
with pathlib.Path({seen!r}).open("a") as file:
    file.write("x")
launch = re.search(r"[.]R(.+)$", os.environ["MILABENCH_STEP"])
rate = {rate} * (1 + {noise} * (int(launch[1]) % 3 if launch else 0))
with socket.socket(socket.AF_UNIX) as sink:
    sink.connect(os.environ["MILABENCH_SINK"].removeprefix("unix:"))
    say = lambda value: sink.sendall(json.dumps(value).encode() + b"\\n")
    say({{"hello": {{"pid": os.getpid(), "role": "rank", "rank": 0, "local_rank": 0, "world_size": 1}}}})
    for _ in range(25):
        data = {{"task": "train", "rate": rate, "n": rate, "elapsed": 1.0, "units": "items/s"}}
        say({{"event": "data", "data": data, "pipe": "data"}})
"""


# What others do on this machine meanwhile is then no part of the uncertainty.
UNCHECKED = ("--validations", "none")


def reports(folder: Path, name: str, rate: float = 100.0, noise: float = 0.04) -> str:
    """A line that measures `rate`, more in two of three launches."""
    program = folder / f"{name}.py"
    program.write_text(REPORTS.format(seen=str(folder / f"{name}.seen"), rate=rate, noise=noise))
    return f"{PYTHON} -S {program}"


def manifest(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "manifest.json").read_text())
    return found


def only_run(environ: dict[str, str]) -> Path:
    (run,) = runs(environ["MILABENCH_BASE"])
    return run


def launches(run: Path) -> dict[str, int]:
    """How often each benchmark was launched and passed."""
    return dict(Counter(step.split(".")[0] for step, _, outcome in ends(run) if outcome == "passed"))


def test_a_benchmark_is_measured_on_until_it_is_precise_in_shuffled_blocks(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    lines = {"shaky": reports(tmp_path, "shaky", noise=0.015), "also": reports(tmp_path, "also", noise=0.015)}
    here = suite(
        tmp_path,
        **lines,
        wild=reports(tmp_path, "wild", noise=0.2),
        calm=reports(tmp_path, "calm", noise=0.0),
        dumb="true",
    )
    said = milabench("run", *here, "--precision", "3%", "--seed", "11", *UNCHECKED)
    assert said.code == 0, said.err
    run = only_run(environ)
    found, count = manifest(run), launches(run)
    assert (count["calm"], count["dumb"], count["wild"]) == (3, 3, 30)
    assert 3 < count["shaky"] == count["also"] < 10
    assert {bench: each["planned"] for bench, each in found["replicates"].items()} == count
    order = [step.split(".")[0] for step, _, _ in ends(run)]
    first, fourth = [order[begin : begin + 5] for begin in range(0, 15, 5)], order[15:18]
    assert [sorted(block) for block in first] == [["also", "calm", "dumb", "shaky", "wild"]] * 3
    assert sorted(fourth) == ["also", "shaky", "wild"]
    assert len(set(map(tuple, first))) > 1
    assert (found["seed"], found["aim"]) == (11, {"precision": 0.03, "budget_s": None, "most_s": None})
    told = {each["bench"]: each for each in json.loads(milabench("report", "--json").out)["benchmarks"]}
    assert {name: each["processes"] for name, each in told.items()} == {**count, "dumb": 0}
    assert told["shaky"]["uncertainty"]["expanded"] <= 0.03 < told["wild"]["uncertainty"]["expanded"]
    assert "wild: 30 repeats for a precision of 3 %; reached ± " in milabench("report").out


def test_the_profile_default_measures_on_and_a_number_of_launches_is_taken_exactly(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    here = suite(tmp_path, wild=reports(tmp_path, "wild", noise=0.2))
    said = milabench("plan", "run", *here, "--profile", "default").out
    assert said.startswith("run plan ")
    assert ": 3 steps of 1 benchmark" in said
    assert "repeated until a precision of 5 %: at most 10 repeats, 30 of short ones" in said
    assert "precision" not in milabench("plan", "run", *here, "--profile", "default", "--repeat", "2").out
    assert milabench("run", *here, "--profile", "default").code == 0
    assert 10 < launches(only_run(environ))["wild"] <= 30  # on a slow machine two minutes are over before thirty
    assert milabench("run", *here, "--profile", "default", "--repeat", "4").code == 0
    assert launches(runs(environ["MILABENCH_BASE"])[-1]) == {"wild": 4}


def test_a_budget_that_is_over_ends_what_is_measured_on(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    here = suite(tmp_path, shaky=f"{reports(tmp_path, 'shaky')} && sleep 0.1")
    with (tmp_path / "suite.yaml").open("a") as file:
        file.write("gone: {inherits: _line, shell: false, command: [/no/such/program]}\n")
    assert milabench("run", *here, MILABENCH_PRECISION="0.1%", MILABENCH_BUDGET="0.1s").code == 1
    assert sorted(step.split(".")[0] for step, _, _ in ends(only_run(environ))) == ["gone"] * 3 + ["shaky"] * 3


@pytest.mark.parametrize("killed_at", [2, 3, 4])
def test_a_run_that_is_killed_while_it_measures_on_is_resumed_to_the_same_launches(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path, killed_at: int
) -> None:
    """Its third launch ends the first block."""
    up, go = tmp_path / "up", tmp_path / "go"
    gate = f"test -e {go} || test $(wc -c < {tmp_path}/shaky.seen) -lt {killed_at} || {{ touch {up}; sleep 3600; }}"
    here = suite(tmp_path, shaky=f"{reports(tmp_path, 'shaky', noise=0.015)} && {{ {gate}; }}")
    process = start(environ, "run", *here, "--precision", "3%", "--seed", "5", *UNCHECKED)
    until(lambda: up.exists() or process.poll() is not None, "the gate")
    assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait(CEILING_S)
    go.touch()
    run = only_run(environ)
    said = milabench("resume")
    assert said.code == 0, said.err
    assert "is finished" in milabench("resume").err
    assert 3 < launches(run)["shaky"] < 10
    other = tmp_path / "unkilled"
    other.mkdir()
    here = suite(other, shaky=reports(other, "shaky", noise=0.015))
    base = str(other / "base")  # where no earlier run says how long it may take
    assert milabench("run", *here, "--precision", "3%", "--seed", "5", *UNCHECKED, MILABENCH_BASE=base).code == 0
    (unkilled,) = runs(base)
    assert launches(run) == launches(unkilled)
    assert (
        sorted(manifest(run)["files"])
        == sorted({step for step, _, _ in ends(run)})
        == sorted(manifest(unkilled)["files"])
    )


def test_a_run_that_is_killed_between_two_blocks_is_resumed(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    """Between two blocks there is an instant only: the run is put back to it."""
    here = suite(tmp_path, shaky=reports(tmp_path, "shaky", noise=0.015))
    assert milabench("run", *here, "--precision", "3%", *UNCHECKED).code == 0
    run = only_run(environ)
    before = launches(run)
    put_back_to_the_end_of_the_first_block(run)
    assert milabench("resume").code == 0
    assert launches(run) == before != {"shaky": 3}


def put_back_to_the_end_of_the_first_block(run: Path) -> None:
    """As if its orchestrator had been killed when three launches were over and nothing was decided."""
    found = manifest(run)
    steps = found["plan"]["steps"][:3]
    found["plan"] |= {"steps": steps, "hash": digest([[step["hash"] for step in steps], []])}
    found["files"] = {step["id"]: step["stem"] for step in steps}
    del found["replicates"]
    (run / "manifest.json").write_text(json.dumps(found))
    lines = (run / "journal.jsonl").read_text().splitlines(keepends=True)
    kept = [line for line in lines if json.loads(line).get("step", steps[0]["id"]) in found["files"]]
    (run / "journal.jsonl").write_text("".join(line for line in kept if '"run":"ended"' not in line))
    for path in run.glob("*.data"):
        if path.stem not in found["files"].values():
            path.unlink()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--precision", "1%", "--repeat", "3"), "Leave out --repeat"),
        (("--precision", "1"), "'1' is not a precision. Give a percentage such as 1%"),
        (("--precision", "1%", "--budget", "90"), "'90' is not a duration. Give 90s"),
        (("--budget", "1h"), "no earlier run tells how long a takes"),
        (("--ab", "a.yaml", "b.yaml"), "Leave out --config"),
    ],
)
def test_what_cannot_be_asked_for_is_one_line(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    answer = milabench("run", *suite(tmp_path, a="true"), *options)
    assert (answer.code, said in answer.err) == (2, True), answer.err
    assert len([line for line in answer.err.splitlines() if not line.startswith("warning: ")]) == 1
    assert runs(environ["MILABENCH_BASE"]) == []


def test_a_plan_says_what_it_will_take_and_from_which_run_it_knows(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    here = suite(tmp_path, nap="sleep 0.3", never="exit 1")
    said = milabench("run", *here)
    assert said.code == 1
    assert "estimate: not known before a run below this base has passed with" in said.err
    told = json.loads(milabench("plan", "run", *here, "--repeat", "20", "--json").out)["estimate"]
    nap = next(each for each in told["benchmarks"] if each["bench"] == "nap")
    assert (nap["run"], nap["replicates"], nap["same_steps"]) == (only_run(environ).name, 20, True)
    assert told["seconds"] == pytest.approx(20 * nap["seconds_each"])
    assert told["seconds"] > 20 * 0.2  # of 0.3 s: its start is recorded once it runs
    assert told["device_hours"] == pytest.approx(told["seconds"] / 3600)
    assert told["unknown"] == ["never"]
    suite(tmp_path, nap="sleep 0.1; sleep 0.2", never="exit 1")
    text = milabench("plan", "run", *here, "--repeat", "20").out
    assert "the same benchmark, other steps in run." in text
    assert "unknown: never" in text


def test_a_budget_alone_trims_by_earlier_runs_and_refuses_what_does_not_fit(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    here = suite(tmp_path, nap=f"sleep 0.3; {reports(tmp_path, 'nap')}")
    assert milabench("run", *here).code == 0
    seconds = json.loads(milabench("plan", "run", *here, "--json").out)["estimate"]["seconds"]
    said = milabench("run", *here, "--repeat", "9", "--budget", f"{2.5 * seconds:.3f}s")
    assert said.code == 0, said.err
    assert "nap: 2 of 9 repeats: the budget of" in said.err
    run = runs(environ["MILABENCH_BASE"])[-1]
    assert [step for step, _, _ in ends(run)] == ["nap.0.R0", "nap.0.R1"]
    assert manifest(run)["replicates"]["nap"]["wanted"] == 9
    said = milabench("run", *here, "--budget", "0.1s")
    assert said.code == 2
    assert "--budget: 0.1 s is not enough for a repeat of each" in said.err


def sides(folder: Path, *, rate_b: float = 80.0, noise_b: float = 0.01, **more: str) -> tuple[str, ...]:
    """The options for a suite beside itself with another rate of `x`."""
    files = []
    for side, rate, noise in (("a", 100.0, 0.01), ("b", rate_b, noise_b)):
        place = folder / side
        place.mkdir()
        lines = {"x": reports(place, "x", rate, noise), "same": reports(folder, "same", noise=0.0)}
        suite(place, **lines, **{f"only_{side}": "true"}, **more)
        files.append(str(place / "suite.yaml"))
    return ("--use-current-env", "--ab", *files)


def test_two_suites_are_measured_in_turn_and_compared_pair_by_pair(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    said = milabench("run", *sides(tmp_path), "--seed", "3")
    assert said.code == 1, said.err
    assert "A/B: SLOWER: x: B is 0." in said.err
    order = [step.split(".")[0] for step, _, _ in ends(only_run(environ))]
    pairs = [order[begin : begin + 2] for begin in range(0, len(order), 2)]
    assert len(pairs) == 10
    assert all({name[-2:] for name in pair} == {"@A", "@B"} for pair in pairs)
    assert all(len({name[:-2] for name in pair}) == 1 for pair in pairs)
    assert len({tuple(name[-1] for name in pair) for pair in pairs}) == 2  # A is not always first
    told = json.loads(milabench("report", "--json").out)
    found = {each["bench"]: each for each in told["ab"]["pairs"]}
    assert (found["x"]["pairs"], found["x"]["verdict"], found["x"]["same_steps"]) == (5, "SLOWER", False)
    assert found["x"]["ratio"] == pytest.approx(0.8, rel=0.02)
    assert (found["same"]["verdict"], found["same"]["noise"]) == ("EQUIVALENT", pytest.approx(0.01))
    assert (told["ab"]["verdict"], "command" in told["ab"]["differs"]) == ("SLOWER", True)
    assert told["score"]["value"] is None
    skipped = {each["bench"]: each["skipped"][0]["detail"] for each in told["benchmarks"] if each["skipped"]}
    assert skipped == {
        "only_a@A": "B has no benchmark of this name",
        "only_b@B": "A has no benchmark of this name",
    }


def test_an_ab_run_repeats_both_sides_of_a_pair_and_its_report_tells_how_to_rerun(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    options = sides(tmp_path, shaky=once(tmp_path, "seen"))
    assert milabench("run", *options, "--repeat", "1").code == 1
    (line,) = [line for line in milabench("report").out.splitlines() if line.strip().startswith("rerun")]
    assert f"--ab {tmp_path}/a/suite.yaml {tmp_path}/b/suite.yaml" in line
    assert line.endswith("--select shaky")
    assert milabench("resume").code == 0
    attempts = [(step, attempt) for step, attempt, _ in ends(only_run(environ))]
    assert {step for step, attempt in attempts if attempt == 2} == {"shaky@A.0", "shaky@B.0"}


def test_pairs_are_measured_on_until_their_ratio_is_precise(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    a, b = sides(tmp_path, noise_b=0.08)[2:]
    assert (
        milabench(
            *("run", "--use-current-env", "--select", "x", "--precision", "1%", "--no-gate"), MILABENCH_AB=f"{a}:{b}"
        ).code
        == 0
    )
    decided = manifest(only_run(environ))["replicates"]
    assert list(decided) == ["x"]
    assert len(ends(only_run(environ))) == 2 * decided["x"]["planned"] == 2 * 30


def test_what_two_suites_must_have_in_common_is_said(milabench: Callable[..., Said], tmp_path: Path) -> None:
    options = sides(tmp_path)
    other = tmp_path / "b" / "suite.yaml"
    text = other.read_text()
    other.write_text(text.replace("profile: quick", "profile: default"))
    said = milabench("plan", "run", *options)
    assert said.code == 2
    assert "Choose it with --profile" in said.err
    other.write_text(text)
    said = milabench("plan", "run", *options, "--select", "only_a or only_b")
    assert said.code == 3
    assert "unknown benchmark, group or tag" in said.err
