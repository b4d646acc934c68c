"""A step of a run, planned from value to value: process, names, rendered templates, command, launched command, step."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from operator import attrgetter
from pathlib import PurePath
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from milabench import seams
from milabench.bench.api import RUNNER, ForeignBenchmark, StartedProcess
from milabench.config.schema import BenchmarkConfig
from milabench.config.serving import FREE_PORT
from milabench.errors import ConfigError, Problem
from milabench.facts.model import Device, Node
from milabench.plan.container import containerized
from milabench.plan.context import NodeBenchmark, PlanContext, ResolvedBenchmark, benchmark_on, rebase_path
from milabench.plan.environ import placed_environment, program_environment, started_environment
from milabench.plan.launchers import launcher_of, launcher_words, network_environment, rank_environment
from milabench.plan.method import RANKS, Placement, is_client_server, method_of, placements
from milabench.plan.model import RECORDS_MIB, Step
from milabench.plan.placeholders import names_for
from milabench.plan.render import RenderedBenchmark, render_benchmark
from milabench.redaction import secret_names

# Of a profile, what the instruments need to know.
_MEASURED = ("warmup_steps", "warmup_s", "window_steps", "window_s")
_measured = attrgetter(*_MEASURED)

Role = Literal["", "server", "client"]
_ARGUMENTS: Final[Mapping[Role, tuple[str, ...]]] = {
    "": ("argv",),
    "server": ("server.argv", "argv"),
    "client": ("client.argv", "argv"),
}
_SWEEP = ("-m", "benchmate.serving")
_RESTARTING = ("-m", "benchmate.serving.restarting", "--")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedProcess:
    """A process of a replicate: the benchmark on its node, and whether it is the server or the client of a pair.

    `repeat` is the number of the replicate, None where there is only one. `server_host` is where a client finds its server.
    `started` is how its benchfile starts it, where that says so itself.
    """

    bench: NodeBenchmark
    placement: Placement
    role: Role = ""
    group: str
    repeat: int | None = None
    server_host: str = ""
    started: StartedProcess | None = None

    @property
    def tag(self) -> str:
        """Tells it from the other processes of the replicate."""
        return ".".join(part for part in (self.placement.tag, self.role) if part)


def replicate_steps(bench: ResolvedBenchmark, context: PlanContext, *, repeat: int | None) -> Iterator[Step]:
    """Yield the steps of a replicate of a benchmark, one for each process, all in the same group.

    A server and its client see the same devices. The client's configuration names the server that it waits for.
    Raises ConfigError for unresolved values.
    """
    processes = _processes(bench, context, repeat)
    siblings = Counter(process.placement.node.name for process in processes)
    server = None
    for process in processes:
        step = _step(process, siblings=siblings[process.placement.node.name], instances=len(processes), server=server)
        server = step if process.role == "server" else None
        yield step


def _processes(bench: ResolvedBenchmark, context: PlanContext, repeat: int | None) -> tuple[PlannedProcess, ...]:
    """Return the processes of a replicate. Of several machines, the server has the first and the client the last."""
    config = bench.config
    group = config.name if repeat is None else f"{config.name}.R{repeat}"
    placed = tuple(placements(config, context.facts))
    # Paths and folders follow from the node alone: worked out once for all processes of a node.
    nodes = {placement.node.name: placement.node for placement in placed}
    on_node = {name: benchmark_on(node, bench, context) for name, node in nodes.items()}

    def process(placement: Placement, role: Role = "", host: str = "") -> PlannedProcess:
        node_bench = on_node[placement.node.name]
        return PlannedProcess(
            bench=node_bench, placement=placement, role=role, group=group, repeat=repeat, server_host=host
        )

    if isinstance(bench.declared, ForeignBenchmark):
        started = [(at, each) for at in placed for each in bench.declared.processes.get(process_key(at), ())]
        return tuple(replace(process(replace(at, tag=each.tag)), started=each) for at, each in started)
    if not is_client_server(config):
        return tuple(map(process, placed))
    first = [placement for placement in placed if placement.node_rank == 0]
    last = [placement for placement in placed if placement.node_rank == config.num_machines - 1]
    if config.server is not None and config.server.url:
        # There is one server, whatever the devices here are.
        return tuple(process(placement, "client") for placement in last[:1])
    # Nodes may have different numbers of devices: a half without a partner is not started.
    pairs = zip(first, last, strict=False)
    return tuple(
        half
        for server, client in pairs
        for half in (process(server, "server"), process(client, "client", _host_of(server.node, client.node)))
    )


def _host_of(server: Node, client: Node) -> str:
    """Return where a client reaches a server: on the same node by the loopback, where servers listen that nobody else may use."""
    return "127.0.0.1" if server.name == client.name else server.ip


def _step(process: PlannedProcess, *, siblings: int, instances: int, server: Step | None) -> Step:
    bench, placement = process.bench, process.placement
    config, context = bench.config, bench.context
    is_server = process.role == "server"
    started = process.started
    rendered = render(bench, process.role, started)
    # Concurrent processes of a node share its cores, else they would measure each other.
    env = _environment(process, rendered, threads=max(1, placement.node.cpu_count // siblings))
    repeat = f"R{process.repeat}" if process.repeat is not None else ""
    rank = f"node{placement.node_rank}" if len(context.facts.nodes) > 1 else ""
    name = ".".join(part for part in (config.name, process.tag, repeat, rank) if part)
    step = Step(
        id=name,
        bench=config.name,
        phase="run",
        argv=(*_command(process, rendered, env), *rendered.arguments)
        if started is None
        else with_runner(bench, rendered.command),
        tag=process.tag,
        repeat=process.repeat or 0,
        group=process.group,
        job=_job(process, name, server),
        one_job=method_of(config).is_one_job,
        node=placement.node.name,
        devices=tuple(device.index for device in placement.devices),
        env=env,
        secret_env=secret_names(env),
        cwd=bench.cwd if started is None else started.cwd,
        venv=bench.venv,
        # A server has to outlive its client, whose time begins when it is ready.
        timeout_s=_limit_s(config) + (_ready_s(config) if is_server else 0.0),
        # A server that gets no request writes nothing.
        max_silence_s=None if is_server else config.max_silence,
        config=_step_config(process, rendered, instances, server),
        # What a command prints is read from its log afterwards; a server is there for its client.
        needs_data=not is_server and not config.command,
        monitor=monitor_command(bench),
        prerun=("/bin/sh", "-c", rendered.prerun) if rendered.prerun else (),
        keep_step_dir=config.keep_step_dir,
    )
    step = containerized(step, bench, _visible_devices(config, placement))
    if is_server and config.serve is not None and config.serve.on_server_exit == "restart":
        # Outside of the container, whose image needs no Python.
        return replace(step, argv=(bench.python, *_RESTARTING, *step.argv))
    return step


def render(bench: NodeBenchmark, role: Role = "", started: StartedProcess | None = None) -> RenderedBenchmark:
    """Render the templates of a benchmark's process. Raises ConfigError for a placeholder that cannot be resolved.

    `started` is how its benchfile starts it, where that says so itself.
    """
    return render_benchmark(
        bench.config,
        names_for(bench),
        # A server and a client have arguments of their own, then those that both share; the client of a sweep is no program of
        # the suite's, and has its own alone.
        argument_keys=_ARGUMENTS[role] if role != "client" or bench.config.serve is None else ("client.argv",),
        command_key="server.command" if _has_own_command(bench.config, role) else "command",
        command=None if started is None else started.words,
        flags=frozenset(bench.declared.flags),
        has_launcher=role != "client" and launcher_of(bench.config) not in ("none", RANKS),
    )


def _has_own_command(config: BenchmarkConfig, role: Role) -> bool:
    """Return whether a process is a server that is another program than its client."""
    return role == "server" and config.server is not None and bool(config.server.command)


def _environment(process: PlannedProcess, rendered: RenderedBenchmark, *, threads: int) -> dict[str, str]:
    bench, placement = process.bench, process.placement
    visible = _visible_devices(bench.config, placement)
    return {
        **program_environment(bench, rendered.env),
        **placed_environment(placement, arch=bench.context.facts.arch, threads=threads, visible=visible),
        **rank_environment(bench, placement),
        **network_environment(bench, placement),
        **_proxies(process, rendered),
        **started_environment(bench, process.started),
        **rendered.env,
    }


def _proxies(process: PlannedProcess, rendered: RenderedBenchmark) -> dict[str, str]:
    """Return the variables that keep the client of a sweep from asking a proxy for its server: some clients heed them."""
    if process.role != "client" or process.bench.config.serve is None:
        return {}
    host = urlsplit(rendered.url).hostname or process.server_host
    return dict.fromkeys(("NO_PROXY", "no_proxy"), ",".join(dict.fromkeys((host, "127.0.0.1", "localhost"))))


def _visible_devices(config: BenchmarkConfig, placement: Placement) -> Sequence[Device]:
    """Return the devices that a process sees: its own. A rank sees all devices of its node, and picks by its number."""
    return placement.node.devices if launcher_of(config) == RANKS else placement.devices


def _command(process: PlannedProcess, rendered: RenderedBenchmark, env: Mapping[str, str]) -> tuple[str, ...]:
    """Return interpreter, launcher, our runner and the program, or launcher and command. The own arguments follow."""
    bench = process.bench
    config, declared = bench.config, bench.declared
    if process.role == "client" and config.serve is not None:
        host = f"[{process.server_host}]" if ":" in process.server_host else process.server_host
        port = rendered.ready if rendered.ready.isdecimal() else FREE_PORT
        return (bench.python, *_SWEEP, "--url", rendered.url or f"http://{host}:{port}")
    before, after = (
        launcher_words(bench, process.placement, rendered.launcher_options, env)
        if process.role != "client"
        else ((), ())
    )
    if rendered.command:
        words = rendered.command
        # Arguments follow the shell's own name, as the parameters of its line.
        is_line = config.shell and bool(config.command)
        return (*before, *(("/bin/sh", "-c", " ".join(words), config.name) if is_line else words))
    program = _program(bench)
    if declared.voirfile is not None and process.role != "server":
        paths = ("--path", bench.source) if declared.module is not None and declared.source is not None else ()
        voirfile = _joined(bench.folder, declared.voirfile)
        program = ("-m", "benchmate.run", "--voirfile", voirfile, *paths, *program)
    if launcher_of(config) == "torchrun" and after:
        program = _apart(program)
    return (*before, bench.python, *after, *program)


def process_key(placement: Placement) -> str:
    """Return the key of a placement among the processes that a benchfile starts itself: its node and tag."""
    return f"{placement.node.name}/{placement.tag}"


# Programs that start a program of Python in each of their ranks.
_LAUNCHERS = frozenset({"torchrun", "benchrun", "accelerate", "torch.distributed.run", "tune", "deepspeed"})


def with_runner(bench: NodeBenchmark, words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words of a process that its benchfile starts itself, with our runner where they need it.

    A process without the runner is started by a relay, which reads the program's own records.
    """
    voirfile = bench.declared.voirfile
    runner = ("benchmate.run", *(("--voirfile", str(PurePath(bench.source, voirfile))) if voirfile is not None else ()))
    if RUNNER not in words:
        return (bench.python, "-m", "benchmate.milabench13.relay", "--", *words)
    at = words.index(RUNNER)
    # The runner is a module, which launchers of Python's programs start themselves.
    before, after = words[:at], words[at + 1 :]
    if before and before[-1] == "-m":
        return (*before, *runner, *after)
    if not any(PurePath(word).name in _LAUNCHERS for word in before):
        return (*before, bench.python, "-m", *runner, *after)
    # torchrun takes the beginning of one of its options for the option, so that the program's have to stand apart.
    return (*before[:-1], "-m", "--", *runner, *after) if before[-1] == "--" else (*before, "-m", *runner, *after)


