"""`milabench plan` for machines that do not exist; UPDATE_GOLDEN=1 writes the golden files anew."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands import ROOT, Said

pytestmark = pytest.mark.turns(1)  # part of every `make test`

SUITES = ROOT / "tests" / "suite"
CLUSTER = ("--config", str(SUITES / "imaginary.yaml"), "--system", str(SUITES / "two_nodes_of_8.yaml"), "--repeat", "1")
FEW = ("--select", "convnet,finetune-nodes,finetune-rack,chat,copy-speed")
Milabench = Callable[..., Said]


def relocated(text: str, base: str) -> str:
    """The text as it would be anywhere: without this Python, checkout, base, and the hashes that depend on them."""
    text = text.replace(base, "BASE").replace(sys.executable, "PYTHON").replace(str(ROOT), "CHECKOUT")
    text = re.sub(r"'([^'\s]*(?:PYTHON|CHECKOUT)[^'\s]*)'", r"\1", text)  # quoted where the folder's name has a space
    text = re.sub(r'"hash": "[0-9a-f]{64}"', '"hash": "HASH"', text)
    return re.sub(r"\[[0-9a-f]{8}\]|(?<=^run plan )[0-9a-f]{12}", "[HASH]", text)


def as_golden(found: str, name: str) -> None:
    golden = ROOT / "tests" / "golden" / name
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(found)
    assert found == golden.read_text()


@pytest.mark.parametrize(("form", "name"), [(("--full",), "plan_run.txt"), (("--json",), "plan_run.json")])
def test_a_plan_for_an_imaginary_cluster_is_what_the_golden_file_shows(
    milabench: Milabench, environ: dict[str, str], form: tuple[str, ...], name: str
) -> None:
    said = milabench("plan", "run", *CLUSTER, *FEW, *form)
    assert said.code == 0, said.err
    as_golden(relocated(said.out, environ["MILABENCH_BASE"]), name)


def test_every_command_of_the_imaginary_suite_is_what_the_golden_file_shows(
    milabench: Milabench, environ: dict[str, str]
) -> None:
    said = milabench("plan", "run", *CLUSTER, "--json")
    assert said.code == 0, said.err
    plan = json.loads(relocated(said.out, environ["MILABENCH_BASE"]))
    lines = [
        f"{step['id']}  {step['group']}  {step['node']} {','.join(map(str, step['devices']))}  {' '.join(step['argv'])}"
        for step in plan["steps"]
    ]
    lines += [f"skipped {skip['bench']}: {skip['why']}" for skip in plan["skipped"]]
    as_golden("\n".join(lines) + "\n", "plan_steps.txt")


SLURM = """
system:
  arch: cuda
  engine: slurm
  slurm:
    partition: gpu
    account: it's ours
    time: "4:00:00"
    gpus_per_node: a100:2
    nodes: 2
    extra: [--switches=1]
