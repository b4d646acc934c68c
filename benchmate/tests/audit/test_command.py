"""`python -m benchmate.audit` from the outside, with models that need no framework."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmate.audit.__main__ import make_cells, shuffled_blocks
from benchmate.audit.worker import Cell

MODELS = """
import os, time

def spin(batch, device):
    def call():
        end = time.perf_counter() + 0.0005 * batch
        while time.perf_counter() < end:
            pass
    return call

def pair(batch, device):
    return time.sleep, (0.0001,)

def raises(batch, device):
    raise RuntimeError("no weights\\nhere")

def gone(batch, device):
    return lambda: os._exit(3)

def number(batch, device):
    return 3
"""


def audit(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "of_mine.py").write_text(MODELS)
    command = [sys.executable, "-m", "benchmate.audit", "--device", "cpu", "--seconds", "0.02", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def records(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_cell_is_measured_in_each_block_by_a_process_of_its_own(tmp_path: Path) -> None:
    ended = audit(
        tmp_path, "--model", "of_mine:spin", "--batch", "1,2", "--warmup", "3", "--sync", "none,each",
        "--processes", "2", "--out", "out.jsonl", "--calls", "30", "--seconds", "10",
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    found = records(tmp_path / "out.jsonl")
    tried = sorted(
        (record["block"], record["cell"]["batch"], record["cell"]["sync"], record["cell"]["again"]) for record in found
    )
    of_block = [
        (1, "each", False),
        (1, "each", True),
        (1, "none", False),
        (2, "each", False),
        (2, "each", True),
        (2, "none", False),
    ]
    assert tried == [(block, *cell) for block in (0, 1) for cell in of_block]
    for record in found:
        told = record["audit"]
        assert len(told["warmup_ns"]) == 3
        assert len(told["wall_ns"]) == 30
        assert min(told["wall_ns"]) >= 500_000 * record["cell"]["batch"]
        assert sum(told["wall_ns"]) <= told["window_ns"]
        assert told["event_ns"] == []
        assert "no accelerator" in told["absent"]


def test_a_model_may_be_a_function_and_its_arguments(tmp_path: Path) -> None:
    ended = audit(
        tmp_path, "--model", "of_mine:pair", "--batch", "1", "--warmup", "0", "--sync", "end", "--processes", "1"
    )
    assert ended.returncode == 0, ended.stderr
    assert "batch=1 warmup=0 sync=end: wall" in ended.stdout


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("of_mine:raises", "RuntimeError: no weights here"),
        ("of_mine:gone", "ended without a result (exit code 3)"),
        ("of_mine:number", "expected a function"),
    ],
)
def test_a_model_that_cannot_be_measured_is_said_for_each_process_and_fails(
    tmp_path: Path, model: str, said: str
) -> None:
    ended = audit(
        tmp_path,
        "--model",
        model,
        "--batch",
        "1",
        "--warmup",
        "0",
        "--sync",
        "each",
        "--processes",
        "1",
        "--out",
        "out.jsonl",
    )
    assert ended.returncode == 1
    assert said in ended.stderr
    assert all(said in record["audit"]["error"] for record in records(tmp_path / "out.jsonl"))


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("of_mine:absent", "has no attribute 'absent'"),
        ("absent:function", "No module named 'absent'"),
        ("broken:function", "SyntaxError: "),
        ("leaves:function", "SystemExit: 7"),
        ("builtin:other", "the only built-in model is builtin:cnn"),
        ("resnet50", "expected builtin:cnn, torchvision:NAME, MODULE:FUNCTION or onnx:FILE"),
        ("onnx:absent.onnx", "models/absent.onnx: no such file"),
        ("onnx:text.onnx", "models/text.onnx: no model"),
    ],
)
def test_a_model_that_is_not_there_is_one_line_before_the_first_process(tmp_path: Path, model: str, said: str) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "broken.py").write_text("def function(\n")
    (folder / "leaves.py").write_text("raise SystemExit(7)\n")
    (folder / "text.onnx").write_text("no model")
    (folder / "onnxruntime.py").write_text("def InferenceSession(path, **_): raise RuntimeError(open(path).read())\n")
    (folder / "numpy.py").write_text("")
    command = [sys.executable, "-m", "benchmate.audit", "--model", model, "--folder", str(folder), "--out", "out.jsonl"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])}
    (folder / "of_mine.py").write_text(MODELS)
    ended = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    [line] = ended.stderr.splitlines()
    assert line.startswith("error: model ")
    assert said in line
    assert list(tmp_path.iterdir()) == [folder]


def test_a_model_is_looked_for_in_the_folder_that_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "there.py").write_text(MODELS)
    ended = audit(
        tmp_path, "--model", "there:pair", "--folder", "elsewhere", "--batch", "1", "--warmup", "0", "--sync", "end",
        "--processes", "1",
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--batch", "0"], "expected whole numbers from 1 on"),
        (["--batch", "one"], "expected whole numbers from 1 on"),
        (["--warmup", "-1"], "expected whole numbers from 0 on"),
        (["--sync", "none,often"], "'none,often': expected some of none, each, end"),
        (["--clock", "sun"], "'sun': expected some of wall, event"),
        (["--processes", "0"], "expected a whole number from 1 on"),
        (["--calls", "many"], "expected a whole number from 1 on"),
    ],
)
def test_what_cannot_be_tried_is_refused_before_anything_runs(tmp_path: Path, arguments: list[str], said: str) -> None:
    ended = audit(tmp_path, "--model", "of_mine:spin", *arguments)
    assert ended.returncode == 2
    assert said in ended.stderr


def test_blocks_hold_every_cell_once_and_the_seed_decides_their_order() -> None:
    cells = make_cells([1, 8], [0, 50], ["none", "each", "end"])
    assert len(cells) == 14
    assert cells[6] == Cell(batch=1, warmup=50, sync="end", again=True)
    order = shuffled_blocks(cells, 3, seed=4)
    assert [sorted(cell.name for block, cell in order if block == number) for number in range(3)] == [
        sorted(cell.name for cell in cells)
    ] * 3
    assert order == shuffled_blocks(cells, 3, seed=4)
    assert order != shuffled_blocks(cells, 3, seed=5)
    assert shuffled_blocks(cells, 1, seed=None) == tuple((0, cell) for cell in cells)