def _apart(program: tuple[str, ...]) -> tuple[str, ...]:
    """Return the program for torchrun, which otherwise mistakes abbreviations of options for its own.

    `--logs` of a program, for example: torchrun has two options that begin so, and refuses the line as ambiguous.
    """
    return ("-m", "--", *program[1:]) if program[0] == "-m" else ("--", *program)


def _program(bench: NodeBenchmark) -> tuple[str, ...]:
    declared = bench.declared
    if declared.module is not None:
        return ("-m", declared.module)
    assert declared.script is not None
    return (_joined(bench.source if declared.source is not None else bench.folder, declared.script),)


@lru_cache(maxsize=1_024)  # thousands of benchmarks have one definition
def _joined(folder: str, path: str) -> str:
    return str(PurePath(folder, path))


def _job(process: PlannedProcess, name: str, server: Step | None) -> str:
    """Return the job of steps that need each other, see `Step.job`."""
    config = process.bench.config
    if process.role:
        return server.id if server is not None else name
    if method_of(config).spans_nodes:
        return process.group
    return f"{process.group}@{process.placement.node.name}" if launcher_of(config) == RANKS else ""


def bench_config(bench: NodeBenchmark, rendered: RenderedBenchmark) -> dict[str, Any]:
    """Return the content of the file at MILABENCH_BENCH_CONFIG."""
    config, profile = bench.config, bench.context.profile
    return {
        **{key: getattr(config, key) for key in ("name", "group", "install_group")},
        **({"size": config.size} if config.size else {}),
        **({"flops_per_item": config.flops_per_item} if config.flops_per_item else {}),
        **({"precision": config.precision} if config.precision else {}),
        "tags": config.tags,
        "weight": config.weight,
        "argv": list(rendered.arguments),
        **({"timed": True} if config.timed else {}),
        **({"max_records_mib": config.max_records_mib} if config.max_records_mib != RECORDS_MIB else {}),
        "options": {**bench.declared.options, **config.options},
        # Not copied, as `tags`, `plan` and `measure`: what the jobs of a matrix share is looked at once for all hashes.
        "voir": config.voir,
        "validation": config.validation,
        "plan": _described_method(config.plan.method, config.plan.n, launcher_of(config) == RANKS),
        **({"serve": _sweep(bench, rendered), "max_duration": config.max_duration} if rendered.serve else {}),
        **_answers(config, profile.name),
        **({"metrics": {name: asdict(metric) for name, metric in config.metrics.items()}} if config.metrics else {}),
        "measure": _described_profile(profile.name, *_measured(profile)),
    }


