"""Selected benchmarks and facts become steps: what is started where, with which words, variables and limits."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from milabench.bench.api import Benchmark, Git
from milabench.config.read import read_suite
from milabench.errors import ConfigError
from milabench.facts.model import Arch, Device, Node, SystemFacts
from milabench.plan.context import COMMAND, PlanContext, ResolvedBenchmark, benchmark_on, dirs_under
from milabench.plan.model import Plan
from milabench.plan.placeholders import names_for, sizing_notes
from milabench.plan.prepare import prepare_step
from milabench.plan.profile import PROFILES, Profile
from milabench.plan.run import plan_run
from milabench.plan.sizing import Observation, Sizer, SizerOptions
from milabench.plan.text import plan_text

PROGRAM = Benchmark(script="main.py", voirfile=None, prepare=None)
FETCHED = Benchmark(
    source=Git("https://git.example/r.git", "0" * 40), module="recipes", python_path=("lib",), env={"A": "declared"}
)


def node(name: str = "one", *, count: int = 2, arch: Arch = "cuda", cpus: int = 16, memory: int = 1000) -> Node:
    devices = tuple(
        Device(index=index, uuid=f"{name}-{index}", name="X9", arch=arch, memory_mib=memory) for index in range(count)
    )
    return Node(name=name, ip=f"10.0.0.{len(name)}", cpu_count=cpus, devices=devices, main=name == "one")


class World:
    """A suite of one file, and machines to plan it for."""

    def __init__(self, tmp_path: Path, suite: str, *nodes: Node, arch: Arch = "cuda", **circumstances: Any) -> None:
        path = tmp_path / "suite.yaml"
        path.write_text(suite)
        self.suite = read_suite([path])
        self.where = PlanContext(
            facts=SystemFacts(arch=arch, nodes=nodes or (node(),)),
            system=self.suite.system,
            dirs=dirs_under("/base", self.suite.system.dirs),
            **{"profile": PROFILES["quick"], "run_name": "r", **circumstances},
        )

    def ready(self, declared: Benchmark | None = PROGRAM) -> tuple[ResolvedBenchmark, ...]:
        return tuple(
            ResolvedBenchmark(
                config=bench, folder="/suite/b", declared=COMMAND if bench.definition is None else declared
            )
            for bench in self.suite.benchmarks.values()
        )

    def plan(self, declared: Benchmark | None = PROGRAM) -> Plan:
        return plan_run(self.ready(declared), self.where)


def ids(plan: Plan) -> list[str]:
    return [step.id for step in plan.steps]


# --- methods ---------------------------------------------------------------------------------------------------------


def test_per_gpu_is_a_process_for_each_device_which_sees_only_that_one(tmp_path: Path) -> None:
    plan = World(tmp_path, "b: {definition: x}", node(count=3)).plan()
    assert ids(plan) == ["b.D0", "b.D1", "b.D2"]
    assert [step.devices for step in plan.steps] == [(0,), (1,), (2,)]
    assert [step.env["CUDA_VISIBLE_DEVICES"] for step in plan.steps] == ["0", "1", "2"]
    assert len(plan.groups()) == 1


def test_njobs_are_processes_that_share_all_devices(tmp_path: Path) -> None:
    plan = World(tmp_path, "b: {definition: x, plan: {method: njobs, n: 3}}").plan()
    assert ids(plan) == ["b.0", "b.1", "b.2"]
    assert {step.devices for step in plan.steps} == {(0, 1)}
    some = World(tmp_path, "b: {definition: x, plan: {method: njobs, n: 2, devices: 1}}").plan()
    assert [step.devices for step in some.steps] == [(0,), (0,)]
    assert len(plan.groups()) == 1


def test_multigpu_is_one_torchrun_with_a_rank_per_device(tmp_path: Path) -> None:
    (step,) = World(tmp_path, "b: {definition: x, plan: {method: multigpu}, argv: [go]}").plan().steps
    assert step.id == "b"
    assert step.argv == (
        *("/base/venv/b/bin/python", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"),
        *("--", "/suite/b/main.py", "go"),
    )


def test_multinode_is_a_step_per_node_in_one_group_with_one_rendezvous(tmp_path: Path) -> None:
    text = "b: {definition: x, plan: {method: multinode}, num_machines: 2}\nsystem: {options: {torchrun: {port: 777}}}"
    first, second = World(tmp_path, text, node(), node("second")).plan().steps
    assert (first.id, first.node, second.id, second.node) == ("b.node0", "one", "b.node1", "second")
    assert first.group == second.group
    assert {"--nnodes=2", "--node-rank=0", "--rdzv-endpoint=10.0.0.3:777"} <= set(first.argv)
    assert {"--nnodes=2", "--node-rank=1", "--rdzv-endpoint=10.0.0.3:777"} <= set(second.argv)


@pytest.mark.parametrize(
    ("more", "nodes"),
    [
        ("", ["one", "second"]),
        (", num_machines: 1", ["one"]),
        (", plan: {nodes: second}", ["second"]),
        (", num_machines: 1, plan: {nodes: [all]}", ["one", "second"]),
        (", plan: {method: njobs, n: 1}", ["one", "second"]),
        (", plan: {method: multigpu}", ["one", "second"]),
        (", plan: {method: multinode}", ["one"]),
    ],
)
def test_what_needs_no_other_node_runs_on_every_one_unless_it_is_told_which(
    tmp_path: Path, more: str, nodes: list[str]
) -> None:
    plan = World(tmp_path, f"b: {{definition: x{more}}}", node(count=1), node("second", count=1)).plan()
    assert [step.node for step in plan.steps] == nodes
    assert [step.id[-1] for step in plan.steps] == [{"one": "0", "second": "1"}[name] for name in nodes]


@pytest.mark.parametrize(
    ("more", "waits"),
    [
        ("", True),
        (", num_machines: 1", False),
        (", plan: {method: njobs, n: 1}", True),
        (", plan: {method: multigpu}", False),
        (", num_machines: 2, plan: {method: multinode}", False),
    ],
)
def test_instances_on_several_nodes_pass_one_start_barrier(tmp_path: Path, more: str, waits: bool) -> None:
    plan = World(tmp_path, f"b: {{definition: x{more}}}", node(count=1), node("second", count=1)).plan()
    assert {"barrier" in step.config["measure"] for step in plan.steps} == {waits}
    assert {step.env["OMP_NUM_THREADS"] for step in plan.steps} == {str(node().cpu_count)}


def test_a_profile_equal_to_another_keeps_its_own_way_of_writing_numbers_in_hashes(tmp_path: Path) -> None:
    def measure(profile: Profile) -> str:
        (step,) = World(tmp_path, "b: {definition: x, plan: {method: njobs}}", profile=profile).plan().steps
        return json.dumps(step.config["measure"])

    whole, broken = (replace(PROFILES["quick"], window_s=window_s) for window_s in (3, 3.0))
    assert whole == broken
    assert (measure(whole)[-4:], measure(broken)[-4:]) == (": 3}", "3.0}")


def test_a_benchmark_with_a_barrier_leaves_the_measure_of_the_others_as_it_is(tmp_path: Path) -> None:
    text = "a: {definition: x}\nb: {definition: x, plan: {method: njobs}}"
    plan = World(tmp_path, text, node(count=2)).plan()
    assert {step.bench: "barrier" in step.config["measure"] for step in plan.steps} == {"a": True, "b": False}


def test_a_node_that_there_is_not_is_a_skip_with_those_that_there_are(tmp_path: Path) -> None:
    plan = World(tmp_path, "b: {definition: x, plan: {nodes: [third]}}", node(), node("second")).plan()
    assert [skip.why for skip in plan.skipped] == ["unknown node third. Known: one, second"]


def test_the_paths_of_another_node_are_below_its_own_base(tmp_path: Path) -> None:
    second = replace(node("second", count=1), local=False, base="/there")
    plan = World(tmp_path, "b: {definition: x}", replace(node(count=1), local=True), second).plan()
    here, there = plan.steps
    assert here.env["MILABENCH_DIR_RUNS"] == "/base/runs"
    assert there.env["MILABENCH_DIR_RUNS"] == "/there/runs"
    assert there.argv[0].startswith("/there/venv/")
    assert there.env["MILABENCH_DIR_CACHE"] == "/there/cache"
    assert any(word.startswith("/there/definitions/suite-b") for word in there.argv), there.argv


def test_accelerate_is_given_what_the_suite_says_and_counts_all_ranks(tmp_path: Path) -> None:
    text = """b:
  definition: x
  num_machines: 2
  plan: {method: multinode, launcher: accelerate, mixed_precision: bf16, use_fsdp: true, cpu: false, num-processes: 3}
