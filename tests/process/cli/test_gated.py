"""Weights whose terms must be accepted: listed with their page, refused without a token in one line, while the others go on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import Said

COMMIT = "0123456789abcdef0123456789abcdef01234567"
PREPARE = """
import os, pathlib, sys
token = os.environ.get("HF_TOKEN") or pathlib.Path(os.environ.get("HF_TOKEN_PATH", "/nowhere")).read_text()
if token != "hf_sesame":
    sys.exit("wrong token")
"""


@pytest.fixture
def suite(milabench: Callable[..., Said], tmp_path: Path) -> Path:
    """A benchmark that needs a token, and one that does not."""
    for name in ("free", "locked"):
        assert milabench("new", name, "--into", str(tmp_path)).code == 0
    (tmp_path / "locked" / "prepare.py").write_text(PREPARE)
    file = tmp_path / "suite.yaml"
    file.write_text(
        "free: {definition: free}\n"
        f"locked: {{definition: locked, gated: {{repository: owner/model, revision: {COMMIT}}}}}\n"
    )
    return file


def test_what_is_gated_is_listed_with_its_terms_and_no_token_is_shown(
    milabench: Callable[..., Said], suite: Path, tmp_path: Path
) -> None:
    nobody = {"HOME": str(tmp_path), "HF_TOKEN": ""}
    said = milabench("list", "--gated", "--config", str(suite), **nobody)
    assert said.code == 0
    for part in ("locked", "owner/model", COMMIT, "https://huggingface.co/owner/model", "token: none"):
        assert part in said.out
    assert "free" not in said.out
    said = milabench("list", "--gated", "--config", str(suite), **{**nobody, "HF_TOKEN": "hf_sesame"})
    assert "token: there, by HF_TOKEN" in said.out
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub" / "token").write_text("hf_sesame")
    said = milabench("list", "--gated", "--config", str(suite), "--json", **nobody, HF_HOME=str(tmp_path / "hub"))
    assert json.loads(said.out)["token"] == str(tmp_path / "hub" / "token")
    assert "sesame" not in said.out + said.err
    assert "no benchmark" in milabench("list", "--gated", "--config", str(suite), "--select", "free", **nobody).out


def test_those_that_are_not_enabled_are_listed_too(milabench: Callable[..., Said], suite: Path) -> None:
    suite.write_text(suite.read_text().replace("definition: locked,", "definition: locked, enabled: false,"))
    assert "locked (not enabled)" in milabench("list", "--gated", "--config", str(suite)).out
    (row,) = json.loads(milabench("list", "--gated", "--config", str(suite), "--json").out)["gated"]
    assert row["enabled"] is False


def test_without_a_token_only_the_gated_benchmark_is_not_prepared(
    milabench: Callable[..., Said], suite: Path, tmp_path: Path
) -> None:
    here = ("--use-current-env", "--config", str(suite))
    nobody = {"HOME": str(tmp_path), "HF_TOKEN": ""}
    said = milabench("prepare", *here, **nobody)
    assert said.code == 4
    errors = [line for line in said.err.splitlines() if line.startswith("error: ")]
    assert errors == [
        "error: locked: no token for owner/model, which is gated: https://huggingface.co/owner/model. "
        "Accept the terms there, then give a token by HF_TOKEN or `hf auth login`"
    ]
    assert "Traceback" not in said.err
    assert "nothing to do, prepared: 1 benchmark" in milabench("prepare", *here, "--select", "free", **nobody).err


def test_the_token_of_the_hubs_own_file_reaches_prepare(
    milabench: Callable[..., Said], suite: Path, tmp_path: Path
) -> None:
    (tmp_path / ".cache" / "huggingface").mkdir(parents=True)
    (tmp_path / ".cache" / "huggingface" / "token").write_text("hf_sesame")
    here = ("--use-current-env", "--config", str(suite), "--select", "locked")
    said = milabench("prepare", *here, HOME=str(tmp_path), HF_TOKEN="", XDG_CACHE_HOME="", HF_HOME="")
    assert said.code == 0, said.err
    assert "sesame" not in said.out + said.err
