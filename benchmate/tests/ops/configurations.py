"""Configurations that the tests share."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")

GENERATOR = "PyTorch:DefaultDataGenerator"
CONFIGS = Path(__file__).resolve().parents[3] / "benchmarks" / "ops" / "configs"


def tensor(*shape: int, dtype: str = "float", **more: Any) -> dict[str, Any]:
    return {"type": "tensor", "dtype": dtype, "shape": list(shape), **more}


def number(value: Any, kind: str = "int", **more: Any) -> dict[str, Any]:
    return {"type": kind, "value": value, **more}


def operator(*inputs: Any, build: Any = None, ranged: bool = False, **more: Any) -> dict[str, Any]:
    """One operator: inputs are lists of arguments, or whole specifications."""
    specs = [one if isinstance(one, dict) else {"args": one} for one in inputs]
    iterator = "RangeConfigIterator" if ranged else "DefaultConfigIterator"
    return {
        "build_iterator": iterator,
        "input_iterator": iterator,
        "build_data_generator": GENERATOR,
        "input_data_generator": GENERATOR,
        "config": [{"build": build, "input": specs}],
        **more,
    }


def ops(folder: Path, config: Any, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the command on a configuration: data, or text that may be no JSON."""
    path = folder / "config.json"
    path.write_text(config if isinstance(config, str) else json.dumps(config))
    return command(folder, "-c", str(path), *options)


def command(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmate.ops", *argv], cwd=folder, capture_output=True, text=True, check=False
    )


def records(folder: Path, pattern: str = "benchmark_result_*.json") -> list[dict[str, Any]]:
    """The records of the only run in a folder."""
    [path] = [path for path in folder.glob(pattern) if not path.stem.endswith(("_trace", "_et"))]
    return [json.loads(line) for line in path.read_text().splitlines()]
