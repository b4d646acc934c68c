from __future__ import annotations

import json

from milabench.bench.api import Git, PyPI
from milabench.plan.model import SkippedBench
from milabench.plan.requirements import RequirementFile
from milabench.plan.venvs import InstallPlan, VenvRequest, plan_venvs

TRL = PyPI("trl", "1.16.0", file="trl-1.16.0-py3-none-any.whl", sha256="0" * 64)
REPO = Git("https://example.org/team/code.git", "a" * 40)


def plan(selected: set[str] | None = None) -> InstallPlan:
    requests = [
        VenvRequest(
            bench=bench,
            group=group,
            variant="cpu",
            requirements=(RequirementFile(name=f"{bench}.txt", text=f"{bench}==1\n"),),
        )
        for bench, group in (("a", "g"), ("b", "g"), ("c", "h"))
    ]
    skipped = (SkippedBench(bench="d", why="disabled"),)
    venvs = plan_venvs(requests, benchmate="bm", python="3.11", platform="linux-x86_64", selected=selected)
    return InstallPlan(venvs=venvs, sources=(TRL, REPO), skipped=skipped)


def test_what_several_benchmarks_share_is_made_ready_once() -> None:
    assert [venv.group for venv in plan().venvs] == ["g", "h"]


def test_only_what_the_selection_needs_is_made_ready() -> None:
    assert [venv.group for venv in plan({"c"}).venvs] == ["h"]


def test_the_plan_is_json_that_names_everything() -> None:
    said = json.loads(json.dumps(plan().to_json()))
    assert said["phase"] == "install"
    assert said["sources"][1] == {"git": REPO.url, "rev": REPO.rev, "folder": "code-aaaaaaaaaaaa"}
    assert said["venvs"][0]["path"] == f"venv/.store/g-{said['venvs'][0]['digest'][:16]}"
    assert said["skipped"] == [{"bench": "d", "why": "disabled"}]