"""
    _, second = World(tmp_path, text, node(), node("second")).plan().steps
    assert second.argv[1:-1] == (
        *("-m", "accelerate.commands.launch", "--num-processes=3", "--num_machines=2", "--machine_rank=1"),
        *("--main_process_ip=10.0.0.3", "--main_process_port=@port", "--mixed_precision=bf16", "--use_fsdp"),
    )


def test_launcher_options_may_have_placeholders(tmp_path: Path) -> None:
    text = "b: {definition: x, plan: {method: multigpu, launcher: torchrun, log-dir: '{milabench_extra}/log'}}"
    (step,) = World(tmp_path, text).plan().steps
    assert "--log-dir=/base/extra/b/log" in step.argv


def test_an_unknown_launcher_is_an_error_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"suite\.yaml:1:\d+: b\.plan\.launcher: unknown launcher 'mpi'"):
        World(tmp_path, "b: {definition: x, plan: {method: multigpu, launcher: mpi}}").plan()


# --- the command line ------------------------------------------------------------------------------------------------


def test_a_fetched_module_runs_under_our_runner_with_its_source_on_the_path(tmp_path: Path) -> None:
    (step,) = World(tmp_path, "b: {definition: x, install_group: g, argv: {--a: 1}}", node(count=1)).plan(FETCHED).steps
    source = "/base/code/r-000000000000"
    assert step.argv == (
        *("/base/venv/g/bin/python", "-m", "benchmate.run", "--voirfile", "/suite/b/voirfile.py", "--path", source),
        *("-m", "recipes", "--a", "1"),
    )
    assert step.env["PYTHONPATH"] == f"{source}:{source}/lib"


def test_a_command_is_started_as_it_stands_and_needs_no_observation(tmp_path: Path) -> None:
    text = "b: {command: [copy, '{gpu_count} times'], plan: {method: njobs}, metrics: {speed: {pattern: x}}}"
    (step,) = World(tmp_path, text).plan().steps
    assert step.argv == ("copy", "2 times")
    assert (step.venv, "VIRTUAL_ENV" in step.env, step.needs_data) == ("", False, False)


def test_a_shell_line_is_one_word_for_the_shell(tmp_path: Path) -> None:
    text = "b: {command: 'yes | head', shell: true, argv: [x], plan: {method: njobs}}"
    (step,) = World(tmp_path, text).plan().steps
    assert step.argv == ("/bin/sh", "-c", "yes | head", "b", "x")


def test_the_current_environment_takes_the_place_of_every_venv(tmp_path: Path) -> None:
    world = World(tmp_path, "b: {definition: x, argv: ['{milabench_venv}']}", node(count=1), current_env="/here")
    (step,) = world.plan().steps
    assert (step.argv[0], step.argv[-1], step.env["VIRTUAL_ENV"]) == ("/here/bin/python", "/here", "/here")


def test_a_server_comes_before_its_client_which_knows_for_what_to_wait(tmp_path: Path) -> None:
    text = """b:
  definition: x
  plan: {method: multigpu}
  argv: {--shared: 1}
  server: {ready: "{gpu_count}000", argv: {serve: true, --tp: "{gpu_count}"}}
  client: {argv: {--batch: auto_batch(4)}}
