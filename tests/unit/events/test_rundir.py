from __future__ import annotations

import errno
import json
import os
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milabench.errors import NothingSelected, RecordError
from milabench.events import run_files, run_writer, rundir, runs_folder, wire
from milabench.events.model import Data, Event, Line, Other
from milabench.plan.model import Step
from milabench.workflow.run_records import stems

NOON = datetime(2026, 3, 14, 12, 0, 0)


def planned(step: str, bench: str = "digits", **others: Any) -> Step:
    return Step(id=step, bench=bench, phase="run", argv=(), **others)


def writer(base: Path, name: str = "quick", **manifest: Any) -> run_writer.RunWriter:
    run = run_writer.create_run(base, name, NOON, clock=lambda: 5.0)
    run.write_manifest({"phase": "run", "name": name, "files": {"s0": "digits.D0"}, **manifest})
    return run


def data(step: str, **values: Any) -> Event:
    return Data(step=step, t=1.0, data=values)


def test_a_run_is_a_folder_named_after_the_run_and_the_second(tmp_path: Path) -> None:
    assert run_writer.create_run(tmp_path, "quick", NOON).path == tmp_path / "runs" / "quick.2026-03-14_12-00-00"


def test_a_second_run_of_the_same_second_gets_a_suffix(tmp_path: Path) -> None:
    names = [run_writer.create_run(tmp_path, "quick", NOON).path.name for _ in range(3)]
    assert names[1:] == ["quick.2026-03-14_12-00-00_1", "quick.2026-03-14_12-00-00_2"]


def test_a_run_name_cannot_leave_the_folder_of_runs(tmp_path: Path) -> None:
    assert run_writer.create_run(tmp_path, "../a b", NOON).path.parent == tmp_path / "runs"


def test_a_base_that_is_a_file_is_a_record_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match="Choose a --base"):
        run_writer.create_run(tmp_path / "file", "quick", NOON)


@given(st.text(min_size=1))
def test_a_stem_is_a_plain_file_name_from_which_the_benchmark_is_read_back(bench: str) -> None:
    stem = run_files.stem_of(bench, tag="D3", repeat=2, node=1)
    assert "/" not in stem and stem.isascii()
    parts = run_files.parse_stem(stem)
    assert (parts.bench, parts.tag, parts.repeat, parts.node) == (bench, "D3", 2, "node1")


@pytest.mark.parametrize(
    ("arguments", "stem"),
    [
        ({"tag": "D0"}, "resnet50.D0"),
        ({"tag": "D0", "repeat": 1}, "resnet50.D0.R1"),
        ({"tag": "0", "node": 1}, "resnet50.0.node1"),
        ({}, "resnet50"),
    ],
)
def test_a_stem_says_device_repeat_and_node(arguments: dict[str, Any], stem: str) -> None:
    assert run_files.stem_of("resnet50", **arguments) == stem


def test_a_name_is_percent_encoded() -> None:
    assert run_files.stem_of("bert/fp16 é") == "bert%2Ffp16%20%C3%A9"


def test_only_what_a_run_has_several_of_is_in_its_stems() -> None:
    steps = [
        planned("a", tag="D0", repeat=0, node="n0"),
        planned("b", tag="D0", repeat=1, node="n0"),
        planned("c", bench="llama", tag="0", node="n1"),
    ]
    assert stems(steps[:1]) == {"a": "digits.D0"}
    assert stems(steps) == {"a": "digits.D0.R0.node0", "b": "digits.D0.R1.node0", "c": "llama.0.node1"}


def test_stems_of_a_run_are_distinct_also_where_case_is_not_told_apart() -> None:
    steps = [planned("a", bench="x.D0"), planned("b", bench="X", tag="D0")]
    assert stems(steps) == {"a": "x.D0", "b": "X.D0_1"}


def test_what_is_appended_is_read_back_in_order(tmp_path: Path) -> None:
    run = writer(tmp_path)
    events = [data("s0", rate=float(i), units="images/s") for i in range(10)]
    run.append("digits.D0", b"".join(map(wire.encode, events[:4])))
    run.append("digits.D0", b"".join(map(wire.encode, events[4:])))
    assert list(rundir.open_run(run.path).events("s0")) == events


