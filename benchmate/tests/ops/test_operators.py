"""Operators in real torch: each kind is built, fed and timed; what goes wrong is a record; the modes and formats."""

from __future__ import annotations

import contextlib
import enum
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import traces
from configurations import CONFIGS, GENERATOR, command, needs_torch, number, operator, records, tensor

from benchmate.ops import cli

pytestmark = needs_torch

DRY_RULE = {"precision": 0.5, "samples": 6, "seconds": 0.0, "longest_s": 0.05, "every": 1}


def run(config, **options):
    """Records of a configuration run in this process, by operator; the counts."""
    from benchmate.ops import Benchmark, BenchmarkConfig
    from benchmate.ops.options import as_options

    stream = io.StringIO()
    chosen = as_options({"out_stream": stream, "rule": DRY_RULE, "has_peaks": False, "threads": 1, **options})
    counts = Benchmark(BenchmarkConfig(chosen).load(config)).run()
    return [record for line in stream.getvalue().splitlines() if "op_name" in (record := json.loads(line))], counts


def ops(folder, config, *options):
    """The command in this process: importing torch anew for each would take most of the tests' time."""
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    stdout, stderr, before = io.StringIO(), io.StringIO(), Path.cwd()
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
            code = cli.main(["-c", str(path), "--threads", "1", *options])
    finally:
        os.chdir(before)
    return SimpleNamespace(returncode=code, stdout=stdout.getvalue(), stderr=stderr.getvalue())


def one(config, **options):
    [record], _ = run(config, **options)
    return record


def test_the_documents_example_gives_the_documents_record(tmp_path):
    done = command(tmp_path, "-c", str(CONFIGS / "simple_add.json"), "-w", "2", "-i", "5", "-b")
    assert done.returncode == 0, done.stderr
    setup, record, finish = records(tmp_path)
    assert list(setup) == ["run_options", "sys_info", "start_time"]
    assert setup["run_options"]["cmd_args"]["iteration"] == 5
    assert {"hostname", "pid", "pytorch_version", "cuda_available", "cpu_model", "threads"} <= set(setup["sys_info"])
    assert list(record) == ["op_name", "id", "metric", "config"]
    assert list(record["metric"]) == ["forward", "backward"]
    for lists in record["metric"].values():
        assert [
            len(lists[key]) for key in ("warmup.time", "warmup.gpu.memory", "measure.time", "measure.gpu.memory")
        ] == [2, 2, 5, 5]
        assert all(time > 0 for time in lists["measure.time"])
    assert record["config"]["input"]["args"] == [tensor(256, 256)] * 2
    assert finish["counts"] == {"passed": 1, "failed": 0, "skipped": 0}