"""
    server, client = World(tmp_path, text).plan(Benchmark(script="main.py", prepare=None)).steps
    assert (server.id, client.id) == ("b.server", "b.client")
    assert server.group == client.group
    assert server.argv == ("/base/venv/b/bin/python", "/suite/b/main.py", "serve", "--tp", "2", "--shared", "1")
    assert client.argv[1:3] == ("-m", "benchmate.run")
    assert client.argv[-4:] == ("--batch", "4", "--shared", "1")
    ready = {"port": "2000", "hosts": ["127.0.0.1", "10.0.0.3"], "timeout_s": 600}
    assert (server.config["role"], server.config["server"]) == ("server", {"ready": ready})
    assert client.config["server"] == {"ready": ready, "step": "b.server", "node": "one"}
    assert (server.timeout_s, client.timeout_s) == (1200, 600)
    assert (server.needs_data, client.needs_data, server.after, client.after) == (False, True, (), ())


@pytest.mark.parametrize(
    ("ready", "found"),
    [
        ("8000", {"port": "8000", "hosts": ["127.0.0.1", "10.0.0.3"], "timeout_s": 600}),
        ("{port: '@port', timeout: 5}", {"port": "@port", "hosts": ["127.0.0.1", "10.0.0.3"], "timeout_s": 5}),
        ("^listening", {"pattern": "^listening", "timeout_s": 600}),
        ("{pattern: (8000), timeout: 1}", {"pattern": "(8000)", "timeout_s": 1}),
    ],
)
def test_a_server_is_ready_by_a_port_or_a_pattern_within_a_time(
    tmp_path: Path, ready: str, found: dict[str, object]
) -> None:
    text = f"b: {{definition: x, plan: {{method: multigpu}}, server: {{ready: {ready}}}, client: {{argv: [c]}}}}"
    server, _ = World(tmp_path, text).plan().steps
    assert server.config["server"]["ready"] == found


@pytest.mark.parametrize(("ready", "what"), [("'(a'", "not a regular expression"), ("99999", "no such port: 99999")])
def test_what_no_server_can_be_ready_by_is_an_error_with_its_place(tmp_path: Path, ready: str, what: str) -> None:
    text = f"b: {{definition: x, plan: {{method: multigpu}}, server: {{ready: {ready}}}, client: {{argv: [c]}}}}"
    with pytest.raises(ConfigError, match=rf"suite\.yaml:1:\d+: b\.server\.ready: {what}"):
        World(tmp_path, text).plan()


def test_what_a_server_prints_is_not_measured(tmp_path: Path) -> None:
    text = "b: {command: x, plan: {method: multigpu}, metrics: {m: {pattern: x}}, server: {argv: [s]}, client: {argv: [c]}}"
    server, client = World(tmp_path, text).plan().steps
    assert ("metrics" in server.config, "metrics" in client.config) == (False, True)


def test_on_two_machines_the_client_has_the_last(tmp_path: Path) -> None:
    text = "b: {definition: x, plan: {method: multigpu}, num_machines: 2, server: {argv: [s]}, client: {argv: [c]}}"
    steps = World(tmp_path, text, node(), node("second")).plan().steps
    assert [(step.id, step.node) for step in steps] == [("b.server.node0", "one"), ("b.client.node1", "second")]


def test_a_server_for_each_device_has_a_client_for_each(tmp_path: Path) -> None:
    text = "b: {definition: x, server: {argv: [s]}, client: {argv: [c]}}"
    assert ids(World(tmp_path, text).plan()) == ["b.D0.server", "b.D0.client", "b.D1.server", "b.D1.client"]


def test_false_is_the_no_form_of_an_option_that_has_one(tmp_path: Path) -> None:
    text = "b: {definition: x, argv: {--resume: false, --other: false}}"
    (step,) = World(tmp_path, text, node(count=1)).plan(replace(PROGRAM, flags=("--resume",))).steps
    assert step.config["argv"] == ["--no-resume"]


def test_a_benchmark_may_have_its_data_elsewhere(tmp_path: Path) -> None:
    text = "b: {definition: x, argv: ['{milabench_data}'], dirs: {data: /fast, cache: mine}}"
    (step,) = World(tmp_path, text, node(count=1)).plan(replace(PROGRAM, cwd="data")).steps
    assert (step.argv[-1], step.cwd, step.env["MILABENCH_DIR_DATA"]) == ("/fast", "/fast/b", "/fast")
    assert step.env["XDG_CACHE_HOME"] == "/base/mine"


def test_a_benchmark_cannot_move_what_others_share(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"suite\.yaml:1:\d+: b\.dirs\.venv: 'venv' cannot be moved for a single benchmark"
    ):
        World(tmp_path, "b: {definition: x, dirs: {venv: /v}}").plan()


# --- names -----------------------------------------------------------------------------------------------------------


def arguments(world: World) -> tuple[str, ...]:
    (step, *_) = world.plan().steps
    return tuple(step.config["argv"])


def test_the_page_has_one_row_for_every_placeholder(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "suite-language.md").read_text()
    table = page.partition("## Placeholders")[2].partition("\n##")[0]
    rows = re.findall(r"^\| `(?:\{(\w+)|(\w+)\()[^|]*\| [^|]+ \| `[^`|]+` \|$", table, re.MULTILINE)
    world = World(tmp_path, "b: {definition: x}")
    names = names_for(benchmark_on(node(), world.ready()[0], world.where))
    functions = {"auto", "auto_batch", "expr"}
    assert sorted(name or function for name, function in rows) == sorted(
        {name for name in names if not name.startswith("_")} | functions
    )


def test_every_placeholder_has_its_value(tmp_path: Path) -> None:
    known = (
        "arch device_name ccl cpu_count gpu_count cpu_per_gpu n_worker milabench_base milabench_venv milabench_code "
    )
    known += "milabench_extra milabench_data milabench_runs milabench_cache milabench_name benchmark_folder run_name step_dir"
    words = json.dumps([f"{{{name}}}" for name in known.split()])
    assert arguments(World(tmp_path, f"b: {{definition: x, argv: {words}}}")) == (
        *("cuda", "cuda", "nccl", "16", "2", "8", "8", "/base", "/base/venv/b", "/base/code", "/base/extra/b"),
        *("/base/data", "/base/runs", "/base/cache", "b", "/suite/b", "r", "@{step_dir}"),
    )


def test_rocm_devices_are_called_cuda_by_programs(tmp_path: Path) -> None:
    text = "b: {definition: x, argv: ['{arch} {device_name} {ccl}']}"
    assert arguments(World(tmp_path, text, node(arch="rocm"), arch="rocm")) == ("rocm cuda rccl",)


def test_any_key_of_the_system_is_a_name(tmp_path: Path) -> None:
    text = """
