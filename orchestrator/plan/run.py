"""Turns selected benchmarks and facts into the steps of a run: commands, environment, placement, order, time limits."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any, Literal

from orchestrator.bench.api import Benchmark
from orchestrator.config.expr import evaluate
from orchestrator.config.schema import BenchmarkConfig, SystemConfig
from orchestrator.errors import ConfigError, Problem
from orchestrator.facts.model import Node, SystemFacts
from orchestrator.plan.argv import AUTO_BATCH, auto_batches, render_argv, render_env, render_text
from orchestrator.plan.dirs import Dirs
from orchestrator.plan.environ import placed_environment, program_environment, secret_names
from orchestrator.plan.launch import launcher_words
from orchestrator.plan.model import Plan, SkippedBench, Step
from orchestrator.plan.placement import COLLECTIVES, Placement, placements, why_not
from orchestrator.plan.profile import Profile
from orchestrator.plan.sizing import Sizer
from orchestrator.plan.together import barrier, monitor_command

Role = Literal["", "server", "client"]
# The program of a benchmark that is only a `command`: nothing of ours runs in it, and nothing is prepared for it.
COMMAND = Benchmark(voirfile=None, prepare=None)


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
    current_python: str | None = None
    sizer: Sizer = field(default_factory=Sizer)


def plan_run(benches: Sequence[Ready], where: Circumstances) -> Plan:
    """The steps of a run.

    Benchmarks are shuffled inside each replicate block by the seed (docs/methodology.md, 1.0), so that a slow drift of the
    machine does not favour whatever stands first. Raises ConfigError for a placeholder that cannot be resolved.
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
    if not bench.config.requires_capabilities:
        return None
    return unmet_requirement(bench.config, names_for(bench.config, bench.folder, where, where.facts.main))


def unmet_requirement(bench: BenchmarkConfig, names: Mapping[str, Any]) -> str | None:
    """The first of `requires_capabilities` that does not hold, or None."""
    for expression in bench.requires_capabilities:
        where = bench.origin.where("requires_capabilities")
        if not evaluate(expression, names, where=where, path=f"{bench.name}.requires_capabilities"):
            return f"requires {expression}"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """One process of a benchmark: its placement, and whether it is the server or the client of a pair."""

    place: Placement
    role: Role = ""

    @property
    def tag(self) -> str:
        return ".".join(part for part in (self.place.tag, self.role) if part)


def _parts(config: BenchmarkConfig, facts: SystemFacts) -> tuple[_Part, ...]:
    """The processes of one replicate. Of several machines, the server has the first and the client the last."""
    places = placements(config, facts)
    if config.server is None and config.client is None:
        return tuple(_Part(place=place) for place in places)
    first = [place for place in places if place.node_rank == 0]
    last = [place for place in places if place.node_rank == config.num_machines - 1]
    return tuple(
        part
        for server, client in zip(first, last, strict=False)
        for part in (_Part(place=server, role="server"), _Part(place=client, role="client"))
    )


def bench_steps(bench: Ready, where: Circumstances, *, repeat: int | None) -> Iterator[Step]:
    """One replicate of one benchmark: a step for each process that we start, all in one group.

    A server and its client see the same devices; which server a client has to wait for stands in its configuration.
    """
    parts = _parts(bench.config, where.facts)
    group = bench.config.name if repeat is None else f"{bench.config.name}.R{repeat}"
    server = None
    for part in parts:
        siblings = sum(other.place.node is part.place.node for other in parts)
        step = _step(bench, where, part, group=group, repeat=repeat, siblings=siblings, server=server)
        server = step if part.role == "server" else None
        yield step