def _answers(config: BenchmarkConfig, profile: str) -> Mapping[str, Any]:
    answers = config.answers
    if answers is None or profile not in (answers.profiles or (profile,)):
        return {}
    seams.require("answers", f"{config.name}: the key `answers`")
    return {"answers": {name: value for name, value in asdict(answers).items() if name != "profiles"}}


# Typed: 3 and 3.0 are equal, and not the same in the hash of a step.
@lru_cache(typed=True)
def _described_method(method: str, n: int | None, has_ranks: bool) -> Mapping[str, Any]:
    return {"method": method, "n": n, **({"ranks": True} if has_ranks else {})}


@lru_cache(typed=True)
def _described_profile(name: str, *measured: float) -> Mapping[str, Any]:
    return {"profile": name, **dict(zip(_MEASURED, measured, strict=True))}


def _sweep(bench: NodeBenchmark, rendered: RenderedBenchmark) -> dict[str, Any]:
    """Return the sweep as a process of the node gets it: a trace in the benchmark's own folder has come there with it."""
    sweep, definition = dict(rendered.serve), bench.config.definition
    if isinstance(definition, PurePath) and PurePath(sweep["trace"]).is_relative_to(definition):
        sweep["trace"] = rebase_path(str(definition), sweep["trace"], bench.folder)
    return sweep


