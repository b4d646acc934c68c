"""Turns selected benchmarks and facts into the steps of a run: commands, environment, placement, order, time limits."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from orchestrator.bench.api import Benchmark
from orchestrator.config.expr import evaluate
from orchestrator.config.schema import BenchmarkConfig, SystemConfig
from orchestrator.errors import ConfigError
from orchestrator.facts.model import Node, SystemFacts
from orchestrator.plan.argv import render_argv, render_env
from orchestrator.plan.dirs import Dirs
from orchestrator.plan.environ import placed_environment, program_environment, secret_names
from orchestrator.plan.model import Plan, SkippedBench, Step
from orchestrator.plan.placement import COLLECTIVES, Placement, placements, why_not
from orchestrator.plan.profile import Profile

RENDEZVOUS_PORT = 29400


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A selected benchmark with what its folder declares; `declared` is None while its definition is not fetched."""

    config: BenchmarkConfig
    folder: str
    declared: Benchmark | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """Everything a plan depends on that is not a benchmark."""

    facts: SystemFacts
    system: SystemConfig
    dirs: Dirs
    profile: Profile
    run_name: str = ""
    repeats: int | None = None
    seed: int = 0
    current_env: str | None = None
    launcher: Mapping[str, Any] = field(default_factory=dict)


def plan_run(benches: Sequence[Ready], where: Circumstances) -> Plan:
    """The steps of a run.

    Benchmarks are shuffled inside each replicate block by the seed (METHODOLOGY 1.0), so that a slow drift of the machine does
    not favour whatever stands first. Raises ConfigError for a placeholder that cannot be resolved.
    """
    skipped = tuple(
        SkippedBench(bench=bench.config.name, why=why)
        for bench in benches
        if (why := _why_skipped(bench, where)) is not None
    )
    left_out = {skip.bench for skip in skipped}
    runnable = [bench for bench in benches if bench.config.name not in left_out]
    repeats = where.repeats if where.repeats is not None else where.profile.processes
    steps: list[Step] = []
    for repeat in range(repeats):
        for bench in sorted(runnable, key=lambda ready: _shuffle_key(where.seed, repeat, ready.config.name)):
            steps += bench_steps(bench, where, repeat=repeat if repeats > 1 else None)
    return Plan(phase="run", steps=tuple(steps), skipped=skipped, system=describe(where.facts))


def _shuffle_key(seed: int, block: int, name: str) -> bytes:
    return hashlib.sha256(f"{seed}:{block}:{name}".encode()).digest()


def _why_skipped(bench: Ready, where: Circumstances) -> str | None:
    if bench.declared is None:
        return "not fetched"
    if (why := why_not(bench.config, where.facts)) is not None:
        return why
    return unmet_requirement(bench.config, names_for(bench.config, bench.folder, where, where.facts.main))


def unmet_requirement(bench: BenchmarkConfig, names: Mapping[str, Any]) -> str | None:
    """The first of `requires_capabilities` that does not hold, or None."""
    for expression in bench.requires_capabilities:
        where = bench.origin.where("requires_capabilities")
        if not evaluate(expression, names, where=where, path=f"{bench.name}.requires_capabilities"):
            return f"requires {expression}"
    return None


def bench_steps(bench: Ready, where: Circumstances, *, repeat: int | None) -> Iterator[Step]:
    """One replicate of one benchmark: a step for each process that we start."""
    assert bench.declared is not None
    name = bench.config.name
    places = placements(bench.config, where.facts)
    group = name if repeat is None else f"{name}.R{repeat}"
    for place in places:
        suffix = [place.tag] if place.tag else []
        suffix += [f"R{repeat}"] if repeat is not None else []
        suffix += [f"node{place.node_rank}"] if len(where.facts.nodes) > 1 else []
        siblings = sum(other.node is place.node for other in places)
        yield _step(bench, where, place, group=group, suffix=suffix, repeat=repeat or 0, siblings=siblings)


