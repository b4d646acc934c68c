"""The command without torch: what it lists, expands and refuses."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from configurations import CONFIGS, command, number, operator, ops, tensor

import benchmate
from benchmate.ops.base import run_command
from benchmate.ops.cli import main


def test_importing_the_library_brings_no_torch():
    code = "import sys, benchmate.ops as o; o.BenchmarkConfig, o.register_operator; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_every_name_of_the_library_is_there():
    import benchmate.ops

    for name in benchmate.ops.__all__:
        assert getattr(benchmate.ops, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        benchmate.ops.nothing  # noqa: B018


def test_the_21_operators_are_listed(capsys):
    assert main(["--list-ops"]) == 0
    words = capsys.readouterr().out.split()
    registered = [
        "torch.add_",
        "torch.clamp_",
        "torch.add",
        "torch.baddbmm",
        "torch.bmm",
        "torch.cat",
        "torch.matmul",
        "torch.mean",
        "torch.mm",
        "torch.mul",
        "torch.nn.functional.relu",
        "torch.reshape",
        "torch.nn.AdaptiveAvgPool2d",
        "torch.nn.Conv2d",
        "torch.nn.Dropout",
        "torch.nn.MaxPool2d",
        "torch.nn.ReLU",
        "torch.nn.Linear",
        "pytorch.model.alex_net",
        "pytorch.model.resnet",
        "SplitTableBatchedEmbeddingBagsCodegen",
    ]
    assert len(registered) == 21
    assert set(registered) <= set(words)


def test_expand_prints_what_would_run_and_how_many(tmp_path):
    done = ops(
        tmp_path,
        {"torch.mm": operator([number([1, 3, 1], __range__=["value"]), tensor(2, 4)], ranged=True)},
        "--expand",
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0
    assert [line.split()[0] for line in lines[:3]] == ["torch.mm|0|0|0_0", "torch.mm|0|0|0_1", "torch.mm|0|0|0_2"]
    assert lines[0].endswith("(1, float[2,4])")
    assert lines[3] == "3 inputs"
    assert list(tmp_path.iterdir()) == [tmp_path / "config.json"]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], "no configuration"),
        (["-c", "nowhere.json"], "nowhere.json: No such file"),
        (["-c", "CONFIG", "--exec-mode", "warm"], "unknown mode 'warm'"),
        (["-c", "CONFIG", "-i", "-1"], "-i: expected at least 0, got -1"),
        (["-c", "CONFIG", "--threads", "0"], "--threads: expected at least 1"),
        (["-c", "CONFIG", "-r", "torch.add|9|9|9"], "no input has this id"),
        (["-c", "CONFIG", "-s", "0123456789abcdef"], "no input has this id"),
        (["-c", "CONFIG", "--import", "no_such_module"], "--import no_such_module: ModuleNotFoundError"),
    ],
)
def test_a_mistake_ends_with_2_and_one_line(argv, words, capsys):
    words_of_command = [str(CONFIGS / "simple_add.json") if word == "CONFIG" else word for word in argv]
    assert main(words_of_command) == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert words in errors[0]


def test_memory_that_a_command_itself_lacks_is_one_line(capsys):
    def read() -> int:
        raise MemoryError

    assert run_command(read) == 1
    assert capsys.readouterr().err == "error: out-of-memory: reading and planning took more than there is\n"


def test_an_unknown_operator_is_an_error_before_anything_runs(tmp_path, capsys):
    path = tmp_path / "c.json"
    path.write_text('{"torch_add": {"input_data_generator": "PyTorch:DefaultDataGenerator", "config": []}}')
    assert main(["-c", str(path)]) == 2
    assert "unknown operator 'torch_add'. Did you mean 'torch.add'?" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [path]


def test_a_module_of_the_user_registers_iterators_of_its_own(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from benchmate.ops import ConfigIterator, register_config_iterator\n"
        "class Twice(ConfigIterator):\n"
        "    def __init__(self, configs, key, device):\n"
        "        super().__init__(configs, key, device)\n"
        "        self.left = [(f'{n}x', spec) for n in (1, 2) for spec in configs[key]]\n"
        "    def __next__(self):\n"
        "        if not self.left: raise StopIteration\n"
        "        return self.left.pop(0)\n"
        "register_config_iterator('Twice', Twice)\n"
    )
    done = ops(tmp_path, {"torch.mm": operator({"sizes": [3]}, input_iterator="Twice")}, "--import", "mine", "--expand")
    assert done.stdout.splitlines()[:2] == [line for line in done.stdout.splitlines() if "torch.mm|0|0|" in line]
    assert done.stdout.endswith("2 inputs\n"), done.stderr


def test_a_name_is_registered_once():
    from benchmate.ops import register_operator

    with pytest.raises(ValueError, match=r"'torch\.add' is registered already"):
        from benchmate.ops.operators import CallableOp

        register_operator("torch.add", CallableOp(len))


def test_subcommands_have_their_own_help(tmp_path):
    assert "run_batch" in command(tmp_path, "run_batch", "--help").stdout
    assert command(tmp_path, "run_batch", "-f", "nowhere").returncode == 2


def test_the_commands_of_its_own_folder_work_too(tmp_path):
    environ = {**os.environ, "PYTHONPATH": command(tmp_path, "alias").stdout.strip()}
    words = [sys.executable, "-m", "python.pytorch.run_benchmark", "--version"]
    done = subprocess.run(words, env=environ, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{benchmate.__version__}\n"), done.stderr


def test_old_imports_and_commands_work_when_asked_for(tmp_path):
    folder = command(tmp_path, "alias").stdout.strip()
    code = (
        "from param_bench.train.compute.python.lib.config import BenchmarkConfig, ConfigIterator\n"
        "from param_bench.train.compute.python.lib.pytorch.config_util import create_bench_config\n"
        "from param_bench.train.compute.python.lib.pytorch.benchmark import make_default_benchmark\n"
        "import runpy, sys\n"
        "sys.argv = ['run_benchmark', '--version']\n"
        "runpy.run_module('param_bench.train.compute.python.pytorch.run_benchmark', run_name='__main__')\n"
    )
    environ = {**os.environ, "PYTHONPATH": folder}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"{benchmate.__version__}\n"), done.stderr