def _step_config(
    process: PlannedProcess, rendered: RenderedBenchmark, instances: int, server: Step | None
) -> dict[str, Any]:
    """Return the benchmark's configuration with the values of this process.

    A server and its client get the values to find each other. `ready` is the port or pattern for which the client waits.
    """
    bench, config = process.bench, process.bench.config
    described = bench_config(bench, rendered)
    if waits := barrier(config, instances, bench.context.system.options):
        described["measure"] = {**described["measure"], **waits}
    if len(rendered.batch_sizes) == 1:
        # The one that the sizer may choose: what was observed is kept for this size.
        described["batch_size"] = rendered.batch_sizes[0]
    if process.role:
        peer: dict[str, Any] = {"ready": _ready_condition(config, rendered.ready, process.placement)}
        if rendered.url:
            peer["url"] = rendered.url
        if server is not None:
            peer |= {"step": server.id, "node": server.node}
        described |= {"role": process.role, "server": peer}
    if process.role == "server":
        described.pop("metrics", None)  # its client is what is measured
    return described


def _limit_s(config: BenchmarkConfig) -> float:
    """Return the time limit of a process, in seconds. For a sweep it follows from its points, each of which has the same."""
    return config.max_duration * (config.serve.points if config.serve is not None else 1)


def _ready_s(config: BenchmarkConfig) -> float:
    """Return how long a server may take until it is ready, in seconds: as long as its client, unless the suite says."""
    timeout = config.server.ready.timeout if config.server is not None else None
    return config.max_duration if timeout is None else timeout


