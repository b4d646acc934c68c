"""Replays in real torch: what a trace of a training step needs, old schemas, failures, both directions of a file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from configurations import GENERATOR, needs_torch
from traces import ADD, EMPTY, NONE, RELU, content, file, listed, node, number, small, tensor, trace

from benchmate.ops.traces import cli
from benchmate.ops.traces.schema import parse_trace, read_trace

pytestmark = needs_torch

OLD = ["1.0.1", "1.0.2-chakra.0.0.4", "1.0.3-chakra.0.0.4", "1.0.4-chakra.0.0.4", "1.1.0-chakra.0.0.4"]
FOREACH = "aten::_foreach_add_.Scalar(Tensor(a!)[] self, Scalar scalar) -> ()"


@pytest.fixture(autouse=True)
def one_thread():
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def replayed(found):
    from benchmate.ops.traces.replay import Replay

    return Replay(found, "cpu").run(0, 1)


def recorded(step, path, warmup=2):
    """One step of a program, recorded; a step is a function."""
    from torch.profiler import ExecutionTraceObserver

    for _ in range(warmup):
        step()
    observer = ExecutionTraceObserver()
    observer.register_callback(str(path))
    observer.start()
    step()
    observer.stop()
    observer.unregister_callback()
    return read_trace(str(path))


def trained(model, optimizer, make):
    def step():
        optimizer.zero_grad()
        make(model).backward()
        optimizer.step()

    return step


def cnn():
    import torch
    from torch import nn

    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(), nn.Linear(392, 5)
    )
    make = lambda m: nn.functional.cross_entropy(m(torch.randn(4, 3, 16, 16)), torch.randint(0, 5, (4,)))  # noqa: E731
    return trained(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), make)


def lstm():
    import torch
    from torch import nn

    embedding, layers, head = nn.Embedding(50, 8), nn.LSTM(8, 16, 2, batch_first=True), nn.Linear(16, 50)
    model = nn.ModuleList([embedding, layers, head])
    words = torch.randint(0, 50, (4, 7))
    make = lambda _: nn.functional.cross_entropy(head(layers(embedding(words))[0]).flatten(0, 1), words.flatten())  # noqa: E731
    return trained(model, torch.optim.Adam(model.parameters()), make)


def transformer():
    import torch
    from torch import nn

    embedding = nn.Embedding(50, 16)
    layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2)
    model = nn.ModuleList([embedding, layers])
    words = torch.randint(0, 50, (4, 7))
    make = lambda _: layers(embedding(words)).square().mean()  # noqa: E731
    return trained(model, torch.optim.AdamW(model.parameters(), foreach=True), make)


@pytest.mark.parametrize("program", [cnn, lstm, transformer])
def test_every_operator_of_a_training_step_is_carried_out(program, tmp_path):
    found = replayed(recorded(program(), tmp_path / "t.json"))
    assert found.failed == {}
    assert found.plan.selection.skipped == ()
    assert found.substituted == 0
    assert len(found.calls_s) == len(found.plan.calls) > 40


@pytest.mark.parametrize("schema", OLD)
def test_old_schemas_are_replayed(schema):
    found = replayed(trace(*small(), schema=schema))
    assert (found.failed, len(found.plan.calls), found.substituted) == ({}, 4, 0)


def test_lists_of_tensors_and_undefined_ones_are_arguments():
    many = [tensor(2, 3, 4), tensor(4, 5, 2, 2)]
    found = replayed(
        trace(
            node(10, "aten::_foreach_add_", [listed(*many), number(1)], [], schema=FOREACH),
            node(20, "aten::linear", [tensor(6, 7, 3, 4), tensor(8, 9, 2, 4), NONE], [tensor(11, 12, 3, 2)],
                 schema="aten::linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor"),
        )
    )  # fmt: skip
    assert (found.failed, len(found.plan.calls)) == ({}, 2)


def test_what_a_gpu_did_is_replayed_on_a_cpu():
    empty = node(5, "aten::empty", [listed(number(6)), number(4), NONE, ("cpu", "Device", [], []), NONE, NONE],
                 [tensor(4, 5, 6, dtype="long int", size=8)], schema=EMPTY)  # fmt: skip
    text = json.dumps(content([empty, *small()])).replace('"cpu"', '"cuda:0"')
    found = replayed(parse_trace(json.loads(text)))
    assert (found.failed, len(found.plan.calls), found.substituted) == ({}, 5, 0)


def test_what_a_library_for_gpus_did_is_replayed_by_the_operator_of_every_device():
    image, row = tensor(2, 3, 2, 4, 5, 5), [tensor(n, n + 1, 4) for n in (10, 12, 14, 16, 18)]
    outputs = [tensor(21, 22, 2, 4, 5, 5), tensor(23, 24, 4), tensor(25, 26, 4)]
    schema = (
        "aten::cudnn_batch_norm_backward(Tensor input, Tensor grad_output, Tensor weight, Tensor? running_mean, "
        "Tensor? running_var, Tensor? save_mean, Tensor? save_var, float epsilon, Tensor reserveSpace) "
        "-> (Tensor, Tensor, Tensor)"
    )
    inputs = [image, tensor(4, 5, 2, 4, 5, 5), *row, number(1e-5), tensor(20, 99, 0, dtype="unsigned char", size=1)]
    nodes = [
        node(30, "aten::cudnn_batch_norm_backward", inputs, outputs, schema=schema),
        node(31, "aten::empty", [listed(number(4))], [outputs[0]], schema=EMPTY, parent=30),
        node(40, "aten::relu", [outputs[0]], [tensor(41, 42, 2, 4, 5, 5)], schema=RELU),
    ]
    found = replayed(parse_trace(json.loads(json.dumps(content(nodes)).replace('"cpu"', '"cuda:0"'))))
    assert (found.failed, found.plan.selection.skipped, found.substituted) == ({}, (), 0)
    assert sorted(found.calls_s) == [30, 40]


def test_a_tensor_whose_size_depends_on_data_is_made_up():
    places = tensor(4, 5, 3, 1, dtype="long int", size=8)
    found = replayed(
        trace(
            node(10, "aten::nonzero", [tensor(2, 3, 4)], [places], schema="aten::nonzero(Tensor self) -> Tensor"),
            node(20, "aten::relu", [places], [tensor(6, 7, 3, 1, dtype="long int", size=8)], schema=RELU),
        )
    )
    assert (found.failed, len(found.plan.calls), found.substituted) == ({}, 2, 1)


def test_an_operator_that_fails_is_replaced_by_what_it_called():
    gone = node(20, "custom::gone", [tensor(2, 3, 4)], [tensor(4, 5, 4)], schema="custom::gone(Tensor self) -> Tensor")
    inner = node(21, "aten::relu", [tensor(2, 3, 4)], [tensor(4, 5, 4)], schema=RELU, parent=20)
    # The shapes do not fit: it fails only when it is tried.
    bad = node(30, "aten::add", [tensor(2, 3, 4), tensor(6, 7, 3), number(1)], [tensor(8, 9, 4)], schema=ADD)
    better = node(31, "aten::relu", [tensor(2, 3, 4)], [tensor(8, 9, 4)], schema=RELU, parent=30)
    found = replayed(trace(gone, inner, bad, better))
    assert [call.node.id for call in found.plan.calls] == [21, 31]
    assert found.failed == {}


def test_an_operator_that_fails_alone_is_told_and_the_exit_code_is_1(tmp_path, capsys):
    bad = node(40, "aten::add", [tensor(2, 3, 4), tensor(6, 7, 3), number(1)], [tensor(8, 9, 4)], schema=ADD)
    path = str(file(tmp_path, *small(), bad))
    assert cli.main(["replay", path, "-i", "1", "--json"]) == 1
    coverage = json.loads(capsys.readouterr().out)["coverage"]
    assert (coverage["executed"], coverage["failed"], coverage["of_executable"]) == (4, 1, 0.8)
    [why] = coverage["why_failed"]
    assert why.startswith("aten::add: RuntimeError: The size of tensor a (4)")


def test_a_replay_without_a_kernel_says_so_at_its_end(tmp_path, capsys):
    kernel = node(40, "triton_poi_fused_0", [tensor(2, 3, 4), number(4)], [], kernel_backend="triton")
    assert cli.main(["replay", str(file(tmp_path, *small(), kernel)), "-i", "1"]) == 0
    page = capsys.readouterr()
    assert "4 executed, 1 skipped, 0 failed" in page.out
    assert "7 of 8 recorded operators" in page.out
    assert "skipped     1 x triton_poi_fused_0: a compiled kernel whose code is not in the trace" in page.out
    assert page.err.splitlines()[-1] == "not carried out: 1 of 5. The time of a step is without them"


def test_a_long_replay_says_what_it_does(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("benchmate.ops.traces.progress.LOG_S", 0.0)
    assert cli.main(["replay", str(file(tmp_path, *small())), "-i", "50", "--json"]) == 0
    page = capsys.readouterr()
    assert json.loads(page.out)["step"]["samples"] == 50
    assert page.err.splitlines()
    assert all(line.startswith("replay: ") for line in page.err.splitlines())


def test_collectives_without_their_ranks_are_skipped_with_the_way_out():
    schema = (
        "c10d::barrier(Tensor tensor, __torch__.torch.classes.c10d.ProcessGroup process_group, int[] device_ids) -> ()"
    )
    barrier = node(40, "c10d::barrier", [tensor(2, 3, 1), ("<Object>", "Object", [], [])], [], schema=schema, pg_size=2)
    [(one, reason)] = replayed(trace(*small(), barrier)).plan.selection.skipped
    assert one.name == "c10d::barrier"
    assert reason.startswith("needs its 2 ranks: torchrun --nproc-per-node 2")


def test_a_converted_configuration_runs_whole(tmp_path):
    from benchmate.ops import Benchmark, BenchmarkConfig
    from benchmate.ops.options import as_options
    from benchmate.ops.traces.summary import to_configuration

    made, left_out = to_configuration(recorded(cnn(), tmp_path / "t.json"))
    assert left_out == {}
    assert {one["input_data_generator"] for one in made.values()} == {GENERATOR}
    counts = Benchmark(BenchmarkConfig(as_options({"iteration": 1, "warmup": 0})).load(made)).run()
    assert (counts["failed"], counts["skipped"]) == (0, 0)
    assert counts["passed"] > 30


def test_what_this_machine_cannot_run_is_in_no_configuration(tmp_path, capsys):
    lookup = node(40, "fbgemm::lookup", [tensor(2, 3, 4)], [tensor(41, 42, 4)],
                  schema="fbgemm::lookup(Tensor self) -> Tensor")  # fmt: skip
    inner = node(43, "aten::relu", [tensor(2, 3, 4)], [tensor(41, 42, 4)], schema=RELU, parent=40)
    other = node(
        50, "custom::gone", [tensor(2, 3, 4)], [tensor(51, 52, 4)], schema="custom::gone(Tensor self) -> Tensor"
    )
    bare = node(
        60, "fbgemm::lookup", [tensor(2, 3, 4)], [tensor(61, 62, 4)], schema="fbgemm::lookup(Tensor self) -> Tensor"
    )
    path = str(file(tmp_path, *small(), lookup, inner, other, bare))
    assert cli.main(["to-config", path, "-o", str(tmp_path / "c.json")]) == 0
    assert set(json.loads((tmp_path / "c.json").read_text())) == {
        "aten::embedding", "aten::linear", "aten::add", "aten::relu",
    }  # fmt: skip
    said = capsys.readouterr().err
    assert "left out: 1 x fbgemm_gpu cannot be imported: ModuleNotFoundError" in said
    assert "has no custom::gone.default" in said
    of_cuda = node(40, "aten::cudnn_grid_sampler", [tensor(2, 3, 4)], [], schema=(
        "aten::cudnn_grid_sampler(Tensor self, Tensor grid) -> Tensor"))  # fmt: skip
    path = str(file(tmp_path, *small(), of_cuda))
    for device, count in (("cpu", 1), ("cuda", 0)):
        assert cli.main(["to-config", path, "-o", str(tmp_path / "c.json"), "-d", device]) == 0
        assert capsys.readouterr().err.count("has no aten::cudnn_grid_sampler for cpu") == count


def test_a_step_of_an_optimizer_is_recorded_from_outside(tmp_path):
    (tmp_path / "train.py").write_text(
        "import torch\n"
        "model = torch.nn.Linear(4, 4)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for _ in range(6):\n"
        "    model(torch.randn(2, 4)).sum().backward()\n"
        "    optimizer.step()\n"
        "print('trained')\n"
    )
    command = [
        sys.executable,
        "-m",
        "benchmate.ops",
        "trace",
        "record",
        "-o",
        "t.json.gz",
        "--skip",
        "1",
        "--timed",
        "2",
    ]
    done = subprocess.run(
        [*command, "--profile", "--", sys.executable, "train.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "trained"), done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.json.gz", "t.profile.json", "train.py"]
    about = read_trace(str(tmp_path / "t.json.gz")).about
    assert (about["steps_timed"], about["rank"], about["ranks"]) == (2, 0, 1)
    assert about["step_s"] > 0


def test_a_program_without_an_optimizer_is_recorded_whole(tmp_path):
    (tmp_path / "infer.py").write_text("import torch\nprint(torch.nn.Linear(4, 4)(torch.randn(2, 4)).shape)\n")
    command = [sys.executable, "-m", "benchmate.ops", "trace", "record", "--whole", "--", sys.executable, "infer.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = replayed(read_trace(str(tmp_path / "trace.json")))
    assert "aten::linear" in [call.node.name for call in found.plan.calls]
    assert found.failed == {}


def test_a_voirfile_records_too(tmp_path):
    (tmp_path / "voirfile.py").write_text(
        "from benchmate.ops.traces.record import traced\ninstrument_trace = traced('t.json', skip=1, timed=1)\n"
    )
    (tmp_path / "train.py").write_text(
        "import torch\n"
        "w = torch.ones(3, requires_grad=True)\n"
        "optimizer = torch.optim.SGD([w], lr=0.1)\n"
        "for _ in range(4):\n"
        "    (w * w).sum().backward()\n"
        "    optimizer.step()\n"
    )
    command = [sys.executable, "-m", "benchmate.run", "--voirfile", "voirfile.py", "train.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert any(one.name == "aten::mul" for one in read_trace(str(tmp_path / "t.json")).nodes)


def test_two_ranks_replay_their_collectives(tmp_path):
    """Entries of gloo, which name no group: all of its kinds that take a list, a tensor or nothing."""
    group = ("<Object>", "Object", [], [])
    kind = "__torch__.torch.classes.c10d.ProcessGroup process_group"
    op = "__torch__.torch.classes.c10d.ReduceOp reduce_op"
    one, two = tensor(2, 3, 4), tensor(4, 5, 4)
    nodes = [
        node(2, "## process_group:init ##",
             [(json.dumps([{"pg_name": "0", "ranks": [], "group_size": 2}]), "String", [], [])], []),
        node(10, "c10d::allreduce_", [listed(one), group, group, NONE, (True, "Bool", [], []), number(-1)], [],
             schema=f"c10d::allreduce_(Tensor[] tensors, {kind}, {op}, Tensor? sparse_indices, bool async_op=True, "
             "int timeout=-1) -> ()"),
        node(20, "aten::add", [one, two, number(1)], [tensor(21, 22, 4)], schema=ADD),
        node(30, "c10d::allgather_", [listed(listed(one, two)), listed(one), group, (False, "Bool", [], []), number(-1)], [],
             schema=f"c10d::allgather_(Tensor[][] output_tensors, Tensor[] input_tensors, {kind}, bool async_op=True, "
             "int timeout=-1) -> ()"),
        node(40, "c10d::broadcast_", [listed(one), group, number(1), number(0), (False, "Bool", [], []), number(-1)], [],
             schema=f"c10d::broadcast_(Tensor[] tensors, {kind}, int root_rank, int root_tensor, bool async_op=True, "
             "int timeout=-1) -> ()"),
        node(50, "c10d::barrier", [tensor(6, 7, 1), group, ([], "GenericList[]", [], []), (False, "Bool", [], []), number(-1)],
             [], schema=f"c10d::barrier(Tensor tensor, {kind}, int[] device_ids, bool async_op=True, int timeout=-1) -> ()"),
    ]  # fmt: skip
    functional = "_c10d_functional::all_reduce(Tensor input, str reduce_op, str group_name) -> Tensor"
    summed, name = tensor(61, 62, 4), ("0", "String", [], [])
    nccl = {
        "collective_name": "_allgather_base",
        "dtype": "Float",
        "in_msg_nelems": 4,
        "out_msg_nelems": 8,
        "pg_size": 2,
    }
    nodes += [
        node(60, "_c10d_functional::all_reduce", [one, ("sum", "String", [], []), name], [summed], schema=functional),
        node(70, "_c10d_functional::wait_tensor", [summed], [summed],
             schema="_c10d_functional::wait_tensor(Tensor tensor) -> Tensor"),
        node(80, "record_param_comms", [one], [], **nccl),
        node(90, "record_param_comms", [one], [], **{**nccl, "collective_name": "wait"}),
    ]  # fmt: skip
    for rank in (0, 1):
        (tmp_path / f"rank-{rank}.json").write_text(json.dumps(content(nodes)))
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "benchmate.ops", "trace", "replay", str(tmp_path), "-i", "2", "--json"]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert (made["coverage"]["executed"], made["coverage"]["skipped"], made["coverage"]["failed"]) == (8, 1, 0)
    assert Path(made["file"]).name == "rank-0.json"