KINDS = {
    "torch.add_": operator([tensor(4), tensor(4)]),
    "torch.clamp_": operator({"args": [tensor(4)], "kwargs": {"min": number(0.2, "float")}}),
    "torch.add": operator([tensor(4), tensor(4)]),
    "torch.baddbmm": operator([tensor(2, 1, 4), tensor(2, 3, 4), tensor(2, 4, 4)]),
    "torch.bmm": operator([tensor(2, 3, 4), tensor(2, 4, 5)]),
    "torch.cat": operator(
        {"args": [{"type": "genericlist", "value": [tensor(2, 3)] * 2}], "kwargs": {"dim": number(1)}}
    ),
    "torch.matmul": operator([tensor(2, 3), tensor(3)]),
    "torch.mean": operator([tensor(5)]),
    "torch.mm": operator([tensor(2, 3), tensor(3, 4)]),
    "torch.mul": operator([tensor(3), number(2.5, "float")]),
    "torch.nn.functional.relu": operator([tensor(3)]),
    "torch.reshape": operator([tensor(4, 2), {"type": "tuple", "value": [number(8)]}]),
    "torch.nn.AdaptiveAvgPool2d": operator([tensor(1, 2, 8, 8)], build=[{"args": [number(2)]}]),
    "torch.nn.Conv2d": operator([tensor(1, 3, 8, 8)], build=[{"args": [number(3), number(4), number(3)]}]),
    "torch.nn.Dropout": operator([tensor(8)], build=[{"args": [number(0.5, "float")]}]),
    "torch.nn.MaxPool2d": operator([tensor(1, 2, 8, 8)], build=[{"args": [number(2)]}]),
    "torch.nn.ReLU": operator([tensor()], build=[]),
    "torch.nn.Linear": operator([tensor(2, 3)], build=[{"args": [number(3), number(4)]}]),
    "pytorch.model.alex_net": operator([tensor(1, 3, 64, 64)], build=[{"kwargs": {"num_classes": number(2)}}]),
    "pytorch.model.resnet": operator([tensor(2, 3, 32, 32)], build=[{"kwargs": {"num_classes": number(2)}}]),
    "aten::add.Tensor": operator({"args": [tensor(3), tensor(3)], "kwargs": {"alpha": number(2)}}),
    "aten::sum": operator([tensor(3, 4)]),
    "aten::_softmax": operator([tensor(3, 4), number(1), number(False, "bool")]),
    "torch.nn.functional.scaled_dot_product_attention": operator([tensor(1, 2, 8, 4)] * 3),
    "torch.nn.LayerNorm": operator([tensor(2, 8)], build=[{"args": [number(8)]}]),
    "torch.nn.functional.embedding": operator([tensor(5, dtype="long", value_range=[0, 9]), tensor(10, 4)]),
    "torch.softmax": operator([tensor(2, 4), number(-1)]),
    "torch.optim.AdamW": operator([], build=[{"args": [{"type": "genericlist", "value": [tensor(4, 4)]}]}]),
    "copy.device_to_device": operator([tensor(16)]),
}


TABLE = tensor(1000, 64)
TEN_ROWS = tensor(10, dtype="long", value_range=[0, 999])
# bytes by hand, float32 and int64: what each has to read, and to write
TOUCHED = {
    "torch.nn.functional.embedding": (operator([TEN_ROWS, TABLE]), 10 * 8 + 2 * 10 * 64 * 4),
    "torch.index_select": (operator([TABLE, number(0), TEN_ROWS]), 10 * 8 + 2 * 10 * 64 * 4),
    "torch.transpose": (operator([TABLE, number(0), number(1)]), 0),
    "torch.add": (operator([TABLE, TABLE]), 3 * 1000 * 64 * 4),
    "torch.add_": (operator([TABLE, tensor(64)]), 2 * 1000 * 64 * 4 + 64 * 4),
    "torch.softmax": (operator([TABLE, number(-1)]), 2 * 1000 * 64 * 4),
    "torch.nn.Linear": (operator([TABLE], build=[{"args": [number(64), number(8)]}]), 4 * (64000 + 64 * 8 + 8 + 8000)),
}


@pytest.mark.parametrize("name", TOUCHED)
def test_bytes_are_those_that_an_operator_touches(name):
    config, touched = TOUCHED[name]
    record = one({name: config}, format="rich")
    assert (record["work"]["bytes"], record["work"]["no_bytes"]) == (touched, "")
    assert ("byte_per_s" in record["results"][0]) == bool(touched)


def test_an_embedding_bag_reads_its_rows_and_a_foreign_gather_is_not_counted():
    import torch
    from torch import library

    from benchmate.ops.roofline import count_work

    rows, table = torch.zeros(12, dtype=torch.long), torch.zeros(100, 16)
    bag = torch.nn.functional.embedding_bag
    assert count_work(lambda: bag(rows.view(3, 4), table), [rows, table]).bytes == pytest.approx(
        12 * 8 + 12 * 64 + 3 * 64, abs=12 * 24
    )
    assert count_work(table.zero_, [table]).bytes == 100 * 64  # it is not read
    operators = library.Library("benchmate_test", "FRAGMENT")
    operators.define("lookup(Tensor table, Tensor rows) -> Tensor")
    operators.impl("lookup", lambda table, rows: table[rows], "CPU")
    work = count_work(lambda: torch.ops.benchmate_test.lookup(table, rows), [table, rows])
    assert (work.bytes, work.no_bytes) == (None, "it is not known which bytes benchmate_test::lookup touches")


