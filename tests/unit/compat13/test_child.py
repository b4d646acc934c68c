"""What the child process answers about benchfiles of milabench 1.3."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.foreign_requests import CHILD, DIRS, FOLDERS, JOB, PER_DEVICE, answers, benchmark, definition, planned, words
from tests.processes import is_gone, started, until

pytestmark = pytest.mark.turns(3)


def test_a_plain_package_runs_its_main_script_under_the_runner_on_each_device() -> None:
    assert words("plain", benchmark(devices=2)) == {
        "n1/b.D0": "@runner D/main.py --lr 0.1",
        "n1/b.D1": "@runner D/main.py --lr 0.1",
    }


def test_a_process_has_its_folder_and_the_variables_of_make_env() -> None:
    (process,) = planned("plain")["processes"].values()
    assert process == {
        "placement": "n1/b.D0",
        "tag": ["b", "D0"],
        "words": ["@runner", f"{FOLDERS}/plain/main.py", "--lr", "0.1"],
        "env": {
            **{f"MILABENCH_DIR_{name.upper()}": path for name, path in DIRS.items()},
            "XDG_CACHE_HOME": "/base/cache",
            "TORCH_HOME": "/base/cache",
            "HF_HOME": "/base/data",
        },
        "cwd": f"{FOLDERS}/plain",
        "stdout": False,
        "devices": [0],
        "container": None,
    }


def test_the_prepare_script_gets_the_arguments_of_the_run() -> None:
    prepare = planned("plain")["prepare"]
    assert prepare["words"] == [f"{FOLDERS}/plain/prepare.py", "--lr", "0.1"]
    assert prepare["cwd"] == f"{FOLDERS}/plain"


def test_a_coroutine_that_only_calls_its_base_is_not_its_own() -> None:
    (answer,) = answers(definition(FOLDERS / "plain"))
    del answer["benchmarks"]
    assert answer == {
        "main_script": "main.py",
        "prepare_script": "prepare.py",
        "base_requirements": ["requirements.in"],
        "own_install": False,
        "own_prepare": False,
    }


def test_a_program_that_gives_its_records_on_standard_output_has_no_runner() -> None:
    (answer,) = answers(definition(FOLDERS / "stdout", benchmark(JOB, devices=2)))
    (process,) = answer["benchmarks"][0]["processes"].values()
    assert process["words"][0] == f"{FOLDERS}/stdout/main.py"
    assert process["stdout"]
    assert process["devices"] == [0, 1]
    assert answer["benchmarks"][0]["prepare"] is None
    assert answer["base_requirements"] == ["requirements-pre.in", "requirements.in"]


def test_templates_of_the_suite_stay_for_the_control_plane() -> None:
    argv = {"--workers": "{n_worker}", "--batch": "auto_batch(32)", "--skip": None, "--flag": True, "pos": True}
    (line,) = words("plain", benchmark(argv=argv)).values()
    assert line == "@runner D/main.py pos --workers {n_worker} --batch auto_batch(32) --flag"


ACCELERATE = (
    "V/bin/accelerate launch --mixed_precision=bf16 --dynamo_backend=no --machine_rank={rank} --num_machines={nodes} "
    "{spread} --gradient_accumulation_steps=1 --num_cpu_threads_per_process=4 --main_process_ip=10.0.0.1 "
    "--main_process_port=29400 --num_processes={ranks} D/main.py --lr 0.1"
)
RENDEZVOUS = (
    "--nnodes={nodes} --rdzv-backend=static --rdzv-endpoint=10.0.0.1:29400 --master-addr=10.0.0.1 --master-port=29400 "
    "--local-ranks-filter=0"
)
ONE = RENDEZVOUS.format(nodes=1) + " --nproc-per-node=gpu"
TWO = RENDEZVOUS.format(nodes=2) + " --node-rank={k} --local-addr=10.0.0.{n} --rdzv-conf=rank={k} --nproc-per-node=gpu"

# folder -> its command on one device, on all eight of a node, and on each of two nodes.
COMMANDS = {
    "module": ("@runner -m bench --lr 0.1", "@runner -m bench --lr 0.1", None),
    "activator": ("D/main.py --lr 0.1", "D/main.py --lr 0.1", None),
    "cmd": ("python D/main.py --lr 0.1 --cache /base/cache", "python D/main.py --lr 0.1 --cache /base/cache", None),
    "torchrun_gpus": (
        "@runner D/source/train.py --lr 0.1 --output /base/data --keep 1",
        "V/bin/benchrun --nproc-per-node=gpu --no-python -- "
        "@runner D/source/train.py --lr 0.1 --output /base/data --keep 1",
        None,
    ),
    "torchrun_nodes": (
        "@runner D/main.py --lr 0.1",
        f"V/bin/benchrun {ONE} --no-python -- @runner D/main.py --lr 0.1",
        f"V/bin/benchrun {TWO} --no-python -- @runner D/main.py --lr 0.1",
    ),
    "accelerate": (
        "D/main.py --lr 0.1",
        ACCELERATE.format(rank=0, nodes=1, spread="--multi_gpu", ranks=8),
        ACCELERATE.format(rank="{k}", nodes=2, spread="--multi_gpu", ranks=16),
    ),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_that_of_its_placement(name: str) -> None:
    one, all_of_a_node, each_of_two = COMMANDS[name]
    assert words(name, benchmark(PER_DEVICE)) == {"n1/b.D0": one}
    assert words(name, benchmark(JOB, devices=8)) == {"n1/b.0": all_of_a_node}
    # A command that knows nothing of nodes is started on the main one.
    expected = {"n1/b.n1": all_of_a_node}
    if each_of_two:
        expected = {f"n{k + 1}/b.n{k + 1}": each_of_two.format(k=k, n=k + 1) for k in range(2)}
    assert words(name, benchmark(JOB, devices=8, nodes=2)) == expected


def test_a_launcher_of_the_benchfile_keeps_its_program_and_its_words() -> None:
    argv = ["bench/train.py", "batch=2"]
    run = "V/bin/python -m tune run"
    assert words("launcher", benchmark(PER_DEVICE, argv=argv)) == {"n1/b.D0": f"{run} -- bench/train.py batch=2"}
    assert words("launcher", benchmark(JOB, 8, argv=argv)) == {"n1/b.0": f"{run} {ONE} -- bench/train.py batch=2"}
    assert words("launcher", benchmark(JOB, 8, 2, argv=argv)) == {
        f"n{k + 1}/b.n{k + 1}": f"{run} {TWO.format(k=k, n=k + 1)} -- bench/train.py batch=2" for k in range(2)
    }


def test_deepspeed_and_accumulation_are_keys_of_the_suite() -> None:
    config = {"use_deepspeed": True, "gradient_accumulation_steps": 4, "argv": {"--cpus_per_gpu": "{n_worker}"}}
    (line,) = words("accelerate", benchmark(JOB, 8, **config)).values()
    assert "--use_deepspeed --deepspeed_multinode_launcher=standard --zero_stage=2" in line
    assert "--gradient_accumulation_steps=4 --num_cpu_threads_per_process={n_worker}" in line


def test_the_port_is_an_option_of_the_system() -> None:
    system = {"options": {"torchrun": {"port": 1234}}}
    (line,) = words("torchrun_nodes", benchmark(JOB, 8, system=system)).values()
    assert "--rdzv-endpoint=10.0.0.1:1234" in line


def test_a_script_that_cannot_be_executed_is_started_by_python(tmp_path: Path) -> None:
    shutil.copytree(FOLDERS / "stdout", tmp_path, dirs_exist_ok=True)
    (tmp_path / "main.py").chmod(0o644)
    (answer,) = answers(definition(tmp_path))
    (process,) = answer["benchmarks"][0]["processes"].values()
    assert process["words"][:2] == ["/base/venv/bin/python", f"{tmp_path}/main.py"]


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("list", {"n1/b.0": (["b", "0", "0"], "train"), "n1/b.0/1": (["b", "0", "1"], "watch")}),
        ("njobs", {"n1/b.0": (["b", "0", "0"], "train"), "n1/b.0/1": (["b", "0", "1"], "train")}),
        ("per_gpu", {"n1/b.0": (["b", "0", "D0"], "train"), "n1/b.0/1": (["b", "0", "D1"], "train")}),
        ("server", {"n1/b.0": (["b", "0", "client"], "ask"), "n1/b.0/1": (["b", "0", "server"], "serve")}),
    ],
)
def test_several_processes_of_a_placement_have_tags_of_their_own(how: str, expected: object) -> None:
    runs = planned("several", benchmark(JOB, devices=2, how=how))["processes"]
    assert {key: (process["tag"], process["words"][0]) for key, process in runs.items()} == expected
    assert {process["placement"] for process in runs.values()} == {"n1/b.0"}


def test_a_command_per_device_has_its_device() -> None:
    runs = planned("several", benchmark(JOB, devices=2, how="per_gpu"))["processes"]
    assert [process["devices"] for process in runs.values()] == [[0], [1]]


def test_hosts_and_containers_are_facts_and_no_words() -> None:
    docker = {"executable": "podman", "image": "registry/image", "args": ["--rm"]}
    runs = planned("places", benchmark(JOB, nodes=2, system={"docker": docker}))["processes"]
    ask, serve = runs["n1/b.n1"], runs["n2/b.n2"]
    assert (ask["words"], ask["container"]) == (["ask"], None)
    assert (serve["words"], serve["container"]) == (["serve"], {**docker, "args": ["--rm", "--init"]})
    assert ask["cwd"] == serve["cwd"] == f"{FOLDERS}/places/source"


def test_a_file_beside_the_benchfile_and_the_callers_environment_can_be_read() -> None:
    env = {**os.environ, "CALLERS_TOKEN": "secret"}
    (answer,) = answers(definition(FOLDERS / "overrides"), env=env)
    (process,) = answer["benchmarks"][0]["processes"].values()
    assert {name: process["env"][name] for name in ("FLAVOUR", "NUMBER", "TOKEN")} == {
        "FLAVOUR": "from-a-file",
        "NUMBER": "3",
        "TOKEN": "secret",
    }
    assert not any(name.startswith("TRAILING") for name in process["env"])
    assert (answer["own_install"], answer["own_prepare"]) == (True, True)


def test_what_one_benchmark_sets_in_the_environment_the_next_does_not_have() -> None:
    env = {**os.environ, "CALLERS_TOKEN": "secret"}
    first, second = answers(definition(FOLDERS / "overrides"), definition(FOLDERS / "plain"), env=env)
    assert "TOKEN" in first["benchmarks"][0]["processes"]["n1/b.D0"]["env"]
    assert "TOKEN" not in second["benchmarks"][0]["processes"]["n1/b.D0"]["env"]


def test_the_working_copy_is_read_where_there_is_one(tmp_path: Path) -> None:
    shutil.copytree(FOLDERS / "plain", tmp_path / "copy")
    (answer,) = answers(definition(FOLDERS / "plain", code=tmp_path / "copy"))
    (process,) = answer["benchmarks"][0]["processes"].values()
    assert process["words"][1] == f"{tmp_path}/copy/main.py"
    (answer,) = answers(definition(FOLDERS / "plain", code=tmp_path / "not yet"))
    (process,) = answer["benchmarks"][0]["processes"].values()
    assert process["words"][1] == f"{FOLDERS}/plain/main.py"


@pytest.mark.parametrize(
    ("how", "what"),
    [
        ("raises", "build_run_plan: KeyError: 'missing'"),
        ("exits", "build_run_plan: SystemExit: 3"),
        ("text", "build_run_plan: TypeError: expected a command, got 'main.py'"),
        (
            "fetches",
            "build_run_plan: RuntimeError: clone_subtree is possible only in install and prepare, not while a run is planned",
        ),
    ],
)
def test_an_error_of_one_benchmark_is_one_line_and_the_others_are_planned(how: str, what: str) -> None:
    failing, sound = benchmark(how=how), benchmark()
    (answer,) = answers(definition(FOLDERS / "misbehaving", failing, sound))
    assert answer["benchmarks"][0]["error"]["what"] == what
    assert answer["benchmarks"][1]["processes"].keys() == {"n1/b.D0"}


def test_an_error_names_its_line() -> None:
    lines = (FOLDERS / "misbehaving" / "benchfile.py").read_text().splitlines()
    line = next(number for number, text in enumerate(lines, 1) if "missing" in text)
    assert planned("misbehaving", benchmark(how="raises"))["error"]["where"] == f"benchfile.py:{line}"


def test_what_a_benchfile_prints_is_no_part_of_the_answer() -> None:
    assert words("misbehaving", benchmark(how="prints")) == {"n1/b.D0": "@runner D/main.py --lr 0.1"}


@pytest.mark.parametrize(
    ("how", "what"),
    [
        ("dies", "build_run_plan: ended the process that reads it (exit code 7)"),
        ("hangs", "build_run_plan: not done after 0.5 s"),
        ("hangs on", "build_run_plan: not done after 0.5 s"),
    ],
)
def test_a_definition_that_gives_no_answer_costs_only_its_own(how: str, what: str) -> None:
    hanging = definition(FOLDERS / "misbehaving", benchmark(), benchmark(how=how))
    first, second = answers(hanging, definition(FOLDERS / "plain"), limit_s=0.5)
    assert first["error"]["what"] == what
    assert second["benchmarks"][0]["processes"].keys() == {"n1/b.D0"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_child_that_is_ended_ends_what_it_waits_for(tmp_path: Path, number: int) -> None:
    file = tmp_path / "pid"
    asked = definition(FOLDERS / "misbehaving", benchmark(how="hangs on", pid_file=str(file)))
    command = [sys.executable, "-I", CHILD]
    with started(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        child.stdin.write(json.dumps({"definitions": [asked]}).encode())
        child.stdin.close()
        pid = int(until(lambda: file.exists() and file.read_text(), "the worker's pid"))
        child.send_signal(number)
    assert child.returncode != 0
    until(lambda: is_gone(pid), "the worker's end")


@pytest.mark.parametrize(
    ("source", "where", "what"),
    [
        ("import milabench.nothing\n", "benchfile.py:1", "ModuleNotFoundError: No module named 'milabench.nothing'"),
        ("x = 1\n\n)\n", "benchfile.py:3", "SyntaxError: unmatched ')'"),
        ("import sys\nsys.exit('no GPU')\n", "benchfile.py:2", "SystemExit: no GPU"),
        (
            "__pack__ = 1\n",
            "benchfile.py",
            "`__pack__` is no class. Write `__pack__ = NAME_OF_THE_CLASS` at module level",
        ),
    ],
)
def test_a_benchfile_that_cannot_be_read_is_an_error_of_its_definition(
    tmp_path: Path, source: str, where: str, what: str
) -> None:
    (tmp_path / "benchfile.py").write_text(source)
    (answer,) = answers(definition(tmp_path))
    assert answer == {"error": {"where": where, "what": what}}


# Definitions of the real project -> their commands as those above; the others have the default one.
REAL = {
    "accelerate_opt": "accelerate",
    "diffusion": "accelerate",
    "dinov2": "torchrun_nodes",
    "flops": "activator",
    "huggingface": "module",
    "lightning": "torchrun_nodes",
    "llama": "cmd",
    "llava": "accelerate",
    "rlhf": "accelerate",
    "torchvision_ddp": "activator",
    "vjepa": "torchrun_nodes",
}
OTHERS = {"timm", "llm", "vllm"}  # with words of their own
CHECKOUT = Path(os.environ.get("MILABENCH13", "/nonexistent"))


@pytest.mark.skipif(not CHECKOUT.is_dir(), reason="MILABENCH13 names no checkout of milabench 1.3")
def test_every_benchfile_of_the_real_project_is_planned_as_there() -> None:
    folders = sorted(file.parent for file in (CHECKOUT / "benchmarks").rglob("benchfile.py"))
    placed = [benchmark(PER_DEVICE), benchmark(JOB, 8), benchmark(JOB, 8, 2)]
    for folder, answer in zip(folders, answers(*(definition(folder, *placed) for folder in folders)), strict=True):
        lines = [
            [" ".join(process["words"]).replace(str(folder), "D") for process in each["processes"].values()]
            for each in answer["benchmarks"]
        ]
        assert all(lines), folder
        if folder.name not in OTHERS:
            main = f"@runner D/{answer['main_script']} --lr 0.1"
            one, eight, two = COMMANDS.get(REAL.get(folder.name, ""), (main, main, None))
            nodes = [two.format(k=k, n=k + 1) for k in range(2)] if two else [eight]
            expected = [[line.replace("V/", "/base/venv/") for line in each] for each in ([one], [eight], nodes)]
            if not os.access(folder / "main.py", os.X_OK) and one.startswith("D/"):
                expected[0] = [f"/base/venv/bin/python {one}"]
            assert lines == expected, folder
