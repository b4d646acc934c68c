"""`milabench ops`: hands its words to the program of the operators' environment; says so where that is not installed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.commands import Said


def test_words_and_files_are_those_of_whoever_types_them(milabench: Callable[..., Said], tmp_path: Path) -> None:
    trace = tmp_path / "t.json"
    trace.write_text(json.dumps({"schema": "0.0.0", "nodes": []}))
    said = milabench("ops", "--use-current-env", "trace", "summary", str(trace), "--json")
    assert said.code == 2
    assert f"error: {trace}: unknown schema '0.0.0' of an execution trace. Known: 1.0.1, 1.0.2" in said.err
    said = milabench("ops", "--use-current-env", "-c", "nowhere.json", "-b")
    assert said.code == 2
    assert "error: nowhere.json: No such file or directory" in said.err


def test_without_its_environment_it_says_how_to_get_it(milabench: Callable[..., Said]) -> None:
    said = milabench("ops", "trace", "summary", "t.json")
    assert (said.code, said.out) == (4, "")
    assert said.err.startswith("error: not installed: venv/torch. Run `milabench install --config ")
    assert said.err.count("\n") == 1
