"""Records that anybody may have written: whatever their JSON holds, each command answers, or says in a line why it does not."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import re
import shutil
import sqlite3
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from milabench.events.model import Config, Event, Meta, Verdict
from tests.examples import thinned
from tests.mutations import Mutation, mutations
from tests.recorded_run import Recorded, RecordedShare, data, message, rates, record, record_shares

pytestmark = pytest.mark.turns(3)

Milabench = Callable[..., Any]

DEVICE = {
    "memory": [10.0, 100.0],
    "load": 0.5,
    "temperature": 60,
    "power_W": 300,
    "sm_clock_MHz": 1500,
    "energy_J": 9.0,
    "processes": [{"pid": 7, "own": False, "memory_MiB": 5.0}],
    "throttle": ["sw_thermal"],
}
CONFIG = {
    "metrics": {"speed": {"pattern": r"speed (\S+)", "reduce": "mean", "direction": "lower", "units": "s"}},
    "measure": {"window_steps": 1, "window_s": 0},
}
MANIFEST: dict[str, Any] = {
    "suite": {"digits": {"weight": 1.0, "install_group": "torch", "argv": {"--a": 1}}},
    "validations": ["rate"],
    "aim": {"precision": 0.01, "budget_s": None},
    "replicates": {"digits": {"wanted": 3, "planned": 3, "log_spread": 0.01}},
    "locks": {"torch": "abc"},
    "programs": {"digits": "abc"},
    "costs": {"price": 1.0, "currency": "EUR", "years": 3},
    "seed": 1,
}
JOURNAL: tuple[dict[str, Any], ...] = (
    {"run": "started", "pid": 1, "pid_start": 5, "boot": "b", "host": "h", "user": "u", "marker": "m", "since": 1.5},
    {"state": "released", "group": "g", "steps": {"digits.D0": "local"}, "clocks": {"local": {"ahead_s": 0.1}}},
    {"step": "digits.D0", "attempt": 1, "state": "started", "node": "local"},
    {"step": "digits.D0", "attempt": 1, "state": "ended", "outcome": "failed", "why": "exit", "detail": "d"},
    {"step": "digits.D0", "attempt": 2, "state": "started"},
    {"step": "digits.D0", "attempt": 2, "state": "ended", "outcome": "passed"},
)
REPORTED = ("report.json",)
SAMPLE = len(thinned(range(300), 10))  # mutations of each kind of file


def events() -> Iterable[Event]:
    """Everything that a step ever says."""
    yield Config(step="", data=CONFIG)
    yield Meta(step="", data={"hostname": "n", "accelerators": [{"index": 0, "driver": "550"}], "python": "3.11"})
    for place in range(20):
        times = {"t0_ns": place * 10**9, "host_ns": 10**9, "time": 100.0 + place}
        yield data(
            task="train", rate=9.0 + place % 2, units="items/s", elapsed=1.0, n=9, rank=0, parts={"wait": 0.1}, **times
        )
    for time in (100.0, 110.0):
        yield data(task="main", gpudata={"0": DEVICE}, time=time)
    yield data(task="main", cpudata={"load": 0.5}, process={"rss_MiB": 9.5}, time=101.0)
    yield data(task="train", loss=1.0)
    yield data(task="train", pause={"name": "val", "start_ns": 20 * 10**9, "stop_ns": 21 * 10**9})
    yield data(metric="first_step", value=0.5, units="s", direction="lower")
    yield data(metric="acc", value=0.5, direction="higher", case="c", part="p", params={"a": 1}, rank=0, reasons=["x"])
    yield data(overhead={"host_s": 0.01, "dropped": 1})
    yield data(progress=[1, 9], task="train")
    yield Verdict(step="", check="own", verdict="warn", numbers={"share": 0.5}, message="hm")
    yield message("hello")


def recorded(base: Path) -> Path:
    """A run in which everything is that a run ever has: a retried step, a failure, a job, what is skipped, a target."""
    said = tuple(events())
    steps = [
        Recorded(
            repeat=repeat, tag=f"D{device}", devices=(device,), events=said, stderr="speed 5\n", reasons=("contended",)
        )
        for repeat in range(3)
        for device in (0, 1)
    ]
    failed = Recorded(bench="other", tag="", outcome="failed", why="exit", detail="boom", stderr="no\n")
    job = (*rates(5.0, rank=0), *rates(4.0, rank=1))
    steps += [failed, Recorded(bench="loader", method="multigpu", tag="", devices=(0, 1), events=job)]
    options = {"base": str(base), "config_file": str(base / "suite.yaml"), "overrides": [], "environ": {}}
    options |= {"repeat": 3, "profile": "default", "run_name": "quick", "use_current_env": True}
    (base / "suite.yaml").write_text("digits: {command: [echo], plan: {method: njobs, n: 1}}\n")
    told = {**MANIFEST, "options": options}
    run = record(base, *steps, manifest=told, skipped=[{"bench": "llama", "why": "not fetched"}])
    journal = run.path / "journal.jsonl"
    journal.write_text("".join(json.dumps({"t": 0.5, **entry}) + "\n" for entry in JOURNAL) + journal.read_text())
    shutil.copy(run.path / "digits.D0.data", run.path / "digits.D0~2.data")
    return run.path


def submitted(base: Path) -> Path:
    """A run of jobs: one that did its part, one that was stopped, one that waits."""
    seen = tuple(events())
    shares = (
        RecordedShare(steps=(Recorded(events=seen, stderr="speed 5\n"), Recorded(tag="D1", devices=(1,), events=seen))),
        RecordedShare(
            steps=(Recorded(bench="other", tag="", outcome="failed", why="time-limit", events=seen),),
            job="102",
            node="n2",
            result="time-limit",
            state="TIMEOUT",
            is_over=False,
        ),
        RecordedShare(steps=(Recorded(bench="later", tag="", outcome=None),), job="103", is_begun=False, result=None),
    )
    return record_shares(base, *shares).path


def sampled(found: list[Mutation]) -> list[Mutation]:
    return random.Random(5).sample(found, min(SAMPLE, len(found)))


COMMANDS = (
    *(f"report RUN -f {form}" for form in ("text", "markdown", "html", "csv", "json", "junit")),
    "report RUN --score compat",
    "report RUN --reference GOOD",
    "compare GOOD RUN --why",
    "compare RUN GOOD -f html",
    "export RUN -o o.parquet",
    "db add RUN --db o.db",
    "history digits --db o.db",
    "bundle RUN -o o.zip",
    "verify o.zip",
    "replay RUN --speed 0 -v",
    "status RUN",
    "status RUN --json",
    "runs",
    "logs digits.D0 --run RUN",
    "accept RUN --criteria c.yaml --reference GOOD",
    "baseline RUN -o b2.json",
    "outliers RUN --baseline b.json",
    "resume RUN",
)
OF_A_REPORT = (
    *(f"compare GOOD RUN -f {form} --why" for form in ("text", "markdown", "html", "csv", "json", "junit")),
    "compare RUN GOOD",
    "compare RUN RUN",
    "report GOOD --reference RUN",
    "accept GOOD --criteria c.yaml --reference RUN",
)
# What a terminal obeys, or what turns letters round; logs are bytes where no terminal is.
OBEYED = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


@pytest.fixture
def source(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """The run that is mutated, below a base of its own."""
    (tmp_path / "source").mkdir()
    write: Callable[[Path], Path] = getattr(request, "param", recorded)
    return write(tmp_path / "source")


@pytest.fixture
def answers(milabench: Milabench, source: Path, tmp_path: Path) -> Callable[[Mutation, Iterable[str]], None]:
    """Applies a mutation to a copy of the run, and demands an answer of these commands."""
    good = tmp_path / "good" / source.name
    shutil.copytree(source, good)
    (tmp_path / "c.yaml").write_text("benchmarks:\n  digits: {minimum: '0.5 x reference', failure_rate: 0}\n")
    assert milabench("report", str(source)).code == 0
    assert milabench("report", str(good), "--json", "-o", str(tmp_path / "report.json")).code == 0
    assert milabench("baseline", str(good), "-o", "b.json").code == 0
    copy = tmp_path / "base" / "runs" / source.name

    def answered(mutation: Mutation, commands: Iterable[str]) -> None:
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(source, copy)
        shutil.copy(tmp_path / "report.json", copy)
        mutation.apply(copy)
        changed = (copy / mutation.file).read_bytes()
        named = {"GOOD": str(good), "RUN": str(copy / "report.json" if mutation.file in REPORTED else copy)}
        for command in commands:
            said = milabench(*(named.get(word, word) for word in command.split()))
            # Whoever resumes a run of jobs where their scheduler is not is told so.
            codes = (0, 1, 2, 3, *((5,) if command.startswith("resume") else ()), 6, 7, 8)
            assert said.code in codes, (str(mutation), command, said)
            assert command.startswith("logs") or not OBEYED.search(said.out + said.err), (str(mutation), command, said)
            (copy / mutation.file).write_bytes(changed)  # a summary is made again

    return answered


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "file"),
    [
        *((recorded, name) for name in ("manifest.json", "journal.jsonl", ".data", "summary.json", "report.json")),
        *((submitted, name) for name in ("manifest.json", "manifest.s1.json")),
        *(
            pytest.param(submitted, name, marks=[pytest.mark.e2e, pytest.mark.long])
            for name in ("journal.jsonl", "journal.s2.jsonl")
        ),
    ],
    indirect=["source"],
)
def test_no_record_of_another_shape_breaks_a_command(
    answers: Callable[[Mutation, Iterable[str]], None], source: Path, tmp_path: Path, file: str
) -> None:
    folder = tmp_path if file in REPORTED else source
    found = list(mutations(folder, lambda name: name.endswith(file)))
    commands = itertools.cycle(OF_A_REPORT if file in REPORTED else COMMANDS)
    for mutation in sampled(found):
        answers(mutation, itertools.islice(commands, 3))


@pytest.mark.slow
@pytest.mark.parametrize("file", ["bundle.json", "summary.json", "manifest.json"])
def test_no_content_of_a_bundle_of_another_shape_breaks_its_verification(
    milabench: Milabench, tmp_path: Path, file: str
) -> None:
    (source := tmp_path / "source").mkdir()
    assert milabench("bundle", str(recorded(source)), "-o", "good.zip").code == 0
    with zipfile.ZipFile("good.zip") as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    name = next(name for name in contents if name.endswith(file))
    (folder := tmp_path / "content").mkdir()
    (folder / file).write_bytes(contents[name])
    for mutation in sampled(list(mutations(folder))):
        (folder / file).write_bytes(contents[name])
        mutation.apply(folder)
        with zipfile.ZipFile("altered.zip", "w") as archive:
            for each, content in contents.items():
                archive.writestr(each, (folder / file).read_bytes() if each == name else content)
        said = milabench("verify", "altered.zip")
        # What bundle.json says besides hashes and numbers, its version and notes, is nothing to verify.
        assert said.code in ((0, 6) if file == "bundle.json" else (6,)), (str(mutation), said)
        assert not OBEYED.search(said.out + said.err), (str(mutation), said)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["summary", "baseline"])
def test_no_store_and_no_baseline_of_another_shape_breaks_what_reads_it(
    milabench: Milabench, tmp_path: Path, what: str
) -> None:
    (source := tmp_path / "source").mkdir()
    run = str(recorded(source))
    assert milabench("db", "add", run, "--db", "o.db").code == 0
    assert milabench("baseline", run, "-o", "b.json").code == 0
    (folder := tmp_path / "content").mkdir()
    store = sqlite3.connect("o.db")
    (kept,) = store.execute("SELECT summary FROM runs").fetchone()
    whole = kept if what == "summary" else Path("b.json").read_text()
    (folder / "x.json").write_text(whole)
    for mutation in sampled(list(mutations(folder))):
        (folder / "x.json").write_text(whole)
        mutation.apply(folder)
        store.execute("UPDATE runs SET summary = ?", ((folder / "x.json").read_text() if what == "summary" else kept,))
        store.commit()
        reads = ["report", "--from-db", "--db", "o.db"] if what == "summary" else ["outliers", run, "--baseline"]
        said = milabench(*reads, *([] if what == "summary" else [str(folder / "x.json")]))
        assert said.code in (0, 1, 6), (str(mutation), said)
        assert not OBEYED.search(said.out + said.err), (str(mutation), said)
    store.close()


@pytest.mark.parametrize("value", ["x", b"\xff", 1e308, "9" * 500])
@pytest.mark.parametrize(
    "column", ["results.perf", "results.ci95_low", "runs.created", "runs.host", "runs.name", "runs.summary"]
)
def test_no_value_of_another_kind_in_a_store_breaks_what_reads_it(
    milabench: Milabench, tmp_path: Path, column: str, value: object
) -> None:
    assert milabench("db", "add", str(recorded(tmp_path)), "--db", "o.db").code == 0
    table, _, name = column.partition(".")
    with contextlib.closing(sqlite3.connect("o.db")) as store:
        store.execute(f"UPDATE {table} SET {name} = ?", (value,))
        store.commit()
    for command in ("history digits --db o.db", "report --from-db --db o.db", "db query SELECT*FROM(runs) --db o.db"):
        said = milabench(*command.split())
        assert said.code in (0, 3, 6), said