def _ready_condition(config: BenchmarkConfig, ready: str, placement: Placement) -> dict[str, Any]:
    """Return the condition that the agent waits for: a port (a number, or chosen at the start by `@port`), else a pattern.

    Raises ConfigError for other texts.
    """
    timeout_s = _ready_s(config)
    if not ready:
        return {"timeout_s": timeout_s}
    path = config.server.ready.path if config.server is not None else ""
    if path and ready != FREE_PORT and not ready.isdecimal():
        raise config.error("server.ready", f"the path {path} needs a port", "write port: '@port' next to it")
    if ready != FREE_PORT and not ready.isdecimal():
        try:
            re.compile(ready)
        except (re.error, RecursionError, OverflowError) as error:
            raise config.error("server.ready", f"not a regular expression: {error}") from None
        return {"pattern": ready, "timeout_s": timeout_s}
    if ready != FREE_PORT and not 0 < int(ready) < 65_536:
        raise config.error("server.ready", f"no such port: {ready}", "put a pattern of digits in parentheses")
    ip = placement.node.ip
    hosts = list(dict.fromkeys(["127.0.0.1", *([ip] if ip else [])]))
    return {"port": ready, **({"path": path} if path else {}), "hosts": hosts, "timeout_s": timeout_s}


BARRIER_S = 600.0


def barrier(config: BenchmarkConfig, instances: int, options: Mapping[str, object]) -> dict[str, Any]:
    """Return the part of `measure` for steps that start together. `instances` is how many there are, on all nodes.

    The longest wait, in seconds, is `system.options.barrier.timeout_s`, else half of `max_duration`, at most ten minutes.
    Raises ConfigError when it is no number of seconds.
    """
    # The ranks of one job wait for each other anyway, and a client for its server.
    if instances < 2 or method_of(config).is_one_job or is_client_server(config):
        return {}
    given = options.get("barrier")
    limit = given.get("timeout_s") if isinstance(given, Mapping) else None
    if limit is None:
        # Well below max_duration, so that waiting in vain ends as that, and not as a step that ran out of time.
        limit = BARRIER_S if config.max_duration is None else min(BARRIER_S, config.max_duration / 2)
    if isinstance(limit, bool) or not isinstance(limit, int | float) or limit <= 0:
        what = f"expected a number of seconds, got {limit!r}"
        raise ConfigError(Problem("", "system.options.barrier.timeout_s", what, ""))
    return {"barrier": True, "barrier_timeout_s": float(limit)}


# What has no environment of its own may end soon; what it takes is read this often.
COMMAND_PERIOD_S = 0.5
_FROM_SOURCES = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from benchmate.monitors.__main__ import main; sys.exit(main(sys.argv[1:]))"
)


def monitor_command(bench: NodeBenchmark) -> tuple[str, ...]:
    """Return the command that watches a group, from the environment of its steps. Empty when it is not wanted.

    Steps without an environment are watched by the command in `instruments`, if there is one.

    `system.options.monitor: false` switches it off. `system.options.simulated_devices` names a file of scripted readings.
    """
    context, venv = bench.context, bench.venv
    options = context.system.options
    instruments = context.instruments if bench.node.local else None
    if options.get("monitor") is False or not (venv or instruments):
        return ()
    simulated = options.get("simulated_devices")
    arguments = ("--arch", context.facts.arch, *(("--simulated", str(simulated)) if simulated else ()))
    if not venv and instruments is not None:
        words = (instruments.python, "-I", "-c", _FROM_SOURCES, instruments.folder)
        return (*words, *arguments, "--host-period", str(COMMAND_PERIOD_S))
    return (
        context.current_python or f"{venv}/bin/python",
        *("-I", "-m", "benchmate.monitors"),
        *arguments,
        # An environment that was installed from locks can be compared with them; the current one has none.
        *(("--packages",) if context.current_env is None else ()),
    )