def test_a_causal_mask_halves_the_operations_of_attention():
    import torch

    from benchmate.ops.roofline import count_work

    query = torch.zeros(1, 2, 64, 16)
    attend = torch.nn.functional.scaled_dot_product_attention
    whole, causal = (
        count_work(lambda mask=mask: attend(query, query, query, is_causal=mask), [query]).flops
        for mask in (False, True)
    )
    assert whole == 2 * 2 * 2 * 64 * 64 * 16
    assert causal == whole * 65 // 128


def test_a_share_beyond_the_measured_peak_is_suspect(monkeypatch):
    from benchmate.ops import roofline

    slow = roofline.MeasuredPeaks(flops_per_s=1.0, bytes_per_s=1.0)
    monkeypatch.setattr(roofline, "measure_peaks", lambda *args, **kwargs: slow)
    record = one({"torch.mm": KINDS["torch.mm"]}, format="rich", has_peaks=True)
    assert (record["validity"], "above-peak" in record["reasons"]) == ("suspect", True)


def test_every_kind_of_operator_runs():
    found, counts = run(KINDS, pass_type="backward", format="rich")
    assert [(record["op_name"], record.get("error")) for record in found if record["status"] != "passed"] == []
    assert counts["passed"] == len(KINDS)
    by_name = {record["op_name"]: record for record in found}
    assert by_name["torch.mm"]["work"]["flops"] == 2 * 2 * 3 * 4
    assert [by_name[name]["work"]["convolves"] for name in ("torch.mm", "torch.nn.Conv2d")] == [False, True]
    assert by_name["torch.mm"]["work"]["bytes"] == 4 * (6 + 12 + 8)
    assert by_name["torch.mm"]["correctness"]["status"] == "correct"
    assert by_name["torch.nn.Dropout"]["correctness"]["reason"] == "two calls with the same input differ: random"
    for name in ("torch.add_", "torch.optim.AdamW", "copy.device_to_device"):
        assert "backward" not in by_name[name]["metric"]
        assert by_name[name]["no_backward"]
    for name in ("torch.mm", "torch.nn.Conv2d", "pytorch.model.resnet", "aten::sum", "torch.nn.ReLU"):
        assert by_name[name]["metric"]["backward"]["measure.time"][0] > 0


def test_resnet50_has_its_parameters():
    from benchmate.ops.models import AlexNet, ResNet50

    assert sum(one.numel() for one in ResNet50().parameters()) == 25_557_032
    assert sum(one.numel() for one in AlexNet().parameters()) == 61_100_840


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int", "long", "bool", "float16", "bfloat16", "double"])
def test_tensors_of_every_dtype_with_requires_grad_left_out(dtype):
    """Integer tensors failed in the original unless they said requires_grad: false, uint8 always."""
    assert "status" not in one({"torch.clone": operator([tensor(4, dtype=dtype)])})


def test_a_schema_as_build_argument_picks_the_overload_and_defaults_are_filled_in():
    schema = "aten::sum.dim_IntList(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor"
    dims = {"type": "genericlist", "value": [number(1)]}
    config = operator([tensor(3, 4), dims], build=[{"args": [number(schema, "str")]}])
    assert "status" not in one({"aten::sum": config})
    wrong = operator([tensor(3)], build=[{"args": [number("aten::sum(Tensor", "str")]}])
    assert one({"aten::sum": wrong})["error"]["stage"] == "build"
    every = [tensor(3, 4), dims, number(True, "bool"), {"type": "none"}]
    assert "status" not in one({"aten::sum": operator(every, build=[{"args": [number(schema, "str")]}])})


def test_a_build_does_not_outlive_its_configuration():
    config = operator([tensor(2, 3)], build=[{"args": [number(3), number(4)]}])
    config["config"].append({"input": [{"args": [tensor(2, 3)]}]})
    first, second = run({"torch.nn.Linear": config})[0]
    assert "status" not in first
    assert 'needs a "build"' in second["error"]["message"]