def test_output_goes_to_its_file_and_to_the_records(tmp_path: Path) -> None:
    run = writer(tmp_path)
    lines: list[Event] = [
        Line(step="s0", text="one\n", pipe="stdout"),
        Line(step="s0", text="oops \udcff\n", pipe="stderr"),
        Line(step="s0", text="two", pipe="stdout"),
    ]
    run.append_lines("digits.D0", b"".join(map(wire.encode, lines)))
    assert (run.path / "digits.D0.stdout").read_bytes() == b"one\ntwo"
    assert (run.path / "digits.D0.stderr").read_bytes() == b"oops \xff\n"
    assert list(rundir.open_run(run.path).events("s0")) == lines


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.text(max_size=20), st.sampled_from(("stdout", "stderr"))), min_size=1, max_size=6),
    st.booleans(),
)
def test_output_is_what_was_said_whatever_that_was(said: list[tuple[str, str]], is_strange: bool) -> None:
    lines = [Line(step="s", text=text, pipe=pipe) for text, pipe in said]  # type: ignore[arg-type]
    payload = b"".join(wire.encode(line, t=1.5) for line in lines) + b'{"event":"line","data":"torn' * is_strange
    with tempfile.TemporaryDirectory() as folder:
        run = writer(Path(folder))
        run.append_lines("s", payload)
        for pipe in ("stdout", "stderr"):
            whole = "".join(text for text, where in said if where == pipe)
            path = run.path / f"s.{pipe}"
            assert (path.read_bytes() if path.exists() else b"") == whole.encode()
        assert (run.path / "s.data").read_bytes() == payload
        run.close()


def test_the_log_to_look_at_first_is_what_the_step_said_on_stderr(tmp_path: Path) -> None:
    run = writer(tmp_path)
    assert rundir.open_run(run.path).log("s0") is None
    run.append_lines("digits.D0", wire.encode(Line(step="s0", text="one\n", pipe="stdout")))
    assert rundir.open_run(run.path).log("s0") == run.path / "digits.D0.stdout"
    run.append_lines("digits.D0", wire.encode(Line(step="s0", text="one\n", pipe="stderr")))
    assert rundir.open_run(run.path).log("s0") == run.path / "digits.D0.stderr"


def test_the_journal_is_stamped_and_read_back(tmp_path: Path) -> None:
    run = writer(tmp_path)
    run.journal({"step": "s0", "state": "planned"})
    run.journal({"t": 9.0, "run": "ended", "verdict": "pass"})
    found = rundir.open_run(run.path)
    assert found.journal == (
        {"t": 5.0, "step": "s0", "state": "planned"},
        {"t": 9.0, "run": "ended", "verdict": "pass"},
    )
    assert found.is_ended


def test_a_finished_step_can_be_appended_to_again(tmp_path: Path) -> None:
    run = writer(tmp_path)
    run.append("digits.D0", wire.encode(data("s0", a=1)))
    run.finish("digits.D0")
    run.append("digits.D0", wire.encode(data("s0", a=2)))
    run.close()
    assert list(rundir.open_run(run.path).events("s0")) == [data("s0", a=1), data("s0", a=2)]


def test_more_steps_than_files_may_be_open_are_all_recorded(tmp_path: Path) -> None:
    run = run_writer.create_run(tmp_path, "wide", NOON)
    for turn in range(2):
        for number in range(300):
            run.append(f"b.{number}", wire.encode(data(f"b.{number}", turn=turn)))
    found = rundir.open_run(run.path)
    assert all(len(list(found.events(f"b.{number}"))) == 2 for number in range(300))


def test_a_run_cut_off_at_any_byte_is_read_up_to_the_last_whole_record(tmp_path: Path) -> None:
    run = writer(tmp_path)
    events = [data("s0", rate=i) for i in range(5)]
    run.append("digits.D0", b"".join(map(wire.encode, events)))
    run.journal({"step": "s0", "state": "planned"})
    run.journal({"step": "s0", "state": "started"})
    records, journal = run.path / "digits.D0.data", run.path / "journal.jsonl"
    for path in (records, journal):
        whole = path.read_bytes()
        for size in range(len(whole)):
            path.write_bytes(whole[:size])
            found = rundir.open_run(run.path)
            seen = list(found.events("s0")) if path is records else list(found.journal)
            complete = whole[:size].count(b"\n")
            assert len(seen) in (complete, complete + 1)  # the line end alone may be missing
            if path is records:
                assert seen == events[: len(seen)]
        path.write_bytes(whole)


