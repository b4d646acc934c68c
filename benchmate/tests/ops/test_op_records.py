"""The records: the original's keys and no more in its format, everything in ours; batches and nsys exports."""

from __future__ import annotations

import json
import sqlite3

import pytest
from configurations import number, operator, tensor

from benchmate.ops.base import OpsError
from benchmate.ops.config_file import iterate_inputs, parse_operators
from benchmate.ops.executor import InputResult
from benchmate.ops.nsys_analysis import analyse, main, parse_label
from benchmate.ops.options import (
    ExecutionPass,
    Options,
    ProfilerOptions,
    as_options,
    get_benchmark_options,
    parse_modes,
)
from benchmate.ops.profiler_batch import batch_payload, profiler_argv
from benchmate.ops.records import finish_record, input_record, open_output, write_record
from benchmate.ops.suite import metric_details

METRIC = {"forward": {"warmup.time": [0.2], "measure.time": [0.1]}}


def one_of(config):
    [spec] = parse_operators(config)
    return next(iterate_inputs(spec, "cpu"))


def test_a_record_of_the_original_has_its_four_keys():
    made = input_record(one_of({"torch.add": operator([tensor(2), tensor(2)])}), InputResult(metric=METRIC), Options())
    assert made == {
        "op_name": "torch.add",
        "id": "0|0|0",
        "metric": METRIC,
        "config": {"build": None, "input": {"args": [tensor(2), tensor(2)]}},
    }


def test_macros_are_in_no_record_also_not_inside():
    """D12 of the original."""
    inner = {"type": "genericlist", "value": [number([1, 2, 1], __range__=["value"])], "__range__": ["value"]}
    config = {
        "torch.add": operator({"args": [inner], "kwargs": {"n": number([1, 2, 1], __range__=["value"])}}, ranged=True)
    }
    assert "__range__" not in json.dumps(input_record(one_of(config), InputResult(), Options()))


def test_what_was_drawn_and_what_failed_is_in_both_formats():
    found = InputResult(
        status="failed", error={"type": "E", "message": "m", "stage": "run"}, drawn=[{"path": "args[0]", "value": 3}]
    )
    for form in ("original", "rich"):
        made = input_record(one_of({"torch.add": operator([tensor(2)])}), found, Options(format=form))
        assert (made["status"], made["error"]["message"], made["drawn"]) == (
            "failed",
            "m",
            [{"path": "args[0]", "value": 3}],
        )


def test_a_rich_record_says_how_far_it_can_be_trusted():
    one = one_of({"torch.add": operator([tensor(2)])})
    rich = Options(format="rich")
    assert input_record(one, InputResult(results=[{"converged": True}]), rich)["validity"] == "valid"
    made = input_record(one, InputResult(results=[{"converged": False}]), rich)
    assert (made["validity"], made["reasons"], made["run_id"], made["hash"]) == (
        "suspect",
        ["unconverged"],
        one.run_id,
        one.hash,
    )
    assert input_record(one, InputResult(details={"correctness": {"status": "wrong"}}), rich)["validity"] == "invalid"


def test_the_metric_of_a_suite_says_why_it_is_doubtful():
    one = one_of({"torch.add": operator([tensor(2)])})
    result = {"pass": "forward", "mode": "hot", "ci95": [1.0, 2.0], "samples": 30, "converged": True}
    assert "reasons" not in metric_details(one, result)
    assert metric_details(one, {**result, "converged": False}, ["zeros"])["reasons"] == ["zeros", "unconverged"]


def test_appending_begins_a_line_of_its_own_after_a_torn_one(tmp_path):
    path = tmp_path / "deep" / "out.json"
    for _ in range(2):
        with open_output(path, True) as stream:
            write_record(stream, finish_record({"passed": 1}))
    with path.open("a") as stream:
        stream.write('{"torn')
    with open_output(path, True) as stream:
        write_record(stream, finish_record({"passed": 2}))
    lines = path.read_text().splitlines()
    assert [json.loads(line)["counts"]["passed"] for line in (*lines[:2], lines[3])] == [1, 1, 2]
    assert lines[2] == '{"torn'


def test_the_originals_mapping_of_options_is_understood():
    options = as_options(
        {**get_benchmark_options(), "device": "cuda", "pass_type": ExecutionPass.BACKWARD, "iteration": 7, "other": 1}
    )
    assert (options.device, options.has_backward, options.iteration, options.modes) == ("cuda", True, 7, ("discrete",))
    assert as_options(options.described()).iteration == 7
    assert as_options({"cuda_l2_cache": "off"}).cuda_l2_cache is False