def test_a_failure_is_a_record_and_the_run_goes_on(tmp_path):
    """D2 of the original."""
    config = {
        "torch.mm": operator(
            [tensor(2, 3), tensor(2, 3)], [tensor(1 << 22, 1 << 22), tensor(2, 3)], [tensor(2, 3), tensor(3, 2)]
        ),
        "torch.nn.Linear": operator([tensor(2)], build=[{"args": [number("three", "str")]}]),
        "torch.add": operator([tensor(2), tensor(2)]),
    }
    done = ops(tmp_path, config)
    assert done.returncode == 1
    found = records(tmp_path)[1:-1]
    assert [record.get("status", "passed") for record in found] == ["failed", "failed", "passed", "failed", "passed"]
    assert [record["error"]["stage"] for record in found if "error" in record][:3] == ["run", "data", "build"]
    assert "shapes cannot be multiplied" in found[0]["error"]["message"]
    assert found[1]["error"]["why"] == "out-of-memory"
    assert records(tmp_path)[-1]["counts"]["passed"] == 2
    assert "torch.mm|0|0|0: failed: run" in done.stderr


def test_what_this_machine_cannot_have_is_skipped_with_the_reason():
    table = operator(
        [number(8), number(3)],
        build=[{"args": [number(2)]}],
        input_iterator="SplitTableBatchedEmbeddingBagsCodegenInputIterator",
    )
    table["input_data_generator"] = "SplitTableBatchedEmbeddingBagsCodegenInputDataGenerator"
    config = {
        "SplitTableBatchedEmbeddingBagsCodegen": table,
        "copy.host_to_device": operator([tensor(4)]),
        "torch.distributed.all_reduce": operator([tensor(4)]),
    }
    found, counts = run(config)
    assert counts == {"passed": 0, "failed": 0, "skipped": 3}
    words = ("fbgemm_gpu cannot be imported", "needs an accelerator", "torchrun")
    for record, word in zip(found, words, strict=True):
        assert word in record["error"]["message"]


