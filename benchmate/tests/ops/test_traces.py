"""Execution traces without torch: files and schemas, lives of storages, selection, summary, configuration, fidelity."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import shlex
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest
from configurations import command
from traces import (
    ADD,
    EMBEDDING,
    EMPTY,
    NESTED,
    NONE,
    RELU,
    UNDEFINED,
    VIEW,
    content,
    file,
    listed,
    node,
    number,
    small,
    tensor,
    trace,
)

from benchmate.ops.base import OpsError, write_whole
from benchmate.ops.config_file import iterate_inputs, parse_operators
from benchmate.ops.traces import cli, progress, replay_report
from benchmate.ops.traces.graph import build_graph
from benchmate.ops.traces.plan import Slot, build_plan, select_calls
from benchmate.ops.traces.record import Recorder, TraceRecording, rank_path
from benchmate.ops.traces.schema import (
    SCHEMAS,
    DeviceRef,
    OpaqueValue,
    TensorRef,
    parse_trace,
    read_trace,
    split_types,
)
from benchmate.ops.traces.summary import predict_step, summarise_trace, to_configuration

ALL = ["1.0.1", *(f"{version}-chakra.0.0.4" for version in SCHEMAS if version != "1.0.1")]


def calls(found):
    return [call.id for call in select_calls(found, build_graph(found)).calls]


@pytest.mark.parametrize("schema", ALL)
def test_every_schema_says_the_same(schema):
    found = trace(*small(), schema=schema)
    assert [one.id for one in found.nodes] == [1, 10, 20, 21, 22, 23, 30, 33]
    rows, index, padding = found.nodes[1].inputs
    assert (rows.shape, rows.dtype, rows.storage, index.dtype, padding) == ((10, 4), "float32", 3, "int64", -1)
    assert calls(found) == [10, 20, 30, 33]
    assert len(to_configuration(found)[0]) == 3


def test_arguments_are_read_as_what_they_are():
    arguments = [
        listed(tensor(2, 3, 4), UNDEFINED),
        ("inf", "Double", [], []),
        ("cuda:0", "Device", [], []),
        ("<Object>", "Object", [], []),
        ("<None>", "Generator", [], []),
        ([[1, 2], []], "GenericList[GenericList[Int,Int],GenericList[]]", [[[], []], []], [[[], []], []]),
        (True, "Bool", [], []),
        ("none", "String", [], []),
    ]
    values = trace(node(10, "x", arguments, [])).nodes[1].inputs
    assert isinstance(values[0][0], TensorRef)
    assert values[0][1] is None
    assert values[1:] == (
        float("inf"), DeviceRef(name="cuda:0"), OpaqueValue(kind="Object"), None, ((1, 2), ()), True, "none",
    )  # fmt: skip


def test_nested_types_are_split_at_their_outermost_commas():
    assert split_types("Tensor(c10::complex<float>),GenericList[Int,Int],Tensor(nullptr (uninitialized))") == (
        "Tensor(c10::complex<float>)",
        "GenericList[Int,Int]",
        "Tensor(nullptr (uninitialized))",
    )


def test_a_file_may_be_compressed_or_in_an_archive(tmp_path):
    text = json.dumps(content(small())).encode()
    (tmp_path / "t.json.gz").write_bytes(gzip.compress(text))
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as made:
        member = tarfile.TarInfo("t.json")
        member.size = len(text)
        made.addfile(member, io.BytesIO(text))
    (tmp_path / "t.tar.gz").write_bytes(archive.getvalue())
    assert [len(read_trace(str(tmp_path / name)).nodes) for name in ("t.json.gz", "t.tar.gz")] == [8, 8]


def whole():
    return json.dumps(content(small()), indent=1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (whole()[: len(whole()) // 2].encode(), "cut off in the middle"),
        (gzip.compress(whole().encode())[:-40], "cut off or damaged"),
        (b"{'a'}", "1:2: not JSON"),
        (b"\xff\xfe", "not UTF-8 at byte 0"),
        (b"[1]", "not an execution trace"),
        (b'{"traceEvents": []}', "a trace of the profiler, not an execution trace"),
        (b'{"schema": "9.9.9", "nodes": []}', "unknown schema '9.9.9'"),
        (
            b'{"schema": "1.1.1-chakra.0.0.4", "nodes": [{"id": 7}]}',
            "node 7 does not fit schema 1.1.1-chakra.0.0.4: no 'attrs'",
        ),
        (b'{"schema": "1.1.1-chakra.0.0.4", "nodes": []}', "no operator in it"),
    ],
)
def test_a_bad_file_is_one_line(tmp_path, capsys, text, words):
    path = tmp_path / "bad"
    path.write_bytes(text)
    assert cli.main(["to-config", str(path)]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 1
    assert errors[0].startswith(f"error: {path}:")
    assert words in errors[0]


def test_a_parent_missing_at_the_end_leaves_roots():
    found = trace(node(10, "aten::relu", [tensor(2, 3, 4)], [tensor(4, 5, 4)], schema=RELU, parent=77))
    assert calls(found) == [10]


def test_a_storage_number_that_is_given_anew_is_other_memory():
    first, again = tensor(2, 3, 4), tensor(2, 3, 8)
    graph = build_graph(
        trace(
            node(10, "aten::relu", [tensor(8, 9, 4)], [first], schema=RELU),
            node(20, "aten::relu", [first], [tensor(4, 5, 4)], schema=RELU),
            node(30, "aten::relu", [tensor(8, 9, 4)], [again], schema=RELU),
            node(40, "aten::relu", [again], [tensor(6, 7, 8)], schema=RELU),
        )
    )
    assert graph.written[10] == graph.read[20]
    assert graph.written[30] == graph.read[40] != graph.written[10]
    assert graph.generations[graph.read[40][0]].birth == 30


def test_views_and_changes_in_place_stay_in_their_memory():
    weight, turned = tensor(2, 3, 4, 5), tensor(4, 3, 5, 4)
    schema = "aten::relu_(Tensor(a!) self) -> Tensor(a!)"
    graph = build_graph(
        trace(
            node(10, "aten::t", [weight], [turned], schema=VIEW),
            node(20, "aten::relu_", [turned], [turned], schema=schema),
        )
    )
    assert graph.read[10] == graph.written[10] == graph.read[20] == graph.written[20]


def test_a_number_that_nobody_wrote_is_not_what_lay_there_before():
    floats = tensor(2, 3, 4)
    scalar = tensor(2, 3, dtype="double", size=8)
    graph = build_graph(
        trace(
            node(10, "aten::relu", [tensor(8, 9, 4)], [floats], schema=RELU),
            node(20, "aten::add", [tensor(8, 9, 4), scalar, number(1)], [tensor(4, 5, 4)], schema=ADD),
        )
    )
    assert graph.read[20][1] != graph.written[10][0]
    assert graph.generations[graph.read[20][1]].birth is None


def test_an_operator_stands_for_what_it_called():
    assert calls(trace(*small())) == [10, 20, 30, 33]


def test_an_operator_that_hides_what_is_read_later_is_replaced_by_what_it_called():
    hidden = tensor(15, 16, 6, 4)
    reader = node(40, "aten::relu", [hidden], [tensor(41, 42, 6, 4)], schema=RELU)
    found = trace(*small(), reader)
    chosen = select_calls(found, build_graph(found))
    assert [one.id for one in chosen.calls] == [10, 21, 22, 23, 30, 33, 40]
    assert chosen.expanded == {20}


def test_an_operator_whose_calls_only_allocate_is_not_replaced_by_them():
    """As those that launch kernels of their own: what reads their workspace gets one that is made up."""
    workspace, out = tensor(31, 32, 8), tensor(33, 34, 4)
    kernel = node(30, "aten::own_kernel", [tensor(2, 3, 4)], [out], schema="aten::own_kernel(Tensor self) -> Tensor")
    empties = [
        node(31, "aten::empty", [listed(number(8))], [workspace], schema=EMPTY, parent=30),
        node(35, "aten::empty", [listed(number(4))], [out], schema=EMPTY, parent=30),
    ]
    found = trace(kernel, *empties, node(40, "aten::relu", [workspace], [tensor(41, 42, 8)], schema=RELU))
    assert calls(found) == [30, 40]
    chosen = select_calls(found, build_graph(found), lambda one: "no" if one.id == 30 else None)
    assert [(one.id, reason) for one, reason in chosen.skipped] == [(30, "no")]


def test_tensors_without_elements_share_no_memory_whatever_their_number_says():
    kernel = node(30, "aten::norm_backward", [tensor(2, 3, 4), tensor(5, 99, 0)], [tensor(33, 34, 4)],
                  schema="aten::norm_backward(Tensor self, Tensor reserve) -> Tensor")  # fmt: skip
    inner = node(31, "aten::relu", [tensor(2, 3, 4)], [tensor(36, 99, 0)], schema=RELU, parent=30)
    again = node(50, "aten::norm_backward", [tensor(2, 3, 4), tensor(7, 99, 0)], [tensor(53, 54, 4)],
                 schema="aten::norm_backward(Tensor self, Tensor reserve) -> Tensor")  # fmt: skip
    assert calls(trace(kernel, inner, again)) == [30, 50]


def test_an_operator_that_cannot_be_carried_out_is_replaced_or_skipped_with_the_reason():
    found = trace(*small())
    chosen = select_calls(found, build_graph(found), lambda one: "no" if one.id in (20, 30) else None)
    assert [one.id for one in chosen.calls] == [10, 21, 22, 23, 33]
    assert [(one.id, reason) for one, reason in chosen.skipped] == [(30, "no")]


def test_a_mask_that_old_schemas_did_not_write_is_no_obstacle():
    tensors = [tensor(2, 3, 4), tensor(4, 5, 4)]
    opaque = ("<unknown>", "<unknown>", [], [])
    mask = "aten::some_backward(Tensor grad, Tensor self, bool[2] output_mask) -> (Tensor, Tensor)"
    other = "aten::some_other(Tensor grad, Tensor self, Stream s) -> (Tensor, Tensor)"
    found = trace(
        node(10, "aten::some_backward", [*tensors, opaque], [], schema=mask),
        node(20, "aten::some_other", [*tensors, opaque], [], schema=other),
    )
    chosen = select_calls(found, build_graph(found))
    assert [one.id for one in chosen.calls] == [10]
    assert [reason for _, reason in chosen.skipped] == ["an argument whose value is not in the trace"]


def test_loading_of_data_and_steps_outside_the_marks_are_left_out():
    tail = [tensor(2, 3, 4)], [tensor(4, 5, 4)]
    found = trace(
        node(10, "aten::relu", *tail, schema=RELU),
        node(20, "ProfilerStep#3", [], []),
        node(21, "aten::relu", *tail, schema=RELU, parent=20),
        node(22, "enumerate(DataLoader)#_Single.__next__", [], [], parent=20),
        node(23, "aten::relu", *tail, schema=RELU, parent=22),
        node(30, "ProfilerStep#4", [], []),
        node(31, "aten::relu", *tail, schema=RELU, parent=30),
    )
    chosen = select_calls(found, build_graph(found))
    assert [one.id for one in chosen.calls] == [21]
    assert [(one.id, reason) for one, reason in chosen.skipped] == [(23, "loading of data")]


def test_a_plan_binds_results_to_readers_and_lets_them_go():
    found = trace(*small())
    graph = build_graph(found)
    made = build_plan(graph, select_calls(found, graph))
    embedding, linear, first, second = made.calls
    chosen = embedding.results[0]
    assert linear.arguments[0] == chosen == first.arguments[0] == second.arguments[1]
    assert linear.arguments[2] is None
    assert chosen.number in second.frees
    assert chosen.number not in first.frees
    assert {made.views[slot].ref.shape for slot in embedding.reads if made.views[slot].generation in made.given} == {
        (10, 4),
        (6,),
    }


def test_made_up_indices_stay_below_the_rows_they_name():
    found = trace(*small())
    graph = build_graph(found)
    made = build_plan(graph, select_calls(found, graph))
    assert made.bounds == {graph.read[10][1]: 10}
    assert made.calls[0].guards == ()


def test_indices_that_an_operator_made_of_unknown_data_are_guarded():
    index = tensor(4, 5, 6, dtype="long int", size=8)
    found = trace(
        node(10, "aten::empty", [listed(number(6)), number(4), NONE, NONE, NONE, NONE], [index], schema=EMPTY),
        node(20, "aten::embedding", [tensor(2, 3, 10, 4), index, number(-1)], [tensor(6, 7, 6, 4)], schema=EMBEDDING),
    )
    graph = build_graph(found)
    made = build_plan(graph, select_calls(found, graph))
    [guard] = made.calls[1].guards
    assert guard == (made.calls[1].arguments[1].number, 10)


def test_a_number_beside_tensors_without_dimensions_stays_a_number():
    scalar = tensor(2, 3, dtype="double", size=8)
    found = trace(node(10, "aten::add", [tensor(4, 5), scalar, number(1)], [tensor(6, 7)], schema=ADD))
    graph = build_graph(found)
    [call] = build_plan(graph, select_calls(found, graph)).calls
    assert call.arguments == (Slot(0), 0.5, 1)


def test_a_summary_counts_what_would_be_carried_out():
    group = {"pg_name": "0", "backend_config": "cpu:gloo", "ranks": [], "group_size": 2}
    init = node(2, "## process_group:init ##", [(json.dumps([group]), "String", [], [])], [])
    reduce = node(
        50,
        "c10d::allreduce_",
        [listed(tensor(2, 3, 10, 4)), ("<Object>", "Object", [], [])],
        [],
        schema="c10d::allreduce_()",
    )
    found = summarise_trace(trace(init, *small(), reduce))
    assert (found["operators"], found["calls"], found["unique"], found["ranks"]) == (8, 5, 4, 2)
    assert found["by_operator"][0] == {"name": "aten::add", "count": 2, "unique": 1, "bytes": 4 * 6 * 4 * 4}
    assert found["collectives"] == [{"name": "c10d::allreduce_", "count": 1, "unique": 1, "bytes": 160}]
    assert found["given_bytes"] == 160 + 48 + 80


def test_a_configuration_has_each_operator_once_with_its_count():
    made, left_out = to_configuration(trace(*small()))
    assert left_out == {}
    [add] = made["aten::add"]["config"]
    assert add["build"] == [{"args": [{"type": "str", "value": ADD}]}]
    [given] = add["input"]
    assert given["count"] == 2
    assert given["args"][0] == {"type": "tensor", "dtype": "float", "shape": [6, 4], "requires_grad": False}
    [embedding] = made["aten::embedding"]["config"]
    assert embedding["input"][0]["args"][1]["value_range"] == [0, 9]
    read_back = [one for spec in parse_operators(made) for one in iterate_inputs(spec, "cpu")]
    assert [one.run_id for one in read_back] == ["aten::embedding|0|0|0", "aten::linear|0|0|0", "aten::add|0|0|0"]


def test_records_of_a_configuration_add_up_to_the_step(tmp_path):
    path = tmp_path / "r.json"
    first = {"config": {"input": {"args": [], "count": 3}}, "results": [{"pass": "forward", "value": 2.0}]}
    second = {"config": {"input": {"count": 1}}, "metric": {"forward": {"measure.time": [500.0, 1500.0]}}}
    third = {"config": {"input": {"count": 4}}, "status": "failed"}
    path.write_text("\n".join(map(json.dumps, [{"run_options": {}}, first, second, third])))
    assert predict_step(str(path)) == {"seconds": 7.0, "calls": 4, "inputs": 3, "missing": 4}
    path.write_text("{}")
    with pytest.raises(OpsError, match="no record with a count"):
        predict_step(str(path))


def test_fidelity_joins_calls_by_torchs_own_number():
    found = trace(*small())
    graph = build_graph(found)
    chosen = select_calls(found, graph).calls
    events = [
        {"ph": "X", "cat": "cpu_op", "dur": 10.0, "args": {"External id": 5, "Record function id": 10}},
        {"ph": "X", "cat": "cpu_op", "dur": 30.0, "args": {"External id": 6, "Record function id": 20}},
        {"ph": "X", "cat": "cpu_op", "dur": 20.0, "args": {"External id": 7, "Record function id": 23}},
        {"ph": "X", "cat": "kernel", "dur": 15.0, "args": {"External id": 7}},
    ]
    recorded = replay_report.recorded_times(events, graph, chosen)
    assert recorded == pytest.approx({10: 10e-6, 20: 15e-6})
    told = replay_report.compare_times(recorded, {10: [20e-6], 20: [15e-6], 30: [1.0]})
    assert told["calls"] == 2
    assert told["ratio"] == pytest.approx(35 / 25)
    assert told["shares_in_common"] == pytest.approx(0.4 + 15 / 35)
    assert replay_report.compare_times({}, {10: [1.0]}) is None


def test_each_rank_has_its_file():
    assert [str(rank_path(name, 1, 2)) for name in ("t.json", "t.json.gz", "t{rank}.json", "t")] == [
        "t.rank-1.json", "t.rank-1.json.gz", "t1.json", "t.rank-1",
    ]  # fmt: skip
    assert str(rank_path("t.json", 0, 1)) == "t.json"


def test_a_configuration_holds_no_device_that_the_run_cannot_choose():
    def made(recorded_on, device, given=None):
        empty = node(5, "aten::empty", [listed(number(6)), number(4), NONE, (device, "Device", [], []), NONE, NONE],
                     [tensor(4, 5, 6)], schema=EMPTY)  # fmt: skip
        text = json.dumps(content([*small(), empty])).replace('4, "cpu"]', f'4, "{recorded_on}"]')
        found = to_configuration(parse_trace(json.loads(text)), given)[0]
        return found["aten::empty"]["config"][0]["input"][0]["args"][3]

    assert made("cuda:0", "cuda:0") == made("cpu", "cpu") == {"type": "device"}
    assert made("cuda:0", "cuda:0", "xpu:1") == {"type": "device", "value": "xpu:1"}
    # What went to the host from an accelerator stays there: every machine has one.
    assert made("cuda:0", "cpu") == {"type": "device", "value": "cpu"}


def test_kernels_without_a_schema_are_counted_as_not_carried_out(tmp_path, capsys):
    out = tensor(40, 41, 6, 4)
    region = node(50, "Torch-Compiled Region: 0/0", [], [])
    silent = node(60, "CompiledFunctionBackward", [out], [])
    path = file(
        tmp_path,
        *small(),
        node(42, "triton_poi_fused_cos_0", [tensor(2, 3, 4), out, number(24)], [], kernel_backend="triton"),
        region,
        node(51, "graph_0_cpp_fused_add_1", [], [], parent=50),
        silent,
        node(61, "aten::relu", [out], [tensor(62, 63, 6, 4)], schema=RELU, parent=60),
    )
    found = summarise_trace(read_trace(str(path)))
    why = "a compiled kernel whose code is not in the trace"
    whole = "compiled: work outside operators is not in the trace"
    assert (found["operators"], found["calls"], found["skipped"]) == (10, 5, {why: 2, whole: 1})
    assert cli.main(["to-config", str(path), "-o", str(tmp_path / "c.json")]) == 0
    assert f"left out: 2 x {why}" in capsys.readouterr().err


@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_is_a_line_that_changes_on_a_terminal_and_lines_in_a_log(is_terminal, monkeypatch):
    monkeypatch.setattr(progress, "TERMINAL_S" if is_terminal else "LOG_S", 0.001)
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: is_terminal)
    with progress.Progress(stream, "replay") as shown:
        for step in ("timed step 1 of 2", "timed step 2 of 2"):
            shown.say(step)
            deadline = time.monotonic() + 60
            while f"replay: {step} (" not in stream.getvalue():
                assert time.monotonic() < deadline, stream.getvalue()
                time.sleep(0.001)
    written = stream.getvalue()
    # The report begins in an empty line.
    assert written.endswith("\r\x1b[K" if is_terminal else " s)\n")
    assert ("\n" in written, "\r" in written) == (not is_terminal, is_terminal)


def test_a_recorder_counts_the_steps_of_one_optimizer():
    recorder = Recorder(TraceRecording(skip=100))
    generator, critic = object(), object()
    for optimizer in (generator, critic, critic, generator):
        recorder.on_step(optimizer)
    assert recorder.steps == 2


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["record"], "no program: trace record"),
        (["record", "--", "no-such-program"], "no-such-program: no such program"),
        (["record", "--skip", "-1", "--", "true"], "--skip: expected at least 0, got -1"),
        (["record", "-o", "nowhere/t.json", "--", "true"], "no folder"),
        (["record", "-o", "/dev/null", "--", "true"], "-o /dev/null: exists and is no file"),
        (["replay", "FILE", "-i", "0"], "-i: expected at least 1"),
        (["replay", "FOLDER"], "no rank-0.json"),
        (["summary", "nowhere.json"], "nowhere.json: No such file"),
        (["predict", "nowhere.json"], "nowhere.json: No such file"),
    ],
)
def test_a_mistake_ends_with_2_and_one_line(tmp_path, capsys, argv, words):
    names = {"FILE": str(file(tmp_path, *small())), "FOLDER": str(tmp_path)}
    assert cli.main([names.get(word, word) for word in argv]) == 2
    [error] = capsys.readouterr().err.splitlines()
    assert words in error


def test_a_program_without_optimizer_steps_is_told_so(tmp_path):
    (tmp_path / "empty.py").write_text("print('done')\n")
    done = command(tmp_path, "trace", "record", "--", sys.executable, "empty.py")
    assert (done.returncode, done.stdout) == (1, "done\n")
    assert done.stderr.startswith("error: nothing recorded: 0 steps of an optimizer, 9 are needed")


def test_commands_read_a_file_and_print(tmp_path, capsys):
    path = str(file(tmp_path, *small(), benchmate={"step_s": 0.001, "torch": "2.13", "ranks": 1}))
    assert cli.main(["summary", path]) == 0
    page = capsys.readouterr().out
    assert "8 nodes, 7 of operators; 4 calls, 3 of them different" in page
    assert "step 1 ms" in page
    assert cli.main(["summary", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == NESTED
    assert cli.main(["to-config", path, "-o", str(tmp_path / "c.json")]) == 0
    assert "3 operators, 3 inputs, 4 calls of a step" in capsys.readouterr().err
    assert set(json.loads((tmp_path / "c.json").read_text())) == {"aten::embedding", "aten::linear", "aten::add"}


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["pipe", "zero"])
@pytest.mark.parametrize("words", [["trace", "summary"], ["trace", "predict"], ["-c"]], ids="-".join)
def test_a_pipe_or_a_device_is_no_trace_and_no_configuration(tmp_path, make, words):
    path = tmp_path / "t.json"
    make(path)
    done = command(tmp_path, *words, str(path))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"error: {path}: not a regular file but a " in done.stderr


@pytest.mark.parametrize("behind", [b"", os.urandom(1 << 20)], ids=["alone", "before what is not packed"])
def test_what_unpacks_to_far_more_than_a_trace_is_refused(tmp_path, behind):
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(bytes(1 << 26) + behind))
    with pytest.raises(OpsError, match="unpacks to more than the limit of 16 MiB"):
        read_trace(str(path))
    with pytest.raises(OpsError, match="unpacks to more than the limit of 16 MiB"):
        replay_report.read_profile(str(path))


def test_a_trace_may_come_from_a_pipe_of_the_shell(tmp_path):
    (tmp_path / "t.json").write_text(json.dumps(content(small())))
    line = f"{shlex.quote(sys.executable)} -m benchmate.ops trace summary <(cat {tmp_path}/t.json) --json"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)


def test_a_configuration_that_does_not_fit_is_not_there(tmp_path, monkeypatch):
    (tmp_path / "t.json").write_text(json.dumps(content(small())))
    old = tmp_path / "old.json"
    old.write_text("old")
    done = command(tmp_path, "trace", "to-config", "t.json", "-o", "/dev/full")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, "error: -o /dev/full: No space left on device")

    def full(self, target):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    for path in (old, tmp_path / "new.json"):
        with pytest.raises(OpsError, match=f"-o {path}: No space left"):
            write_whole(str(path), "new")
    assert sorted((path.name, path.read_text()) for path in tmp_path.iterdir() if path.name != "t.json") == [
        ("old.json", "old")
    ]


def test_what_is_written_for_a_user_replaces_no_record_of_a_run(tmp_path):
    for name in ("manifest.json", "journal.jsonl", "a.D0.data"):
        (tmp_path / name).write_text("record")
    with pytest.raises(OpsError, match=r"is a record of a run. Choose another name"):
        write_whole(str(tmp_path / "a.D0.data"), "new")
    assert (tmp_path / "a.D0.data").read_text() == "record"
    write_whole(str(tmp_path / "new.json"), "new")