def test_our_modes_combine_and_the_originals_stand_alone():
    assert parse_modes("hot,cold") == ("hot", "cold")
    with pytest.raises(OpsError, match="unknown mode 'warm'"):
        parse_modes("warm")
    with pytest.raises(OpsError, match="stand alone"):
        parse_modes("discrete,hot")


def test_a_batch_tells_the_child_one_build_and_its_inputs():
    [spec] = parse_operators({"torch.nn.Linear": operator([tensor(2)], [tensor(3)], build=[{"args": [number(2)]}])})
    queue = list(iterate_inputs(spec, "cpu"))
    made = batch_payload(queue, Options(), ProfilerOptions(warmup=5, iteration=1))
    assert made["config_build_id"] == "0|0"
    assert [one["id"] for one in made["op_info"]["config"][0]["input"]] == [0, 1]
    assert made["op_info"]["config"][0]["build"] == [{"args": [number(2)]}]
    assert (made["run_options"]["warmup"], made["run_options"]["iteration"]) == (5, 1)
    assert as_options(json.loads(json.dumps(made["run_options"]))).warmup == 5


def test_the_profiler_is_told_which_range_to_look_at(tmp_path):
    more = tmp_path / "args"
    more.write_text("--metrics 'a b'\n")
    argv = profiler_argv("ncu", ProfilerOptions(program="ncu", args_file=str(more)), "o.log", "child --x", "shm")
    assert argv[argv.index("--nvtx-include") + 1] == "param_bench:measure"
    assert argv[-6:] == ["--metrics", "a b", "child", "--x", "-s", "shm"]
    assert profiler_argv("nsys", ProfilerOptions(program="nsys"), "o", "", "shm")[:4] == [
        "nsys",
        "profile",
        "-t",
        "cuda,nvtx",
    ]


def test_labels_of_now_and_of_the_oldest_version_are_read():
    """D11 of the original: its analysis no longer understood its own labels."""
    new, old = parse_label("[param|torch.mm|0|0_1|2_3|measure|forward]"), parse_label("torch.mm|measure|0|1|2|forward")
    assert tuple(new[key] for key in ("op", "id", "stage", "pass")) == ("torch.mm", "0|0_1|2_3", "measure", "forward")
    assert tuple(old[key] for key in ("op", "id", "stage", "pass")) == ("torch.mm", "0|1|2", "measure", "forward")
    assert parse_label("[param|measure]") is None


@pytest.fixture
def export(tmp_path):
    path = tmp_path / "report.sqlite"
    with sqlite3.connect(path) as connection:
        connection.executescript(
            """
            CREATE TABLE StringIds (id INTEGER, value TEXT);
            CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, text TEXT, textId INTEGER);
            CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, nameId INTEGER, correlationId INTEGER);
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, shortName INTEGER, correlationId INTEGER);
            INSERT INTO StringIds VALUES (1, 'cudaLaunchKernel'), (2, 'cudaDeviceSynchronize_v3020'), (3, 'gemm'),
                (4, '[param|torch.mm|0|0|0|measure|forward]');
            INSERT INTO NVTX_EVENTS VALUES (100, 1000, NULL, 4), (50, 2000, '[param|measure]', NULL),
                (1100, 1200, '[param|torch.mm|0|0|1|measure|forward]', NULL);
            INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (110, 120, 1, 7), (130, 140, 1, 8), (150, 950, 2, 9),
                (1300, 1310, 1, 10);
            INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (200, 500, 3, 7), (500, 900, 3, 8), (1400, 1500, 3, 10);
            """
        )
    connection.close()
    return path


def test_an_export_gives_the_times_of_each_pass(export, tmp_path):
    found = analyse(export)
    [busy] = found["torch.mm|0|0|0"]
    assert [busy[name] for name in ("T1", "T2", "T3", "T4", "T5")] == [900, 100, 700, 100, 800]
    [idle] = found["torch.mm|0|0|1"]
    assert [idle[name] for name in ("T1", "T2", "T3", "T4", "T5")] == [100, None, None, None, None]
    assert main(["-f", str(export), "-o", str(tmp_path / "o.json")]) == 0
    assert json.loads((tmp_path / "o.json").read_text()) == found


def test_what_is_no_export_is_said_so(tmp_path, capsys):
    (tmp_path / "x").write_text("no database, but long enough to look at")
    assert main(["-f", str(tmp_path / "x")]) == 2
    assert "not an nsys export" in capsys.readouterr().err
    assert main(["-f", str(tmp_path / "y")]) == 2