def _step(
    bench: Ready, where: Circumstances, place: Placement, *, group: str, suffix: list[str], repeat: int, siblings: int
) -> Step:
    config, declared = bench.config, bench.declared
    assert declared is not None
    names = names_for(config, bench.folder, where, place.node)
    venv = venv_of(config, where)
    source = source_of(bench, where.dirs)
    arguments = render_argv(config, names)
    env = {
        **program_environment(config, declared, dirs=where.dirs, source=source, venv=venv),
        **placed_environment(place, arch=where.facts.arch, threads=max(1, place.node.cpu_count // siblings)),
    }
    env.update(render_env(config, names))
    return Step(
        id=".".join([config.name, *suffix]),
        bench=config.name,
        phase="run",
        argv=(*_launch(bench, where, place, venv, source), *arguments),
        tag=place.tag,
        repeat=repeat,
        group=group,
        node=place.node.name,
        devices=tuple(device.index for device in place.devices),
        env=env,
        secret_env=secret_names(env),
        cwd=working_folder(bench, where.dirs, source),
        venv=venv,
        timeout_s=config.max_duration,
        max_silence_s=config.max_silence,
        config=bench_config(config, declared, where.profile, arguments),
    )


def preparation_of(
    bench: Ready, where: Circumstances
) -> tuple[tuple[str, ...], dict[str, str], str, str, dict[str, Any]]:
    """What a benchmark's prepare.py is given: the run's arguments, environment, working folder, venv and configuration."""
    assert bench.declared is not None
    names = names_for(bench.config, bench.folder, where, where.facts.main)
    venv = venv_of(bench.config, where)
    source = source_of(bench, where.dirs)
    arguments = render_argv(bench.config, names)
    env = program_environment(bench.config, bench.declared, dirs=where.dirs, source=source, venv=venv)
    env.update(render_env(bench.config, names))
    config = bench_config(bench.config, bench.declared, where.profile, arguments)
    return arguments, env, working_folder(bench, where.dirs, source), venv, config


def _launch(bench: Ready, where: Circumstances, place: Placement, venv: str, source: str) -> tuple[str, ...]:
    """Interpreter, launcher, our runner and the program; the program's own arguments follow."""
    declared = bench.declared
    assert declared is not None
    python = str(PurePath(venv, "bin", "python"))
    program = _program(declared, bench.folder, source)
    if declared.voirfile is not None:
        paths = ("--path", source) if declared.module is not None and declared.source is not None else ()
        program = (
            "-m",
            "benchmate.run",
            "--voirfile",
            str(PurePath(bench.folder, declared.voirfile)),
            *paths,
            *program,
        )
    method, launcher = bench.config.plan.method, bench.config.plan.launcher
    if launcher is None:
        launcher = "torchrun" if method in ("multigpu", "multinode") else "none"
    match launcher:
        case "none":
            return (python, *program)
        case "torchrun":
            return (python, *_torchrun(bench.config, where, place), *program)
        case other:
            raise ConfigError(f"{bench.config.name}.plan.launcher: unknown launcher '{other}'; known: none, torchrun")


def _torchrun(config: BenchmarkConfig, where: Circumstances, place: Placement) -> tuple[str, ...]:
    ranks = f"--nproc-per-node={max(1, len(place.devices))}"
    if config.num_machines == 1:
        return ("-m", "torch.distributed.run", "--standalone", ranks)
    port = where.system.options.get("torchrun", {}).get("port", RENDEZVOUS_PORT)
    return (
        "-m",
        "torch.distributed.run",
        f"--nnodes={config.num_machines}",
        f"--node-rank={place.node_rank}",
        ranks,
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={where.facts.main.ip}:{port}",
        f"--rdzv-id={config.name}",
    )


def _program(declared: Benchmark, folder: str, source: str) -> tuple[str, ...]:
    if declared.module is not None:
        return ("-m", declared.module)
    assert declared.script is not None
    return (str(PurePath(source if declared.source is not None else folder, declared.script)),)


def source_of(bench: Ready, dirs: Dirs) -> str:
    """The folder of the fetched program, or the benchmark's own where nothing is fetched."""
    if bench.declared is None or bench.declared.source is None:
        return bench.folder
    return str(PurePath(dirs.code, bench.declared.source.folder))


def venv_of(config: BenchmarkConfig, where: Circumstances) -> str:
    """The environment that a benchmark's programs run in."""
    if where.current_env is not None:
        return where.current_env
    return str(PurePath(where.dirs.venv, config.install_group))


def working_folder(bench: Ready, dirs: Dirs, source: str) -> str:
    """Where the program is started; `data` gives each benchmark a folder of its own to write into."""
    assert bench.declared is not None
    match bench.declared.cwd:
        case "source":
            return source
        case "definition":
            return bench.folder
        case _:
            return str(PurePath(dirs.data, bench.config.name))


def bench_config(
    config: BenchmarkConfig, declared: Benchmark, profile: Profile, arguments: Sequence[str]
) -> dict[str, Any]:
    """What the process finds in the file at MILABENCH_BENCH_CONFIG."""
    return {
        "name": config.name,
        "group": config.group,
        "install_group": config.install_group,
        "tags": list(config.tags),
        "weight": config.weight,
        "argv": list(arguments),
        "options": {**declared.options, **config.options},
        "voir": dict(config.voir),
        "validation": dict(config.validation),
        "plan": {"method": config.plan.method, "n": config.plan.n},
        "measure": {
            "profile": profile.name,
            "warmup_steps": profile.warmup_steps,
            "warmup_s": profile.warmup_s,
            "window_steps": profile.window_steps,
            "window_s": profile.window_s,
        },
    }


def names_for(config: BenchmarkConfig, folder: str, where: Circumstances, node: Node) -> dict[str, Any]:
    """The values of the placeholders that a benchmark's arguments may use (SUITE_LANGUAGE, Placeholders)."""
    sizing = where.system.options.get("cpu", {})
    devices = max(1, len(node.devices))
    available = max(1, int(sizing.get("total_count") or node.cpu_count) - int(sizing.get("reserved_cores", 0)))
    per_device = max(1, available // devices)
    workers = sizing.get("n_workers")
    if workers is None:
        workers = min(max(per_device, int(sizing.get("cpu_min", 2))), int(sizing.get("cpu_max", 16)))
    dirs = where.dirs
    return {
        "arch": where.facts.arch,
        "device_name": where.facts.arch if where.facts.arch != "rocm" else "cuda",
        "ccl": COLLECTIVES[where.facts.arch],
        "cpu_count": available,
        "gpu_count": devices,
        "cpu_per_gpu": per_device,
        "n_worker": int(workers),
        "milabench_base": dirs.base,
        "milabench_venv": venv_of(config, where),
        "milabench_code": dirs.code,
        "milabench_extra": str(PurePath(dirs.extra, config.name)),
        "milabench_data": dirs.data,
        "milabench_runs": dirs.runs,
        "milabench_cache": dirs.cache,
        "milabench_name": config.name,
        "benchmark_folder": folder,
        "run_name": where.run_name,
        "system": {"arch": where.facts.arch, **where.system.raw},
        "nodes": [
            {"name": each.name, "ip": each.ip, "port": each.port, "user": each.user} for each in where.facts.nodes
        ],
        "_auto_cpu": bool(sizing.get("enabled", False)),
    }


def describe(facts: SystemFacts) -> dict[str, Any]:
    """The system as plans and manifests carry it."""
    return {
        "arch": facts.arch,
        "nodes": [
            {
                "name": node.name,
                "ip": node.ip,
                "hostname": node.hostname,
                "cpu": {"model": node.cpu_model, "count": node.cpu_count},
                "memory_MiB": node.memory_mib,
                "os": node.os,
                "kernel": node.kernel,
                "python": node.python,
                "devices": [
                    {"index": d.index, "uuid": d.uuid, "name": d.name, "arch": d.arch, "memory_MiB": d.memory_mib}
                    for d in node.devices
                ],
                "details": dict(node.details),
            }
            for node in facts.nodes
        ],
    }
