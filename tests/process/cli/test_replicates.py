"""How often a benchmark is run: shuffled blocks, a pilot that decides once, a budget, pairs of two suites, an estimate."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from milabench.plan.canonical import digest
from tests.commands import PYTHON, Said
from tests.processes import CEILING_S, until

from .test_resume import start
from .written import ends, once, runs, suite

# Sends observations whose rate depends on how often it ran before, not on how fast this machine is.
REPORTS = """\
import json, os, pathlib, socket
seen = pathlib.Path({seen!r})
with seen.open("a") as file:
    file.write("x")
rate = {rate} * (1 + {noise} * (len(seen.read_text()) % 3))
with socket.socket(socket.AF_UNIX) as sink:
    sink.connect(os.environ["MILABENCH_SINK"].removeprefix("unix:"))
    say = lambda value: sink.sendall(json.dumps(value).encode() + b"\\n")
    say({{"hello": {{"pid": os.getpid(), "role": "rank", "rank": 0, "local_rank": 0, "world_size": 1}}}})
    for _ in range(25):
        data = {{"task": "train", "rate": rate, "n": rate, "elapsed": 1.0, "units": "items/s"}}
        say({{"event": "data", "data": data, "pipe": "data"}})
"""


def reports(folder: Path, name: str, rate: float = 100.0, noise: float = 0.04) -> str:
    """A line that measures `rate`, more in two of three processes."""
    program = folder / f"{name}.py"
    program.write_text(REPORTS.format(seen=str(folder / f"{name}.seen"), rate=rate, noise=noise))
    return f"{PYTHON} -S {program}"


def manifest(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "manifest.json").read_text())
    return found


def only_run(environ: dict[str, str]) -> Path:
    (run,) = runs(environ["MILABENCH_BASE"])
    return run


def test_a_pilot_of_five_decides_once_and_the_run_goes_on_in_shuffled_blocks(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    here = suite(tmp_path, shaky=reports(tmp_path, "shaky"), also=reports(tmp_path, "also"), calm="true")
    said = milabench("run", *here, "--precision", "3%", "--seed", "11")
    assert said.code == 0, said.err
    found = manifest(only_run(environ))
    decided = {bench: each["planned"] for bench, each in found["replicates"].items()}
    assert (decided["calm"], found["replicates"]["calm"]["wanted"]) == (5, None)
    assert decided["shaky"] == decided["also"] == found["replicates"]["shaky"]["wanted"] > 5
    order = [step.split(".")[0] for step, _, _ in ends(only_run(environ))]
    assert len(order) == sum(decided.values())
    pilot = [order[begin : begin + 3] for begin in range(0, 15, 3)]
    rest = [order[begin : begin + 2] for begin in range(15, len(order), 2)]
    assert [sorted(block) for block in pilot] == [["also", "calm", "shaky"]] * 5
    assert {tuple(sorted(block)) for block in rest} == {("also", "shaky")}
    assert len(set(map(tuple, pilot))) > 1
    assert found["seed"] == 11
    told = json.loads(milabench("report", "--json").out)
    assert told["aim"] == {"precision": 0.03, "budget_s": None}
    assert {each["bench"]: each["processes"] for each in told["benchmarks"]} == {**decided, "calm": 0}
    low, high = next(each["ci95"] for each in told["benchmarks"] if each["bench"] == "shaky")
    assert (high / low) ** 0.5 - 1 < 0.04  # what was asked for, but for the luck of the pilot


def test_the_profile_rigorous_aims_at_one_per_cent(milabench: Callable[..., Said], tmp_path: Path) -> None:
    here = suite(tmp_path, a="true")
    said = milabench("plan", "run", *here, "--profile", "rigorous").out
    assert said.startswith("run plan ")
    assert ": 5 steps" in said
    assert "estimate of the pilot: unknown" in said
    assert "pilot" not in milabench("plan", "run", *here, "--profile", "rigorous", "--repeat", "2").out


def test_a_budget_caps_what_the_pilot_asks_for_and_the_report_says_so(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    here = suite(tmp_path, shaky=f"{reports(tmp_path, 'shaky')} && sleep 0.2")
    with (tmp_path / "suite.yaml").open("a") as file:
        file.write("gone: {inherits: _line, shell: false, command: [/no/such/program]}\n")
    assert milabench("run", *here, MILABENCH_PRECISION="0.1%", MILABENCH_BUDGET="1.8s").code == 1
    run = only_run(environ)
    decided = manifest(run)["replicates"]["shaky"]
    assert 5 <= decided["planned"] < decided["wanted"]
    # What cannot even be started has no pilot, and stays at its five.
    assert sorted(step.split(".")[0] for step, _, _ in ends(run)) == ["gone"] * 5 + ["shaky"] * decided["planned"]
    report = milabench("report").out
    assert f"shaky: {decided['planned']} of {decided['wanted']} replicates for a precision of 0.1 %" in report
    assert "the budget of 1.8 s reaches no further" in report


@pytest.mark.parametrize("moment", ["pilot", "between", "after"])
def test_a_run_that_is_killed_in_its_pilot_or_after_it_is_resumed_to_the_same_plan(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path, moment: str
) -> None:
    """Between pilot and rest there is an instant only: the run is put back to it."""
    up, go = tmp_path / "up", tmp_path / "go"
    count = {"pilot": 2, "between": 99, "after": 7}[moment]
    gate = f"test -e {go} || test $(wc -c < {tmp_path}/shaky.seen) -lt {count} || {{ touch {up}; sleep 3600; }}"
    here = suite(tmp_path, shaky=f"{reports(tmp_path, 'shaky')} && {{ {gate}; }}")
    options = ("run", *here, "--precision", "3%", "--seed", "5")
    if moment == "between":
        assert milabench(*options).code == 0
        put_back_to_the_end_of_the_pilot(only_run(environ))
    else:
        process = start(environ, *options)
        until(lambda: up.exists() or process.poll() is not None, "the gate")
        assert process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.wait(CEILING_S)
    go.touch()
    run = only_run(environ)
    before = manifest(run).get("replicates")
    assert (before is None) == (moment != "after")
    said = milabench("resume")
    assert said.code == 0, said.err
    found = manifest(run)
    assert before in (None, found["replicates"])
    passed = [step for step, _, outcome in ends(run) if outcome == "passed"]
    assert sorted(passed) == sorted(found["files"])
    assert len(passed) == found["replicates"]["shaky"]["planned"] > 5
    if moment == "after":
        assert "is finished" in milabench("resume").err


def put_back_to_the_end_of_the_pilot(run: Path) -> None:
    """As if its orchestrator had been killed when the pilot was over and nothing was decided."""
    found = manifest(run)
    steps = found["plan"]["steps"][:5]
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
        (("--precision", "1%", "--repeat", "3"), "leave out --repeat"),
        (("--precision", "1"), "'1' is not a precision; give a percentage such as 1%"),
        (("--precision", "1%", "--budget", "90"), "'90' is not a duration; give 90s"),
        (("--budget", "1h"), "no earlier run tells how long a takes"),
        (("--ab", "a.yaml", "b.yaml"), "leave out --config"),
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
    assert "estimate: unknown; no run below this base has passed with" in said.err
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
    assert "never: 20 x unknown" in text


def test_a_budget_alone_trims_by_earlier_runs_and_refuses_what_does_not_fit(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    here = suite(tmp_path, nap=f"sleep 0.3; {reports(tmp_path, 'nap')}")
    assert milabench("run", *here).code == 0
    seconds = json.loads(milabench("plan", "run", *here, "--json").out)["estimate"]["seconds"]
    said = milabench("run", *here, "--repeat", "9", "--budget", f"{2.5 * seconds:.3f}s")
    assert said.code == 0, said.err
    assert "nap: 2 of 9 replicates: the budget of" in said.err
    run = runs(environ["MILABENCH_BASE"])[-1]
    assert [step for step, _, _ in ends(run)] == ["nap.0.R0", "nap.0.R1"]
    assert manifest(run)["replicates"]["nap"]["wanted"] == 9
    said = milabench("run", *here, "--budget", "0.1s")
    assert said.code == 2
    assert "--budget: 0.1 s is not enough for one replicate of each" in said.err


def sides(folder: Path, *, rate_b: float = 80.0, **more: str) -> tuple[str, ...]:
    """The options for a suite beside itself with another rate of `x`."""
    files = []
    for side, rate in (("a", 100.0), ("b", rate_b)):
        place = folder / side
        place.mkdir()
        lines = {"x": reports(place, "x", rate, noise=0.01), "same": reports(folder, "same", noise=0.0)}
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


def test_the_number_of_pairs_follows_from_a_pilot_of_pairs(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    a, b = sides(tmp_path)[2:]
    assert (
        milabench(
            *("run", "--use-current-env", "--select", "x", "--precision", "1%", "--no-gate"), MILABENCH_AB=f"{a}:{b}"
        ).code
        == 0
    )
    decided = manifest(only_run(environ))["replicates"]
    assert list(decided) == ["x"]
    assert len(ends(only_run(environ))) == 2 * decided["x"]["planned"]


def test_what_two_suites_must_have_in_common_is_said(milabench: Callable[..., Said], tmp_path: Path) -> None:
    options = sides(tmp_path)
    other = tmp_path / "b" / "suite.yaml"
    text = other.read_text()
    other.write_text(text.replace("profile: quick", "profile: default"))
    said = milabench("plan", "run", *options)
    assert said.code == 2
    assert "choose one with --profile" in said.err
    other.write_text(text)
    said = milabench("plan", "run", *options, "--select", "only_a or only_b")
    assert said.code == 3
    assert "unknown benchmark, group or tag" in said.err