"""


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ((), "plan_slurm.txt"),
        (("--submit",), "plan_slurm_jobs.txt"),
        (("--submit", "--array", "--max-jobs", "1", "--json"), "plan_slurm_array.json"),
    ],
)
def test_the_plan_for_slurm_has_the_scripts_of_its_jobs(
    milabench: Milabench, environ: dict[str, str], tmp_path: Path, options: tuple[str, ...], name: str
) -> None:
    suite, system = tmp_path / "a suite.yaml", tmp_path / "cluster.yaml"
    suite.write_text(
        "hello: {command: [echo, hello], env: {HF_TOKEN: hf_0123456789}, plan: {method: multigpu, launcher: none}}\n"
    )
    system.write_text(SLURM)
    base = f"{environ['MILABENCH_BASE']} of $(us)"
    words = ("--config", str(suite), "--system", str(system), "--base", base, "--repeat", "2", "--profile", "quick")
    said = milabench("plan", "run", *words, *options, SLURM_JOB_ID="")
    assert said.code == 0, said.err
    assert "hf_0123456789" not in said.out + said.err
    found = relocated(said.out, base)
    if "--json" in options:
        found = json.dumps(json.loads(found)["jobs"], indent=1) + "\n"
    elif options:
        found = found[found.index("\njob ") + 1 :]  # the plan itself is that of the first
    as_golden(found.replace(str(tmp_path), "FOLDER"), name)


def test_a_distributed_plan_has_a_job_for_each_node_that_is_named(milabench: Milabench, tmp_path: Path) -> None:
    suite = tmp_path / "suite.yaml"
    suite.write_text("hello: {command: [echo, hello]}\n")
    nodes = ("--slurm-arg", "nodelist=n[1-3]", "--slurm-arg", "exclude=n2")
    said = milabench("plan", "run", "--config", str(suite), "--engine", "slurm", "--distribute", *nodes, "--json")
    scripts = [job["script"] for job in json.loads(said.out)["jobs"]]
    assert [re.findall("--node.*", script) for script in scripts] == [
        ["--nodes=1", "--nodelist=n1"],
        ["--nodes=1", "--nodelist=n3"],
    ]


def test_the_script_in_a_plan_is_a_program_that_a_shell_can_read(milabench: Milabench, tmp_path: Path) -> None:
    suite, system = tmp_path / "suite.yaml", tmp_path / "cluster.yaml"
    suite.write_text("hello: {command: [echo, hello]}\n")
    system.write_text(SLURM)
    words = ("--config", str(suite), "--system", str(system), "--base", str(tmp_path / "it's $(x)"), "--json")
    for more in ((), ("--submit",), ("--submit", "--array")):
        for job in json.loads(milabench("plan", "run", *words, *more).out)["jobs"]:
            assert job["script"].startswith("#!/bin/sh\n#SBATCH --parsable\n#SBATCH --no-requeue\n")
            assert f"#SBATCH --job-name=mb-MARKER-{job['name']}\n#SBATCH --comment=MARKER\n" in job["script"]
            subprocess.run(["sh", "-n"], input=job["script"], text=True, check=True)


def test_a_dry_run_says_the_same_as_plan_run(milabench: Milabench) -> None:
    for form in ((), ("--json",)):
        plan = milabench("plan", "run", *CLUSTER, *FEW, *form)
        dry = milabench("run", "--dry-run", *CLUSTER, *FEW, *form)
        assert (dry.code, dry.out) == (0, plan.out)


def test_the_plan_is_the_same_whatever_the_environment_says(milabench: Milabench) -> None:
    plans = {
        milabench("plan", "run", *CLUSTER, "--json", **more).out
        for more in ({}, {"CUDA_VISIBLE_DEVICES": "3"}, {"OMP_NUM_THREADS": "1"}, {"PATH": "/nowhere"})
    }
    assert len(plans) == 1


def test_diff_shows_what_an_override_changes(milabench: Milabench, tmp_path: Path) -> None:
    before = tmp_path / "plan.json"
    before.write_text(milabench("plan", "run", *CLUSTER, *FEW, "--json").out)
    same = milabench("plan", "run", *CLUSTER, *FEW, "--diff", str(before))
    assert (same.code, same.out) == (0, "no difference\n")
    change = ("--override", "chat.client.argv.--num-prompts=5")
    said = milabench("plan", "run", *CLUSTER, *FEW, *change, "--diff", str(before))
    assert said.code == 0
    assert said.out.splitlines() == [
        "steps: 1 changed",
        "  ~ chat.client.node0",
        "      argv: --num-prompts 500 -> 5",
    ]
    value = json.loads(milabench("plan", "run", *CLUSTER, *FEW, *change, "--diff", str(before), "--json").out)
    assert list(value["steps"]["changed"]) == ["chat.client.node0"]


@pytest.mark.parametrize(
    ("content", "what"),
    [(None, "cannot be read"), ("{", "is not JSON"), ("{}", "is not a plan"), ("[1]", "is not a plan")],
)
def test_a_file_that_is_no_plan_is_one_line(
    milabench: Milabench, tmp_path: Path, content: str | None, what: str
) -> None:
    other = tmp_path / "other.json"
    if content is not None:
        other.write_text(content)
    said = milabench("plan", "run", *CLUSTER, *FEW, "--diff", str(other))
    assert said.code == 2
    (line,) = said.err.splitlines()
    assert line.startswith(f"error: {other}: {what}")


# --- multirun --------------------------------------------------------------------------------------------------------

SIZED = ("--use-current-env", "--config", str(SUITES / "sized.yaml"))


def multirun(tmp_path: Path, matrix: str, name: str) -> tuple[str, str]:
    system = tmp_path / "system.yaml"
    system.write_text(f"multirun: {{runs: [{{name: '{name}', matrix: {matrix}}}]}}")
    return "--system", str(system)


def test_a_multirun_plans_one_run_for_each_combination(milabench: Milabench, tmp_path: Path) -> None:
    system = multirun(tmp_path, "{sizer.mult: [0.5, 2], sized.argv.--limit: 70}", "bs{sizer.mult}.{time}")
    said = milabench("plan", "run", *SIZED, *system, "--select", "sized", "--json")
    assert said.code == 0, said.err
    runs: list[dict[str, Any]] = json.loads(said.out)["runs"]
    assert [(run["name"], run["plan"]["steps"][0]["argv"][2:]) for run in runs] == [
        ("bs0.5.{time}", ["--batch-size", "4", "--limit", "70"]),
        ("bs2.{time}", ["--batch-size", "16", "--limit", "70"]),
    ]
    text = milabench("plan", "run", *SIZED, *system, "--select", "sized").out
    assert "run bs2.{time}: sizer.mult=2, sized.argv.--limit=70" in text
    wins = milabench(
        "plan", "run", *SIZED, *system, "--select", "sized", "--override", "sized.argv.--limit=3", "--json"
    )
    assert {run["plan"]["steps"][0]["argv"][-1] for run in json.loads(wins.out)["runs"]} == {"3"}


def test_a_multirun_runs_each_combination_under_its_own_name(
    milabench: Milabench, environ: dict[str, str], tmp_path: Path
) -> None:
    system = multirun(tmp_path, "{sizer.batch_size: [3, 99]}", "bs{sizer.batch_size}.{time}")
    said = milabench("run", *SIZED, "--display", "none", "--wait", *system, "--select", "sized")
    assert said.code == 1  # the second does not fit
    runs = sorted(path.name for path in Path(environ["MILABENCH_BASE"], "runs").iterdir())
    assert [name.partition(".")[0] for name in runs] == ["bs3", "bs99"]
    assert all(re.fullmatch(r"bs\d+\.\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d", name) for name in runs)
    assert "does not fit" in milabench("report").out


def test_a_multirun_has_no_single_plan_to_compare(milabench: Milabench, tmp_path: Path) -> None:
    system = multirun(tmp_path, "{sizer.mult: [1, 2]}", "bs{sizer.mult}")
    said = milabench("plan", "run", *SIZED, *system, "--diff", "x.json")
    assert said.code == 2
    assert "--diff compares a single plan" in said.err


def test_a_container_engine_that_is_not_there_is_said_before_the_run(milabench: Milabench, tmp_path: Path) -> None:
    suite = tmp_path / "suite.yaml"
    suite.write_text("a: {command: ['true'], docker_image: image, plan: {method: njobs}}")
    said = milabench("run", "--use-current-env", "--config", str(suite), PATH=str(tmp_path))
    assert said.code == 4
    assert "error: not installed: image image (docker is not on PATH). Run `milabench install " in said.err