LIMITED = """
import resource, sys, torch
limit = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize() + (1 << 30)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
from benchmate.ops.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


def limited(folder, *argv):
    """The command, with memory for little more than torch itself."""
    argv = [sys.executable, "-c", LIMITED, *argv]
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(argv, cwd=folder, env=environ, capture_output=True, text=True, check=False)


def test_memory_that_cannot_be_had_is_told_so(tmp_path):
    config = {
        "torch.zeros": operator([number(10**14)]),
        "torch.add": operator([tensor(20000, 20000), tensor(1)], [tensor(2), tensor(2)]),
        "torch.nn.Linear": operator([tensor(1)], build=[{"args": [number(10**6), number(10**6)]}]),
    }
    (tmp_path / "c.json").write_text(json.dumps(config))
    done = limited(tmp_path, "-c", "c.json")
    assert (done.returncode, done.stdout.split(".")[0]) == (1, "1 passed, 3 failed"), done.stderr
    found = [record["error"] for record in records(tmp_path) if record.get("status") == "failed"]
    assert [(error["stage"], error["why"]) for error in found] == [
        ("run", "out-of-memory"),
        ("data", "out-of-memory"),
        ("build", "out-of-memory"),
    ]
    assert "torch.zeros|0|0|0: failed: run: out-of-memory: " in done.stderr


def test_a_trace_that_does_not_fit_is_told_so(tmp_path):
    side = 1 << 15
    column, row = traces.tensor(50, 51, side, 1), traces.tensor(52, 53, 1, side)
    product = traces.node(60, "aten::mm", [column, row], [traces.tensor(61, 62, side, side)],
                          schema="aten::mm(Tensor self, Tensor mat2) -> Tensor")  # fmt: skip
    path = traces.file(tmp_path, *traces.small(), product)
    done = limited(tmp_path, "trace", "replay", str(path), "-i", "1")
    assert (done.returncode, "failed      1 x aten::mm: out-of-memory: " in done.stdout) == (1, True), done.stderr
    huge = traces.tensor(2, 3, side, side)
    read = traces.node(40, "aten::relu", [huge], [traces.tensor(41, 42, side, side)], schema=traces.RELU)
    done = limited(tmp_path, "trace", "replay", str(traces.file(tmp_path, *traces.small(), read)), "-i", "1")
    assert (done.returncode, done.stdout) == (1, "")
    [line] = done.stderr.splitlines()
    assert line.startswith(f"error: {path}: out-of-memory: ")


def test_unknown_names_are_errors_before_anything_runs(tmp_path):
    for name, word in (
        ("torch.nn.Linaer", "Linear"),
        ("aten::addd", "add"),
        ("torch.distributed.al_reduce", "all_reduce"),
    ):
        done = ops(tmp_path, {name: operator([tensor(2)])})
        assert (done.returncode, word in done.stderr) == (2, True), done.stderr
    assert ops(tmp_path, {"torch.add": operator([tensor(2), tensor(2)])}, "-d", "meta").returncode == 2
    assert ops(tmp_path, {"torch.add": operator([tensor(2), tensor(2)])}, "-d", "nothing").returncode == 2
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


@pytest.mark.parametrize("name", ["torch.os.system", "torch.sys.exit", "torch.nn.functional.Optional"])
def test_what_torch_itself_imports_is_no_operator(tmp_path, name):
    done = ops(tmp_path, {name: operator([{"type": "str", "value": "touch ran"}])})
    assert (done.returncode, f"unknown operator '{name}'" in done.stderr) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_one_unknown_operator_is_skipped_and_the_others_run(tmp_path):
    config = {name: operator([tensor(2), tensor(2)]) for name in ("add", "torch.add", "aten::addd", "fbgemm::addd")}
    done = ops(tmp_path, config)
    assert done.returncode == 1
    assert "add|0|0|0: skipped: import: unknown operator 'add'" in done.stderr
    assert done.stdout.startswith("1 passed, 3 skipped; unknown: add, aten::addd. Records: ")
    _, *found, finish = records(tmp_path)
    assert [record.get("status", "passed") for record in found] == ["skipped", "passed", "skipped", "skipped"]
    assert "fbgemm_gpu cannot be imported" in found[3]["error"]["message"]
    assert finish["counts"] == {"passed": 1, "failed": 0, "skipped": 3}


def test_an_operator_has_one_thread_in_the_originals_format_and_the_record_says_so(tmp_path):
    for options, threads in (((), 1), (("--threads", "2"), 2)):
        done = command(tmp_path, "-c", str(CONFIGS / "simple_add.json"), "-o", str(threads), "-a", *options)
        assert done.returncode == 0, done.stderr
        setup = json.loads((tmp_path / f"{threads}.json").read_text().splitlines()[0])
        assert (setup["run_options"]["threads"], setup["sys_info"]["threads"]) == (threads, threads)


def test_a_device_without_a_value_is_that_of_the_run(tmp_path):
    device = {"args": [{"type": "genericlist", "value": [number(2)]}], "kwargs": {"device": {"type": "device"}}}
    assert run({"torch.zeros": operator(device)})[1]["passed"] == 1


def test_torch_says_nothing_of_itself_before_the_output(tmp_path):
    (tmp_path / "numpy").mkdir()
    (tmp_path / "numpy" / "__init__.py").write_text("raise ModuleNotFoundError('none here', name='numpy')\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", "benchmate.ops", "-c", str(CONFIGS / "simple_add.json"), "-p", "--et"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    [line] = done.stderr.splitlines()
    assert line.startswith("torch.add|0|0|0: forward discrete: ")


def test_the_draw_is_recorded_and_the_seed_repeats_it():
    alpha = {"type": "int", "value_range": [1, 10**9]}
    config = {"torch.add": operator({"args": [tensor(2), tensor(2)], "kwargs": {"alpha": alpha}})}
    drawn = [one(config, seed=seed)["drawn"] for seed in (0, 0, 1)]
    assert drawn[0][0]["path"] == "kwargs.alpha"
    assert drawn[0] == drawn[1] != drawn[2]


def test_data_are_as_documented():
    import torch

    from benchmate.ops import DefaultDataGenerator

    config = {"args": [tensor(1000), tensor(1000, dtype="long"), tensor(1000, dtype="uint8"), tensor()]}
    (real, integers, unsigned, scalar), _ = DefaultDataGenerator(seed=1).get_data(config, "cpu")
    assert real.requires_grad
    assert 0 <= float(real.detach().min()) < float(real.detach().max()) < 1
    assert (int(integers.min()), int(integers.max()), integers.dtype) == (-10, 9, torch.int64)
    assert int(unsigned.max()) == 9
    assert scalar.shape == ()
    [kept], _ = (cached := DefaultDataGenerator(cache=True)).get_data({"args": [tensor(3)]}, "cpu")
    assert cached.get_data({"args": [tensor(3)]}, "cpu")[0][0] is kept
    assert cached.get_data({"args": [tensor(4)]}, "cpu")[0][0] is not kept


@pytest.mark.parametrize("mode", ["discrete", "continuous", "continuous_events"])
def test_the_originals_modes_give_one_time_a_call_on_a_cpu(mode):
    metric = one(
        {"torch.mm": operator([tensor(4, 4), tensor(4, 4)])}, op_exec_mode=mode, iteration=3, pass_type="backward"
    )["metric"]
    assert [len(metric[direction]["measure.time"]) for direction in ("forward", "backward")] == [3, 3]


def test_a_dry_run_makes_no_data():
    record = one({"torch.mm": operator([tensor(1 << 30, 1 << 30)])}, warmup=0, iteration=0)
    assert record["metric"] == {}
    assert "status" not in record


def test_our_modes_have_a_median_with_its_interval():
    record = one(
        {"torch.mm": operator([tensor(8, 8), tensor(8, 8)])},
        modes=("hot", "cold", "end-to-end"),
        format="rich",
        pass_type="backward",
    )
    assert [(one["pass"], one["mode"]) for one in record["results"]] == [
        (direction, mode) for direction in ("forward", "backward") for mode in ("hot", "cold", "end-to-end")
    ]
    for result in record["results"]:
        assert result["min"] <= result["ci95"][0] <= result["value"] <= result["ci95"][1]
        assert result["samples"] >= 6
    assert record["results"][0]["loops"] > record["results"][1]["loops"] == 1
    assert record["results"][0]["flop_per_s"] > 0


def test_resume_and_stop_take_ids_and_hashes(tmp_path):
    config = {"torch.add": operator(*[[tensor(n), tensor(n)] for n in (1, 2, 3, 4)])}
    lines = ops(tmp_path, config, "--expand").stdout.splitlines()
    digest = lines[3].split()[1]
    done = ops(tmp_path, config, "-r", "torch.add|0|0|1", "-s", digest)
    assert done.returncode == 0, done.stderr
    assert [record["id"] for record in records(tmp_path)[1:-1]] == ["0|0|1", "0|0|2"]


def test_append_really_appends_and_traces_lie_beside_the_records(tmp_path):
    config = {"torch.add": operator([tensor(2), tensor(2)])}
    for _ in range(2):
        assert ops(tmp_path, config, "-a", "-o", "mine", "-p", "--et").returncode == 0
    found = records(tmp_path, "mine.json")
    assert [
        key
        for record in found
        for key in ("start_time", "op_name", "finish_time", "trace_file", "et_file")
        if key in record
    ] == [
        "start_time",
        "op_name",
        "finish_time",
        "trace_file",
        "et_file",
    ] * 2
    names = {event.get("name") for event in json.loads((tmp_path / "mine_trace.json").read_text())["traceEvents"]}
    assert "[param|torch.add|0|0|0|measure|forward]" in names


def test_a_batch_runs_under_the_profiler_and_its_failure_counts(tmp_path):
    profiler = tmp_path / "ncu"
    # Stands in for the profiler: starts the child, which is what follows its own options.
    profiler.write_text('#!/bin/sh\nwhile [ "$1" != all ]; do shift; done; shift\n"$@" && echo profiled\n')
    profiler.chmod(0o755)
    config = {
        "torch.nn.Linear": operator(*[[tensor(n, 3)] for n in range(1, 4)], build=[{"args": [number(3), number(2)]}])
    }
    done = ops(tmp_path, config, "--ncu", "--ncu-bin", str(profiler), "--run-batch-size", "2")
    assert done.returncode == 0, done.stderr
    found = records(tmp_path)
    batches = [record for record in found if "ncu_file" in record]
    assert [(one["start_run_id"][-1], one["end_run_id"][-1], one["return_code"]) for one in batches] == [
        ("0", "1", 0),
        ("2", "2", 0),
    ]
    assert [("ncu_file" in record) for record in found[1:-1]] == [False, False, True, False, True]
    assert "profiled" in done.stderr
    done = ops(tmp_path, config, "--nsys", "--nsys-bin", "no-such-program", "-o", str(tmp_path / "second"))
    assert done.returncode == 1
    assert "no-such-program" in records(tmp_path, "second_*.json")[-2]["error"]


def test_operators_and_generators_of_ones_own(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import torch\n"
        "from benchmate.ops import DataGenerator, OperatorInterface, register_data_generator, register_operator\n"
        "class Square(OperatorInterface):\n"
        "    def forward(self, x):\n"
        "        self.out = x * x\n"
        "        return self.out\n"
        "    def create_grad(self): self.grad = torch.ones_like(self.out)\n"
        "    def backward(self): self.out.backward(self.grad)\n"
        "class Sizes(DataGenerator):\n"
        "    def get_data(self, config, device): return [torch.rand(config['size'], requires_grad=True)], {}\n"
        "register_operator('square', Square())\n"
        "register_data_generator('Sizes', Sizes)\n"
    )
    config = {"square": operator({"size": 3}, input_iterator="DummyConfigIterator", input_data_generator="Sizes")}
    done = ops(tmp_path, config, "--import", "mine", "-b")
    assert done.returncode == 0, done.stderr
    record = records(tmp_path)[1]
    assert record["metric"]["backward"]["measure.time"][0] > 0
    assert record["config"]["input"] == {"size": 3}


def test_the_library_runs_one_operator_on_the_fly():
    from benchmate.ops import (
        OpExecutor,
        create_bench_config,
        create_op_args,
        create_type,
        get_benchmark_options,
        make_op_config,
    )

    config = create_bench_config("torch.mm")
    made = create_op_args([create_type("tensor", [4, 4])] * 2, {})
    op_config = make_op_config("torch.mm", config["torch.mm"], "cpu")
    args, kwargs = op_config.input_data_generator().get_data(made, "cpu")
    metric = OpExecutor("torch.mm", op_config.op, get_benchmark_options()).run(args, kwargs, "0|0|0")
    assert list(metric["forward"]) == ["warmup.time", "warmup.gpu.memory", "measure.time", "measure.gpu.memory"]


PROGRAM = """
import torch
from ...lib import __version__, pytorch as modules
from ...lib.config import make_op_config
from ...lib.init_helper import get_logger, load_modules
from ...lib.iterator import ConfigIterator, register_config_iterator
from ...lib.pytorch.config_util import (
    ExecutionPass, OpExecutionMode, create_bench_config, create_op_args, create_type, get_benchmark_options, init_pytorch,
)
from ...lib.pytorch.op_executor import OpExecutor
from ...workloads import pytorch as operators