system: {rack: r7, gpu: {pool: big}, nodes: [{name: one, ip: 10.0.0.3, zone: z}]}
b: {definition: x, argv: ["{rack} {system[rack]} {nodes[0][ip]} {system[nodes][0][zone]} {gpu[pool]} {gpu[capacity]}"]}
"""
    assert arguments(World(tmp_path, text)) == ("r7 r7 10.0.0.3 z big 1000 MiB",)


@pytest.mark.parametrize(
    ("cpu", "expected"),
    [
        ("{}", "16 8 8 8"),
        ("{auto: 1}", "16 8 8 8"),
        ("{enabled: true, max: 4}", "16 8 4 4"),
        ("{auto: true, total_count: 6, reserved_cores: 2, min: 3}", "4 2 3 3"),
        ("{auto: true, n_workers: 5}", "16 8 5 5"),
        ("{total_count: 1, cpu_min: 1}", "1 1 1 8"),
    ],
)
def test_cpu_sizing(tmp_path: Path, cpu: str, expected: str) -> None:
    text = f"""
system: {{options: {{cpu: {cpu}}}}}
b: {{definition: x, argv: ["{{cpu_count}} {{cpu_per_gpu}} {{n_worker}} auto({{n_worker}}, 8)"]}}
"""
    assert arguments(World(tmp_path, text)) == (expected,)


def test_a_placeholder_that_cannot_be_resolved_is_an_error_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"suite\.yaml:1:\d+: b\.argv\.0: .*Did you mean 'gpu_count'"):
        World(tmp_path, "b: {definition: x, argv: ['{gpu_cuont}']}").plan()


# --- environment -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arch", "variable", "value"),
    [
        ("cuda", "CUDA_VISIBLE_DEVICES", "0,1"),
        ("rocm", "ROCR_VISIBLE_DEVICES", "0,1"),
        ("xpu", "ONEAPI_DEVICE_SELECTOR", "level_zero:0,1"),
        ("hpu", "HABANA_VISIBLE_MODULES", "0,1"),
    ],
)
def test_each_vendor_has_its_variable_for_visible_devices(
    tmp_path: Path, arch: Arch, variable: str, value: str
) -> None:
    text = "b: {definition: x, plan: {method: njobs}}"
    (step,) = World(tmp_path, text, node(arch=arch), arch=arch).plan().steps
    assert step.env[variable] == value
    assert step.env["MILABENCH_DEVICES_HELD"] == "one-0,one-1"


def test_on_a_processor_no_devices_are_hidden(tmp_path: Path) -> None:
    (step,) = World(tmp_path, "b: {definition: x}", node(count=1, arch="cpu"), arch="cpu").plan().steps
    assert not [name for name in step.env if "VISIBLE" in name or name.startswith("CUDA")]


@pytest.mark.parametrize(("cpus", "count", "threads"), [(16, 2, "8"), (16, 1, "16"), (3, 8, "1"), (64, 8, "8")])
def test_processes_of_a_node_share_its_threads(tmp_path: Path, cpus: int, count: int, threads: str) -> None:
    plan = World(tmp_path, "b: {definition: x}", node(count=count, cpus=cpus)).plan()
    assert {step.env["OMP_NUM_THREADS"] for step in plan.steps} == {threads}


def test_the_suite_has_the_last_word_on_variables(tmp_path: Path) -> None:
    text = "b: {definition: x, env: {OMP_NUM_THREADS: 3, A: '{milabench_data}/a'}}"
    (step,) = World(tmp_path, text, node(count=1)).plan(FETCHED).steps
    assert (step.env["OMP_NUM_THREADS"], step.env["A"]) == ("3", "/base/data/a")


def test_values_known_only_at_the_start_stand_as_names(tmp_path: Path) -> None:
    (step,) = World(tmp_path, "b: {definition: x}", node(count=1)).plan().steps
    assert (step.env["MILABENCH_SINK"], step.env["MILABENCH_BENCH_CONFIG"]) == ("@sink", "@config")


def test_a_secret_is_told_by_its_name_only(tmp_path: Path) -> None:
    text = "b: {definition: x, env: {HF_TOKEN: swordfish, MY_API_KEY: swordfish, TOKENIZERS_PARALLELISM: 'on'}}"
    plan = World(tmp_path, text, node(count=1)).plan()
    (step,) = plan.steps
    assert step.secret_env == ("HF_TOKEN", "MY_API_KEY")
    assert step.env["HF_TOKEN"] == "swordfish"
    other = World(tmp_path, text.replace("swordfish", "marlin"), node(count=1)).plan()
    assert other.hash == plan.hash
    assert "swordfish" not in json.dumps(plan.to_json()) + plan_text(plan, is_full=True)
    assert plan.to_json()["steps"][0]["env"]["TOKENIZERS_PARALLELISM"] == "on"


@pytest.mark.parametrize(
    ("cwd", "expected"),
    [
        ("step_dir", "@{step_dir}"),
        ("data", "/base/data/b"),
        ("source", "/base/code/r-000000000000"),
        ("definition", "/suite/b"),
    ],
)
def test_the_working_folder_is_what_the_benchfile_says(tmp_path: Path, cwd: str, expected: str) -> None:
    (step,) = World(tmp_path, "b: {definition: x}", node(count=1)).plan(replace(FETCHED, cwd=cwd)).steps
    assert step.cwd == expected


def test_the_benchmark_s_container_goes_before_the_system_s(tmp_path: Path) -> None:
    text = "system: {docker_image: theirs}\na: {definition: x, docker_image: mine}\nb: {definition: x}"
    plan = World(tmp_path, text, node(count=1)).plan()
    assert {step.bench: step.container for step in plan.steps} == {"a": "mine", "b": "theirs"}
    assert "in the container mine" in plan_text(plan)


def test_limits_are_taken_as_written(tmp_path: Path) -> None:
    (step,) = World(tmp_path, "b: {definition: x, max_duration: 5, max_silence: 2}", node(count=1)).plan().steps
    assert (step.timeout_s, step.max_silence_s) == (5, 2)


# --- skips and order -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ("num_machines: 3", "needs 3 machines, the system has 1"),
        ("requires_capabilities: [\"gpu['count'] > 2\"]", "requires gpu['count'] > 2"),
        ("requires_capabilities: ['true', \"len(nodes) >= 2\", 'false']", "requires len(nodes) >= 2"),
        (
            "requires_capabilities: [\"system['gpu']['memory_MiB'] > 5000\"]",
            "requires system['gpu']['memory_MiB'] > 5000",
        ),
    ],
)
def test_what_cannot_run_here_is_skipped_with_the_reason(tmp_path: Path, keys: str, why: str) -> None:
    plan = World(tmp_path, f"b: {{definition: x, {keys}}}\nfine: {{definition: x}}").plan()
    assert [(skip.bench, skip.why) for skip in plan.skipped] == [("b", why)]
    assert {step.bench for step in plan.steps} == {"fine"}


def test_a_missing_program_skips_what_requires_it_unless_a_container_may_have_it(tmp_path: Path) -> None:
    suite = """
    b: {command: [fio], requires_programs: [sh, fio, xhpl]}
    inside: {command: [fio], requires_programs: [fio], docker_image: image}
    fine: {command: [sh], requires_programs: [sh]}
    """
    plan = World(tmp_path, suite, missing_programs={"b": "fio", "inside": "fio"}).plan()
    assert [(skip.bench, skip.why) for skip in plan.skipped] == [
        ("b", "requires the program fio, which is not on the PATH")
    ]
    assert {step.bench for step in plan.steps} == {"inside", "fine"}


def test_what_is_not_fetched_is_skipped(tmp_path: Path) -> None:
    plan = World(tmp_path, "b: {definition: x}").plan(None)
    assert [(skip.bench, skip.why) for skip in plan.skipped] == [("b", "not fetched")]


def test_a_machine_without_an_accelerator_is_a_reason(tmp_path: Path) -> None:
    plan = World(tmp_path, "b: {definition: x}", node(count=0)).plan()
    assert [(skip.bench, skip.why) for skip in plan.skipped] == [("b", "no accelerator on one")]


MANY = "\n".join(f"b{number}: {{definition: x}}" for number in range(8))


def test_each_replicate_block_has_every_benchmark_in_an_order_of_its_own(tmp_path: Path) -> None:
    plan = World(tmp_path, MANY, node(count=1), repeats=3, seed=1).plan()
    order = [step.bench for step in plan.steps]
    blocks = [order[start : start + 8] for start in (0, 8, 16)]
    assert all(sorted(block) == sorted(blocks[0]) for block in blocks)
    assert len({tuple(block) for block in blocks}) == 3
    assert [step.repeat for step in plan.steps] == [0] * 8 + [1] * 8 + [2] * 8


def test_the_seed_decides_the_order_and_nothing_else(tmp_path: Path) -> None:
    plans = [World(tmp_path, MANY, node(count=1), seed=seed).plan() for seed in (1, 1, 2)]
    assert plans[0] == plans[1]
    assert ids(plans[0]) != ids(plans[2])
    assert sorted(step.hash for step in plans[0].steps) == sorted(step.hash for step in plans[2].steps)


def test_repeats_are_groups_of_their_own(tmp_path: Path) -> None:
    plan = World(tmp_path, "b: {definition: x}", repeats=2).plan()
    assert ids(plan) == ["b.D0.R0", "b.D1.R0", "b.D0.R1", "b.D1.R1"]
    assert len(plan.groups()) == 2


# --- sizing ----------------------------------------------------------------------------------------------------------

SIZED = "b: {definition: x, argv: {--batch-size: auto_batch(64)}}"
SEEN = {"b": (Observation(batch_size=10, memory_mib=200), Observation(batch_size=20, memory_mib=300))}


def test_without_sizing_the_benchmark_has_its_own_batch_size(tmp_path: Path) -> None:
    (step,) = World(tmp_path, SIZED, node(count=1)).plan().steps
    assert (step.argv[-2:], step.config["batch_size"]) == (("--batch-size", "64"), 64)


def test_the_memory_of_the_node_s_smallest_device_decides(tmp_path: Path) -> None:
    devices = (*node(count=1, memory=1000).devices, replace(node(memory=600).devices[1]))
    sizer = Sizer(options=SizerOptions(auto=True), observations=SEEN)
    world = World(tmp_path, SIZED, replace(node(), devices=devices), sizer=sizer)
    assert {step.config["batch_size"] for step in world.plan().steps} == {50}
    assert sizing_notes(world.ready(), world.where) == ()


def test_a_benchmark_without_observations_keeps_its_own_and_says_so(tmp_path: Path) -> None:
    sizer = Sizer(options=SizerOptions(auto=True), source="config/scaling/x9.yaml")
    world = World(tmp_path, SIZED + "\nfixed: {definition: x, argv: {--batch-size: 3}}", node(count=1), sizer=sizer)
    assert world.plan().steps[0].config.get("batch_size", 64) == 64
    assert sizing_notes(world.ready(), world.where) == (
        "b: keeps its own batch size: config/scaling/x9.yaml has no observation of this benchmark",
    )


def test_preparation_does_not_depend_on_the_batch_size(tmp_path: Path) -> None:
    made = []
    for options in (SizerOptions(), SizerOptions(batch_size=3)):
        world = World(tmp_path, SIZED, node(count=1), sizer=Sizer(options=options))
        step = prepare_step(
            benchmark_on(world.where.facts.main, world.ready(Benchmark(script="main.py"))[0], world.where)
        )
        assert step is not None
        made.append(step.argv[2:])
    assert made == [("--batch-size", "64")] * 2


def test_a_job_is_not_placed_on_several_slices_of_which_a_process_can_use_one(tmp_path: Path) -> None:
    slices = tuple(replace(device, details={"slice_of": "GPU-1"}) for device in node().devices)
    text = "a: {definition: x}\nb: {definition: x, plan: {method: multigpu}}"
    plan = World(tmp_path, text, replace(node(), devices=slices)).plan()
    assert [step.id for step in plan.steps] == ["a.D0", "a.D1"]
    assert [(skip.bench, skip.why) for skip in plan.skipped] == [("b", "a job cannot use several MIG slices: one")]