def test_what_follows_a_torn_record_is_read_and_the_torn_one_is_shown(tmp_path: Path) -> None:
    run = writer(tmp_path)
    run.append("digits.D0", wire.encode(data("s0", a=1)) + b'{"event": "da')
    run.close()
    again = run_writer.RunWriter(run.path)
    again.append("digits.D0", wire.encode(data("s0", a=2)))
    first, torn, last = rundir.open_run(run.path).events("s0")
    assert (first, last) == (data("s0", a=1), data("s0", a=2))
    assert torn == Other(step="s0", event="format_error", data='{"event": "da\n')


def test_a_disk_that_fills_up_leaves_whole_records_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = writer(tmp_path)
    run.append("digits.D0", wire.encode(data("s0", a=1)))
    really_write, calls = os.write, []

    def write_half_then_fail(fd: int, piece: bytes) -> int:
        calls.append(fd)
        if len(calls) == 1:
            return really_write(fd, bytes(piece)[: len(piece) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", write_half_then_fail)
    with pytest.raises(OSError, match="No space"):
        run.append("digits.D0", wire.encode(data("s0", a=2)))
    monkeypatch.undo()
    run.append("digits.D0", wire.encode(data("s0", a=3)))
    assert list(rundir.open_run(run.path).events("s0")) == [data("s0", a=1), data("s0", a=3)]


def test_a_manifest_is_never_half_written(tmp_path: Path) -> None:
    run = writer(tmp_path)
    run.write_manifest({"phase": "run", "seed": 7})
    assert json.loads((run.path / "manifest.json").read_text()) == {"schema": 1, "phase": "run", "seed": 7}
    assert [path.name for path in run.path.iterdir()] == ["manifest.json"]


def test_a_run_of_milabench_1_3_is_read_by_its_file_names(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "tuto.2024-05-01_10:11:12.123456"
    folder.mkdir(parents=True)
    record = {"event": "data", "data": {"task": "train", "rate": 3.0, "units": "items/s"}, "pipe": "data"}
    (folder / "bert-fp16.D0.data").write_text(json.dumps(record) + "\n")
    run = rundir.open_run(folder)
    assert (run.manifest, run.journal, run.phase, run.is_ended) == ({}, (), "run", True)
    assert list(run.events("bert-fp16.D0")) == [
        Data(step="bert-fp16.D0", data={"task": "train", "rate": 3.0, "units": "items/s"})
    ]


def test_the_latest_run_is_the_newest_of_its_phase(tmp_path: Path) -> None:
    for day, phase in ((1, "run"), (2, "run"), (3, "prepare")):
        run = run_writer.create_run(tmp_path, phase, NOON.replace(day=day))
        run.write_manifest({"phase": phase})
    (tmp_path / "runs" / "notes").mkdir()
    assert runs_folder.latest_run(tmp_path).name == "run.2026-03-02_12-00-00"
    assert runs_folder.latest_run(tmp_path, "prepare").name == "prepare.2026-03-03_12-00-00"


def test_the_second_run_of_a_second_is_the_later_one(tmp_path: Path) -> None:
    for _ in range(12):
        run = writer(tmp_path)
    assert runs_folder.latest_run(tmp_path).path == run.path


def test_no_run_at_all_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(NothingSelected, match="milabench run"):
        runs_folder.latest_run(tmp_path)


def test_a_run_is_found_by_path_directory_name_or_run_name(tmp_path: Path) -> None:
    old, new = writer(tmp_path), writer(tmp_path)
    assert runs_folder.find_run(tmp_path, str(old.path)).path == old.path
    assert runs_folder.find_run(tmp_path, old.path.name).path == old.path
    assert runs_folder.find_run(tmp_path, "quick").path == new.path


def test_a_run_that_is_not_there_names_the_ones_that_are(tmp_path: Path) -> None:
    writer(tmp_path)
    with pytest.raises(NothingSelected, match=r"'slow'.*quick\.2026"):
        runs_folder.find_run(tmp_path, "slow")


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema": 2}', '{"phase": "run"}'])
def test_a_manifest_of_another_kind_is_a_record_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(RecordError, match=r"manifest\.json"):
        rundir.open_run(tmp_path)


def test_a_folder_that_is_no_run_is_a_record_error(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="is no run directory"):
        rundir.open_run(tmp_path)
    with pytest.raises(RecordError, match="no such run"):
        rundir.open_run(tmp_path / "nowhere")