load_modules(modules)
load_modules(operators)
left = create_type("tensor")
left["shape"] = [8, 4]
info = create_bench_config("torch.mm")["torch.mm"]
info["config"][0]["input"].append(create_op_args([left, {**left, "shape": [4, 8]}], {}))
options = get_benchmark_options()
init_pytorch(options)
options["pass_type"] = ExecutionPass.BACKWARD
options["op_exec_mode"] = OpExecutionMode.CONTINUOUS
made = make_op_config("torch.mm", info, options["device"])
args, kwargs = made.input_data_generator().get_data(info["config"][0]["input"][0], options["device"])
found = OpExecutor("torch.mm", made.op, options).run(args, kwargs, "0:0:0")
print(torch.get_num_threads(), {name: sorted(lists) for name, lists in found.items()})
"""


def test_a_program_of_the_originals_library_runs_with_the_aliases(tmp_path):
    folder = tmp_path / "param_bench" / "train" / "compute" / "python" / "examples" / "pytorch"
    folder.mkdir(parents=True)
    (folder / "one.py").write_text(PROGRAM)
    path = [command(tmp_path, "alias").stdout.strip(), str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-m", "param_bench.train.compute.python.examples.pytorch.one"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": os.pathsep.join(path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lists = ["measure.gpu.memory", "measure.time", "warmup.gpu.memory", "warmup.time"]
    assert done.stdout == f"1 { ({'forward': lists, 'backward': lists}) }\n"
    assert done.stderr == ""


class OptimType(enum.Enum):
    EXACT_SGD = "exact_sgd"
    EXACT_ROWWISE_ADAGRAD = "exact_row_wise_adagrad"


class SparseType(enum.Enum):
    FP16 = "fp16"


def test_tables_are_built_with_the_optimizer_as_the_originals_configuration_names_it(monkeypatch):
    import torch

    from benchmate.ops.base import OperatorFailed
    from benchmate.ops.fbgemm import SplitTableOp

    built = []
    both = SimpleNamespace(HOST=1, CPU=1)
    package = ModuleType("fbgemm_gpu")
    package.split_table_batched_embeddings_ops_common = SimpleNamespace(EmbeddingLocation=both, PoolingMode={"SUM": 0})
    package.split_table_batched_embeddings_ops_training = SimpleNamespace(
        ComputeDevice=both, SparseType=SparseType, OptimType=OptimType,
        SplitTableBatchedEmbeddingBagsCodegen=lambda _, **options: built.append(options) or torch.nn.Identity(),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "fbgemm_gpu", package)
    op = SplitTableOp()
    for more, keywords in (((), {"optimizer": "exact_row_wise_adagrad"}), (("EXACT_ROWWISE_ADAGRAD",), {})):
        op.build(1, 100, 8, 0, False, "fp16", *more, **keywords)
    assert [(options["optimizer"], options["weights_precision"]) for options in built] == [
        (OptimType.EXACT_ROWWISE_ADAGRAD, SparseType.FP16)
    ] * 2
    with pytest.raises(OperatorFailed, match=r"unknown OptimType 'exact_rowwise'. Did you mean"):
        op.build(1, 100, 8, 0, False, "fp16", "exact_rowwise")


def test_a_program_may_describe_tables_and_input_in_one_list():
    from benchmate.ops.fbgemm import SplitTableInputGenerator

    values = [number(2), number(10), number(4), number(3), number(5), number(True, "bool"), number("fp16", "str")]
    (indices, offsets, weights), _ = SplitTableInputGenerator().get_data({"args": values}, "cpu")
    assert (indices.numel(), offsets.tolist(), weights.numel()) == (30, list(range(0, 31, 5)), 30)


def test_rows_of_embedding_tables_follow_alpha():
    import torch

    from benchmate.ops.fbgemm import SplitTableInputGenerator, rows_of

    generator = torch.Generator().manual_seed(0)
    assert rows_of(3, 7, 0.5, generator).tolist() == [0, 1, 2, 0, 1, 2, 0]
    zipf, uniform = rows_of(1000, 4000, 1.5, generator), rows_of(1000, 4000, 1.0, generator)
    assert 0 <= int(zipf.min()) <= int(zipf.max()) < 1000
    assert float(zipf.double().mean()) < float(uniform.double().mean()) / 2
    tables = [number(2), number(100), number(8), number(0), number(True, "bool")]
    (indices, offsets, weights), _ = SplitTableInputGenerator().get_data(
        {"tables": tables, "args": [number(4), number(3)]}, "cpu"
    )
    assert (len(indices), offsets.tolist()[-1], len(offsets), len(weights)) == (24, 24, 9, 24)


def test_collectives_over_gloo_give_bus_bandwidth(tmp_path):
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"torch.distributed.all_reduce": operator([tensor(1024)])}))
    launcher = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "-m",
        "benchmate.ops",
    ]
    options = [
        "-c",
        str(path),
        "--exec-mode",
        "end-to-end",
        "--max-time",
        "0.2",
        "-o",
        str(tmp_path / "out"),
        "--threads",
        "1",
    ]
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*launcher, *options], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    [result] = records(tmp_path, "out_*.json")[1]["results"]
    assert result["ranks"] == 2
    assert result["alg_byte_per_s"] == pytest.approx(4096 / result["value"])
    assert result["bus_byte_per_s"] == pytest.approx(result["alg_byte_per_s"])


def test_a_file_of_the_original_without_generator_is_refused_in_words(tmp_path):
    done = ops(tmp_path, {"torch.add": {"config": [{"input": [{"args": [tensor(2), tensor(2)]}]}]}})
    assert (done.returncode, GENERATOR in done.stderr) == (2, True)
