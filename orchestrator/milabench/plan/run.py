"""Turns selected benchmarks and facts into the steps of a run: commands, environment, placement, order, time limits."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import PurePath
from typing import Any, Literal

from milabench.bench.api import Benchmark
from milabench.config.expr import evaluate
from milabench.config.schema import BenchmarkConfig
from milabench.errors import ConfigError, Problem
from milabench.facts.model import Device, Node, SystemFacts
from milabench.plan.argv import AUTO_BATCH, auto_batches, render_argv, render_env, render_text
from milabench.plan.container import container_of, containerize
from milabench.plan.context import PlanContext, ResolvedBenchmark, at_node, dirs_of, source_of, venv_of, working_folder
from milabench.plan.environ import placed_environment, program_environment, secret_names
from milabench.plan.group import barrier, monitor_command
from milabench.plan.launchers import FREE_PORT, launcher_of, launcher_words, network_environment, rank_environment
from milabench.plan.model import Plan, SkippedBench, Step
from milabench.plan.placeholders import names_for
from milabench.plan.placement import RANKS, Placement, placements, why_not
from milabench.plan.profile import Profile

Role = Literal["", "server", "client"]


def plan_run(benches: Sequence[ResolvedBenchmark], where: PlanContext) -> Plan:
    """The steps of a run.

    Benchmarks are shuffled inside each replicate block by the seed (docs/methodology.md, 1.0), so that a slow drift of the
    machine does not favour whatever stands first. A plan with more replicates begins with the one with fewer. Raises
    ConfigError for a placeholder that cannot be resolved.
    """
    skipped = tuple(
        SkippedBench(bench=bench.config.name, why=why)
        for bench in benches
        if (why := _why_skipped(bench, where)) is not None
    )
    left_out = {skip.bench for skip in skipped}
    runnable = [bench for bench in benches if bench.config.name not in left_out]
    times = {bench.config.name: where.replicates_of(bench.config.name) for bench in runnable}
    blocks = max(times.values(), default=0)
    steps: list[Step] = []
    for block in range(blocks):
        wanted = [bench for bench in runnable if times[bench.config.name] > block]
        for bench in sorted(wanted, key=lambda ready: shuffle_key(where.seed, block, ready.config.name)):
            steps += bench_steps(bench, where, repeat=block if blocks > 1 else None)
    return Plan(phase="run", steps=tuple(steps), skipped=skipped, system=describe(where.facts))


def shuffle_key(seed: int, block: int, name: str) -> bytes:
    """What to sort by for an order that only seed and block decide, the same on every machine."""
    return hashlib.sha256(f"{seed}:{block}:{name}".encode()).digest()


def _why_skipped(bench: ResolvedBenchmark, where: PlanContext) -> str | None:
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


def bench_steps(bench: ResolvedBenchmark, where: PlanContext, *, repeat: int | None) -> Iterator[Step]:
    """One replicate of one benchmark: a step for each process that we start, all in one group.

    A server and its client see the same devices; which server a client has to wait for stands in its configuration.
    """
    parts = _parts(bench.config, where.facts)
    group = bench.config.name if repeat is None else f"{bench.config.name}.R{repeat}"
    server = None
    for part in parts:
        siblings = sum(other.place.node is part.place.node for other in parts)
        step = _step(
            bench, where, part, group=group, repeat=repeat, siblings=siblings, instances=len(parts), server=server
        )
        server = step if part.role == "server" else None
        yield step


def _step(
    bench: ResolvedBenchmark,
    where: PlanContext,
    part: _Part,
    *,
    group: str,
    repeat: int | None,
    siblings: int,
    instances: int,
    server: Step | None,
) -> Step:
    bench, where = at_node(bench, where, part.place.node)
    config, declared, place = bench.config, bench.declared, part.place
    assert declared is not None
    names = names_for(config, bench.folder, where, place.node)
    venv = venv_of(config, where)
    source = source_of(bench, where.dirs)
    dirs = dirs_of(config, where)
    arguments = _arguments(config, declared, part.role, names)
    env = {
        **program_environment(config, declared, dirs=dirs, source=source, venv=venv),
        **placed_environment(
            place,
            arch=where.facts.arch,
            threads=max(1, place.node.cpu_count // siblings),
            visible=_visible(config, place),
        ),
        **rank_environment(config, place, where.facts, where.system.options),
        **network_environment(config, place, where.system),
    }
    env.update(render_env(config, names))
    suffix = [part.tag] if part.tag else []
    suffix += [f"R{repeat}"] if repeat is not None else []
    suffix += [f"node{place.node_rank}"] if len(where.facts.nodes) > 1 else []
    options = where.system.options
    made = bench_config(config, declared, where.profile, arguments)
    made["measure"] |= barrier(config, instances, options)
    if part.role == "server":
        made.pop("metrics", None)  # its client is what is measured
    step = Step(
        id=".".join([config.name, *suffix]),
        bench=config.name,
        phase="run",
        argv=(*_launch(bench, where, part, names, venv, source, env), *arguments),
        tag=part.tag,
        repeat=repeat or 0,
        group=group,
        node=place.node.name,
        devices=tuple(device.index for device in place.devices),
        env=env,
        secret_env=secret_names(env),
        cwd=working_folder(bench, dirs, source),
        venv=venv,
        timeout_s=config.max_duration + (_ready_s(config) if part.role == "server" else 0.0),
        # A server that nobody asks anything says nothing.
        max_silence_s=config.max_silence if part.role != "server" else None,
        config={
            **made,
            **_sizes(config, part.role, names),
            **_pairing(config, part, server, names),
        },
        # What a command says is read from its log lines afterwards; a server is there for its client.
        needs_data=part.role != "server" and not config.command,
        monitor=monitor_command(
            venv,
            where.facts.arch,
            options,
            python=where.current_python,
            is_locked=where.current_env is None,
            instruments=where.instruments if place.node.local else None,
        ),
    )
    return containerized(step, bench, where, _visible(config, place))


def _visible(config: BenchmarkConfig, place: Placement) -> Sequence[Device]:
    """The devices that a process sees: its own; a rank sees those of all ranks of its node, and picks by its number."""
    return place.node.devices if launcher_of(config) == RANKS else place.devices


def containerized(step: Step, bench: ResolvedBenchmark, where: PlanContext, devices: Sequence[Device]) -> Step:
    """The step in the container that suite or system name, with all folders of ours inside; as it is without one.

    `bench` and `where` have the paths of the step's node. Raises ConfigError for a container without an image.
    """
    container = container_of(bench.config, where.system)
    if container is None:
        return step
    dirs = dirs_of(bench.config, where)
    own = [dirs.base, dirs.venv, dirs.code, dirs.data, dirs.cache, dirs.extra]
    folders = [*own, bench.folder, *([where.current_env] if where.current_env is not None else [])]
    return containerize(step, container, where.facts.arch, devices, folders, dirs.cache)


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


def _ready_s(config: BenchmarkConfig) -> float:
    """How long a server may take until it is ready, in seconds: as long as its client, unless the suite says."""
    given = config.server.ready.timeout if config.server is not None else None
    return config.max_duration if given is None else given


def ready_condition(config: BenchmarkConfig, ready: str, part: _Part) -> dict[str, Any]:
    """What the agent waits for: a port when it is a number, or chosen at the start (`@port`), else a pattern.

    Raises ConfigError for what is neither.
    """
    timeout_s = _ready_s(config)
    if not ready:
        return {"timeout_s": timeout_s}
    where, path = config.origin.where("server.ready"), f"{config.name}.server.ready"
    if ready != FREE_PORT and not ready.isdecimal():
        try:
            re.compile(ready)
        except (re.error, RecursionError, OverflowError) as error:
            what = f"not a regular expression: {error}"
            raise ConfigError(Problem(where=where, path=path, what=what, way_out="")) from None
        return {"pattern": ready, "timeout_s": timeout_s}
    if ready != FREE_PORT and not 0 < int(ready) < 65_536:
        way_out = "a pattern of digits alone stands in parentheses"
        raise ConfigError(Problem(where=where, path=path, what=f"there is no port {ready}", way_out=way_out))
    ip = part.place.node.ip
    return {"port": ready, "hosts": list(dict.fromkeys(["127.0.0.1", *([ip] if ip else [])])), "timeout_s": timeout_s}


def _pairing(config: BenchmarkConfig, part: _Part, server: Step | None, names: Mapping[str, Any]) -> dict[str, Any]:
    """What a server and a client need to find each other; `ready` is the port or pattern for which the client waits."""
    if not part.role:
        return {}
    ready = config.server.ready.condition if config.server is not None else ""
    ready = render_text(ready, names, where=config.origin.where("server.ready"), path=f"{config.name}.server.ready")
    about: dict[str, Any] = {"ready": ready_condition(config, ready, part)}
    if server is not None:
        about |= {"step": server.id, "node": server.node}
    return {"role": part.role, "server": about}


def preparation_of(
    bench: ResolvedBenchmark, where: PlanContext, node: Node
) -> tuple[tuple[str, ...], dict[str, str], str, str, dict[str, Any]]:
    """What a benchmark's prepare.py is given: the run's arguments, environment, working folder, venv and configuration."""
    bench, where = at_node(bench, where, node)
    assert bench.declared is not None
    names = names_for(bench.config, bench.folder, where, node)
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
    bench: ResolvedBenchmark,
    where: PlanContext,
    part: _Part,
    names: Mapping[str, Any],
    venv: str,
    source: str,
    env: Mapping[str, str],
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
    launcher = launcher_words(config, part.place, where.facts, where.system.options, names, env)
    return (*launcher.before, python, *launcher.after, *program)


def _program(declared: Benchmark, folder: str, source: str) -> tuple[str, ...]:
    if declared.module is not None:
        return ("-m", declared.module)
    assert declared.script is not None
    return (str(PurePath(source if declared.source is not None else folder, declared.script)),)


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
        "plan": {
            "method": config.plan.method,
            "n": config.plan.n,
            **({"ranks": True} if launcher_of(config) == RANKS else {}),
        },
        **({"metrics": {name: asdict(one) for name, one in config.metrics.items()}} if config.metrics else {}),
        "measure": {
            "profile": profile.name,
            "warmup_steps": profile.warmup_steps,
            "warmup_s": profile.warmup_s,
            "window_steps": profile.window_steps,
            "window_s": profile.window_s,
        },
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
