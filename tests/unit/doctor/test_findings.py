"""What `milabench check` says of a machine with accelerators."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from milabench.doctor.findings import check_accelerated, findings_text
from milabench.errors import EnvironmentFailed
from milabench.facts.compare import NodeFinding
from milabench.facts.model import Device, Node
from milabench.plan.requirements import RequirementFile
from milabench.plan.venvs import InstallPlan, VenvRequest, plan_venvs
from milabench.workflow import environments
from milabench.workflow.preflight import TORCH_CUDA, require_drivers

ROOT = Path(__file__).resolve().parents[3]
LOCKS = {"sft": "torch==2.13.0\nnvidia-nccl-cu13==2.29.7\n", "flax": "jax==0.10.2\nnvidia-nccl-cu12==2.32.3\n"}


def said(tmp_path: Path, **details: str) -> list[tuple[str, str]]:
    return [(finding.what, finding.state) for finding in check_accelerated(Node(details=details), str(tmp_path))]


def test_what_a_node_says_moves_no_cursor_and_makes_no_line() -> None:
    shown = findings_text(
        [NodeFinding(what="system", state="ok", says="kernel 5.1\x1b]0;owned\x07\nok  all", node="n1\x1b[2J")]
    )
    assert all(line.isprintable() for line in shown.split("\n"))
    assert "kernel 5.1\u241b]0;owned\u2407 ok  all" in shown


def test_a_python_without_headers_is_noted(tmp_path: Path) -> None:
    assert said(tmp_path) == [("headers", "note")]
    (tmp_path / "Python.h").touch()
    assert said(tmp_path) == []


def test_a_driver_that_is_older_than_torch_is_bad(tmp_path: Path) -> None:
    (tmp_path / "Python.h").touch()
    assert said(tmp_path, driver="555.42", cuda="12.5") == [("driver", "bad")]
    assert said(tmp_path, driver="580.65", cuda="13.0") == []


def test_a_driver_that_starts_again_for_each_command_is_noted(tmp_path: Path) -> None:
    (tmp_path / "Python.h").touch()
    devices = tuple(
        Device(index=index, uuid=f"{index}", name="H100", arch="cuda", memory_mib=1, details={"persistence": is_on})
        for index, is_on in enumerate((True, False, None, False))
    )
    (found,) = check_accelerated(Node(devices=devices), str(tmp_path))
    assert (found.what, found.state, found.says[:12]) == ("persistence", "note", "off for 1, 3")


@pytest.mark.parametrize(("cuda", "stopped"), [("11.8", ["sft", "flax"]), ("12.8", ["sft"]), ("13.0", []), (None, [])])
def test_a_run_whose_environment_the_driver_is_too_old_for_does_not_begin(
    monkeypatch: pytest.MonkeyPatch, cuda: str | None, stopped: list[str]
) -> None:
    requests = [
        VenvRequest(
            bench=name, group=name, variant="cuda", requirements=(RequirementFile(name=name, text=text),),
            constraints=None, pip={}, arch="cuda",
        )
        for name, text in LOCKS.items()
    ]  # fmt: skip
    venvs = plan_venvs(requests, benchmate="b", python="3.12", platform="linux-x86_64")
    monkeypatch.setattr(environments, "decide_install", lambda _: InstallPlan(venvs=venvs, sources=()))
    warnings: list[str] = []
    nodes = [Node(details={"driver": "580.1", "cuda": "13.0"}), Node(name="old", details={"driver": "1", "cuda": cuda})]
    context: Any = SimpleNamespace(
        nodes=nodes,
        plan_context=SimpleNamespace(current_env=None),
        options=SimpleNamespace(ignore_node_checks=True),
        session=SimpleNamespace(warn=warnings.append),
    )
    require_drivers(context)
    assert [line.partition(": ")[2].partition(" and ")[2].partition(" needs")[0] for line in warnings] == stopped
    context.options.ignore_node_checks = False
    with pytest.raises(EnvironmentFailed, match=r"old: the driver 1 .* would use") if stopped else nullcontext():
        require_drivers(context)


def test_the_cuda_of_torch_is_that_of_its_constraints() -> None:
    assert f"is for CUDA {TORCH_CUDA}." in (ROOT / "constraints" / "cuda.txt").read_text()