def _step(
    bench: Ready,
    where: Circumstances,
    part: _Part,
    *,
    group: str,
    repeat: int | None,
    siblings: int,
    server: Step | None,
) -> Step:
    config, declared, place = bench.config, bench.declared, part.place
    assert declared is not None
    names = names_for(config, bench.folder, where, place.node)
    venv = venv_of(config, where)
    source = source_of(bench, where.dirs)
    dirs = dirs_of(config, where)
    arguments = _arguments(config, declared, part.role, names)
    env = {
        **program_environment(config, declared, dirs=dirs, source=source, venv=venv),
        **placed_environment(place, arch=where.facts.arch, threads=max(1, place.node.cpu_count // siblings)),
    }
    env.update(render_env(config, names))
    suffix = [part.tag] if part.tag else []
    suffix += [f"R{repeat}"] if repeat is not None else []
    suffix += [f"node{place.node_rank}"] if len(where.facts.nodes) > 1 else []
    options = where.system.options
    made = bench_config(config, declared, where.profile, arguments)
    made["measure"] |= barrier(config, siblings, options)
    return Step(
        id=".".join([config.name, *suffix]),
        bench=config.name,
        phase="run",
        argv=(*_launch(bench, where, part, names, venv, source), *arguments),
        tag=part.tag,
        repeat=repeat or 0,
        group=group,
        node=place.node.name,
        devices=tuple(device.index for device in place.devices),
        env=env,
        secret_env=secret_names(env),
        cwd=working_folder(bench, dirs, source),
        venv=venv,
        container=config.docker_image or where.system.docker_image,
        timeout_s=config.max_duration,
        max_silence_s=config.max_silence,
        config={
            **made,
            **_sizes(config, part.role, names),
            **_pairing(config, part, server, names),
        },
        # What a command says is read from its log lines afterwards; a server is there for its client.
        needs_data=part.role != "server" and not config.command,
        monitor=monitor_command(
            venv, where.facts.arch, options, python=where.current_python, is_locked=where.current_env is None
        ),
    )


def _argument_keys(role: Role) -> tuple[str, ...]:
    """Where the arguments of a process stand: a server's and a client's own, then those that both share."""
    return (f"{role}.argv", "argv") if role else ("argv",)


def _arguments(config: BenchmarkConfig, declared: Benchmark, role: Role, names: Mapping[str, Any]) -> tuple[str, ...]:
    flags = frozenset(declared.flags)
    return tuple(
        word for key in _argument_keys(role) for word in render_argv(config, names, key=key, declared_flags=flags)
    )


def _sizes(config: BenchmarkConfig, role: Role, names: Mapping[str, Any]) -> dict[str, Any]:
    """The batch size, when there is one that the sizer may choose: what it is observed for later."""
    sizes = auto_batches(config, names, _argument_keys(role))
    return {"batch_size": sizes[0]} if len(sizes) == 1 else {}


def _pairing(config: BenchmarkConfig, part: _Part, server: Step | None, names: Mapping[str, Any]) -> dict[str, Any]:
    """What a server and a client need to find each other; `ready` is the port or pattern for which the client waits."""
    if not part.role:
        return {}
    ready = config.server.ready if config.server is not None else ""
    ready = render_text(ready, names, where=config.origin.where("server.ready"), path=f"{config.name}.server.ready")
    about: dict[str, Any] = {"ready": ready}
    if server is not None:
        about |= {"step": server.id, "node": server.node}
    return {"role": part.role, "server": about}


def preparation_of(
    bench: Ready, where: Circumstances
) -> tuple[tuple[str, ...], dict[str, str], str, str, dict[str, Any]]:
    """What a benchmark's prepare.py is given: the run's arguments, environment, working folder, venv and configuration."""
    assert bench.declared is not None
    names = names_for(bench.config, bench.folder, where, where.facts.main)
    # Data does not depend on the batch size, so one preparation does for every size.
    names.pop(AUTO_BATCH, None)
    venv = venv_of(bench.config, where)
    source = source_of(bench, where.dirs)
    arguments = _arguments(bench.config, bench.declared, "", names)
    dirs = dirs_of(bench.config, where)
    env = program_environment(bench.config, bench.declared, dirs=dirs, source=source, venv=venv)
    env.update(render_env(bench.config, names))
    config = bench_config(bench.config, bench.declared, where.profile, arguments)
    return arguments, env, working_folder(bench, dirs, source), venv, config


def _launch(
    bench: Ready, where: Circumstances, part: _Part, names: Mapping[str, Any], venv: str, source: str
) -> tuple[str, ...]:
    """Interpreter, launcher, our runner and the program; the program's own arguments follow."""
    config, declared = bench.config, bench.declared
    assert declared is not None
    if config.command:
        words = render_argv(config, names, key="command")
        # Arguments follow the shell's own name, as the parameters of its line.
        return ("/bin/sh", "-c", " ".join(words), config.name) if config.shell else words
    python = where.current_python or f"{venv}/bin/python"
    program = _program(declared, bench.folder, source)
    if declared.voirfile is not None and part.role != "server":
        paths = ("--path", source) if declared.module is not None and declared.source is not None else ()
        program = (
            "-m",
            "benchmate.run",
            "--voirfile",
            str(PurePath(bench.folder, declared.voirfile)),
            *paths,
            *program,
        )
    if part.role == "client":
        return (python, *program)
    return (python, *launcher_words(config, part.place, where.facts, where.system.options, names), *program)


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
    """The environment that a benchmark's programs run in; none, empty, for a command without a benchfile."""
    if config.definition is None:
        return ""
    if where.current_env is not None:
        return where.current_env
    return f"{where.dirs.venv}/{config.install_group}"


def dirs_of(config: BenchmarkConfig, where: Circumstances) -> Dirs:
    """The folders as a benchmark sees them. Raises ConfigError for one that only the system can move."""
    moved = {}
    for name, folder in config.dirs.items():
        if name not in ("data", "cache", "extra"):
            what = f"'{name}' cannot be moved for one benchmark"
            way_out = "move data, cache or extra; system.dirs moves any folder for all"
            place = config.origin.where(f"dirs.{name}")
            raise ConfigError(Problem(where=place, path=f"{config.name}.dirs.{name}", what=what, way_out=way_out))
        moved[name] = str(PurePath(where.dirs.base, folder))
    return replace(where.dirs, **moved)


def working_folder(bench: Ready, dirs: Dirs, source: str) -> str:
    """Where the program is started; `data` gives each benchmark a folder of its own to write into."""
    assert bench.declared is not None
    match bench.declared.cwd:
        case "source":
            return source
        case "definition":
            return bench.folder
        case _:
            return f"{dirs.data}/{bench.config.name}"


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
    """The values of the placeholders that a benchmark's arguments may use (docs/suite-language.md, Placeholders)."""
    sizing = where.system.options.get("cpu", {})
    devices = max(1, len(node.devices))
    available = max(1, int(sizing.get("total_count") or node.cpu_count) - int(sizing.get("reserved_cores", 0)))
    per_device = max(1, available // devices)
    workers = sizing.get("n_workers")
    if workers is None:
        least, most = (sizing.get(key, sizing.get(f"cpu_{key}", otherwise)) for key, otherwise in _WORKERS)
        workers = min(max(per_device, int(least)), int(most))
    dirs = dirs_of(config, where)
    system = system_names(where, node)
    names = {
        **{key: value for key, value in system.items() if not key.startswith("_")},
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
        "milabench_extra": f"{dirs.extra}/{config.name}",
        "milabench_data": dirs.data,
        "milabench_runs": dirs.runs,
        "milabench_cache": dirs.cache,
        "milabench_name": config.name,
        "benchmark_folder": folder,
        "run_name": where.run_name,
        "system": system,
        "_auto_cpu": bool(sizing.get("auto", sizing.get("enabled", False))),
    }
    if where.sizer.options.asks:
        names[AUTO_BATCH] = lambda own: where.sizer.size(config.name, own, device_memory(node))
    return names


# Least and most loader workers, `system.options.cpu.min` and `.max`; milabench 1.3 also has cpu_min and cpu_max.
_WORKERS = (("min", 2), ("max", 16))


def device_memory(node: Node) -> int | None:
    """MiB of the smallest device of a node; None where it is not known."""
    return min((device.memory_mib for device in node.devices), default=0) or None


def system_names(where: Circumstances, node: Node) -> dict[str, Any]:
    """The system as placeholders see it: what the system file says, completed with what is known of the machines."""
    first = node.devices[0] if node.devices else None
    gpu = where.system.raw.get("gpu")
    return {
        **where.system.raw,
        "arch": where.facts.arch,
        "gpu": {
            "name": first.name if first is not None else "",
            "capacity": f"{device_memory(node) or 0} MiB",
            **(gpu if isinstance(gpu, Mapping) else {}),
            "count": len(node.devices),
            "memory_MiB": device_memory(node) or 0,
        },
        "nodes": [
            {
                **(where.system.nodes[rank].extra if rank < len(where.system.nodes) else {}),
                "name": each.name,
                "ip": each.ip,
                "hostname": each.hostname or each.ip,
                "port": each.port,
                "user": each.user,
                "main": each.main,
            }
            for rank, each in enumerate(where.facts.nodes)
        ],
    }


def sizing_notes(benches: Sequence[Ready], where: Circumstances) -> tuple[str, ...]:
    """What a person should know about batch sizes that stay as they are although sizing is asked for."""
    if not where.sizer.options.needs_observations:
        return ()
    memory = device_memory(where.facts.main)
    return tuple(
        why
        for bench in benches
        if bench.declared is not None
        and auto_batches(bench.config, names_for(bench.config, bench.folder, where, where.facts.main), _ALL_ARGUMENTS)
        and (why := where.sizer.why_unsized(bench.config.name, memory)) is not None
    )


_ALL_ARGUMENTS = ("argv", "server.argv", "client.argv", "command")


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
