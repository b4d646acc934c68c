"""The launchers that start a process per device: the words around the interpreter, and the variables of ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from milabench.config.schema import BenchmarkConfig
from milabench.config.serving import FREE_PORT
from milabench.facts.model import Arch, Node, SystemFacts
from milabench.plan.context import NodeBenchmark
from milabench.plan.method import MPIRUN, ONE_JOB_METHODS, RANKS, SRUN, Placement, is_client_server, method_of, nodes_of

LAUNCHERS = ("none", "torchrun", "accelerate", RANKS, MPIRUN, SRUN)
_HERE = ("@sink", "@config")
# MPI has names of its own for what torch's `env://` looks for: Open MPI's, else those of MPICH and its kin.
_AS_RANK = (
    'RANK="${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" WORLD_SIZE="${OMPI_COMM_WORLD_SIZE:-$PMI_SIZE}" '
    'LOCAL_RANK="${OMPI_COMM_WORLD_LOCAL_RANK:-$MPI_LOCALRANKID}"; export RANK WORLD_SIZE LOCAL_RANK; exec "$@"'
)
# A step of the job that we are in, over nodes of its own: what Slurm says of our own step would be taken for options of it.
SRUN_LINE = (
    'job="${SLURM_JOB_ID:?not set: srun starts ranks in an allocation of Slurm}"; '
    "for name in $(env | sed -n 's/^\\(SLURM_[A-Z0-9_]*\\)=.*/\\1/p'); do "
    '[ "$name" = SLURM_CONF ] || unset "$name"; done; exec srun --jobid="$job" "$@"'
)
# Slurm has names of its own for them too. On other nodes there is nobody who reads what ranks report.
_AS_TASK = (
    'RANK="$SLURM_PROCID" WORLD_SIZE="$SLURM_NTASKS" LOCAL_RANK="$SLURM_LOCALID"; export RANK WORLD_SIZE LOCAL_RANK; '
    '[ "$RANK" -lt {here} ] || unset {names}; exec "$@"'
)
# Options of accelerate that choose how it starts processes; it takes one.
_OTHER_WAYS = {"cpu", "multi-gpu", "tpu", "use-deepspeed", "use-fsdp", "use-megatron-lm", "mpirun-hostfile"}
_INTERFACE_VARIABLES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME")


def launcher_of(config: BenchmarkConfig) -> str:
    """Return `plan.launcher`. Else torchrun where a Python program uses many devices, and is no server with its client."""
    if config.plan.launcher is not None:
        return config.plan.launcher
    is_plain = not method_of(config).is_one_job or bool(config.command) or is_client_server(config)
    return "none" if is_plain else "torchrun"


def launcher_words(
    bench: NodeBenchmark, placement: Placement, own_options: Mapping[str, object], env: Mapping[str, str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the words before the interpreter or the command, and between it and the program. Both are empty without a launcher.

    `own_options`, the rendered further keys of `plan`, win over derived options. `env` is the step's, of which
    variables of the first node alone are not passed to others. Raises ConfigError for a launcher that is not known, or that does
    not go with the method.
    """
    config, facts, options = bench.config, bench.context.facts, bench.context.system.options
    nodes, rank = _job(config, placement, facts)
    match launcher_of(config):
        case "none":
            return (), ()
        case "torchrun" | "accelerate" as launcher if config.command or (config.server and config.server.command):
            what = f"{launcher} starts Python programs, and the benchmark is a command"
            raise config.error("plan.launcher", what, "use mpirun, srun or ranks, or call it in the command")
        case "torchrun":
            words = _words(_torchrun(config, nodes, rank, options), own_options)
            return (), ("-m", "torch.distributed.run", *words)
        case "accelerate":
            words = _words(_accelerate(config, nodes, rank, facts.arch, options), own_options)
            return (), ("-m", "accelerate.commands.launch", *words)
        case "ranks" | "mpirun" | "srun" as launcher if not method_of(config).is_one_job:
            what = f"{launcher} starts the ranks of a job that spans devices, which {config.plan.method} is not"
            raise config.error("plan.launcher", what, f"use the method {' or '.join(ONE_JOB_METHODS)}")
        case "ranks":
            return (), ()
        case "mpirun":
            return ("mpirun", *_mpirun(nodes, own_options, env), "/bin/sh", "-c", _AS_RANK, "rank"), ()
        case "srun":
            return ("/bin/sh", "-c", SRUN_LINE, "srun", *_srun(nodes, own_options), *_as_task(nodes, env)), ()
        case other:
            raise config.error("plan.launcher", f"unknown launcher '{other}'", f"known: {', '.join(LAUNCHERS)}")


def rank_environment(bench: NodeBenchmark, placement: Placement) -> dict[str, str]:
    """Return the variables of torch's `env://` that no launcher sets. Empty for launchers that set all of them."""
    launcher = launcher_of(bench.config)
    if launcher not in (RANKS, MPIRUN, SRUN):
        return {}
    nodes, rank = _job(bench.config, placement, bench.context.facts)
    port = _port(launcher, bench.context.system.options)
    master = {"MASTER_ADDR": nodes[0].ip, "MASTER_PORT": str(port)}
    if launcher != RANKS:
        return master
    ranks = [(node.name, device.index) for node in nodes for device in node.devices]
    (device,) = placement.devices
    return {
        "RANK": str(ranks.index((placement.node.name, device.index))),
        "WORLD_SIZE": str(len(ranks)),
        "LOCAL_RANK": str([local.index for local in placement.node.devices].index(device.index)),
        "LOCAL_WORLD_SIZE": str(len(placement.node.devices)),
        "GROUP_RANK": str(rank),
        **master,
    }


def network_environment(bench: NodeBenchmark, placement: Placement) -> dict[str, str]:
    """Return the network interface of a job over several nodes: the node's `interface`, else `system.options.network.interface`.

    Without either the libraries choose an interface themselves, by the name of the machine.
    """
    if not method_of(bench.config).spans_nodes:
        return {}
    system = bench.context.system
    own = next((node.extra.get("interface") for node in system.nodes if node.name == placement.node.name), None)
    network = system.options.get("network")
    interface = own or (network.get("interface") if isinstance(network, Mapping) else None)
    return dict.fromkeys(_INTERFACE_VARIABLES, str(interface)) if interface else {}


def _job(config: BenchmarkConfig, placement: Placement, facts: SystemFacts) -> tuple[tuple[Node, ...], int]:
    """Return the nodes of a job, the node of rank 0 first, and the number of this node among them."""
    if not method_of(config).spans_nodes:
        return (placement.node,), 0
    numbers, nodes = zip(*nodes_of(config, facts), strict=True)
    return nodes, numbers.index(placement.node_rank)


def _torchrun(
    config: BenchmarkConfig, nodes: Sequence[Node], rank: int, options: Mapping[str, object]
) -> dict[str, object]:
    ranks = {"nproc-per-node": max(1, len(nodes[rank].devices))}
    if len(nodes) == 1:
        # Chooses a free port itself, so that two jobs on one node do not collide.
        return {"standalone": True, **ranks}
    common = {"nnodes": len(nodes), "node-rank": rank, **ranks}
    address, port = nodes[0].ip, _port("torchrun", options)
    if {_bare(key): value for key, value in config.plan.extra.items()}.get("rdzv-backend") == "static":
        return {**common, "master-addr": address, "master-port": port}
    # Else each node guesses by its own name whether the address is its, and where that is not in DNS, nobody is there to be met.
    conf = f"is_host={int(rank == 0)}"
    endpoint = {"rdzv-backend": "c10d", "rdzv-endpoint": f"{address}:{port}", "rdzv-id": config.name, "rdzv-conf": conf}
    # What rank 0 tells the others to reach it by; else its name, which the others may not know.
    own = nodes[rank].ip
    return {**common, **endpoint, **({"local-addr": own} if own else {})}


def _accelerate(
    config: BenchmarkConfig, nodes: Sequence[Node], rank: int, arch: Arch, options: Mapping[str, object]
) -> dict[str, object]:
    derived: dict[str, Any] = {
        "num_processes": sum(max(1, len(node.devices)) for node in nodes),
        "num_machines": len(nodes),
        "machine_rank": rank,
    }
    if len(nodes) > 1:
        derived |= {"main_process_ip": nodes[0].ip, "main_process_port": _port("accelerate", options)}
    if arch == "cpu" and derived["num_processes"] > 1 and not {_bare(key) for key in config.plan.extra} & _OTHER_WAYS:
        # Without an accelerator it starts one process on each machine, which has no rank, unless it is told otherwise.
        derived["multi_gpu"] = True
    return derived


def _mpirun(nodes: Sequence[Node], own_options: Mapping[str, object], env: Mapping[str, str]) -> tuple[str, ...]:
    """Return a single command for the whole job, on its first node. Mpirun itself reaches the others.

    Variables of the first node alone are not passed on: the ranks there report for all.
    """
    slots = [(node.ip, max(1, len(node.devices))) for node in nodes]
    derived = {"-np": str(sum(count for _, count in slots))}
    if len(nodes) > 1:
        derived["--host"] = ",".join(f"{ip}:{count}" for ip, count in slots)
    own = {_bare(key) for key in own_options}
    words = tuple(word for option in derived.items() if _bare(option[0]) not in own for word in option)
    if len(nodes) > 1:
        # Ranks on other nodes inherit nothing but what is named here.
        words += tuple(word for name in sorted(env) if env[name] not in _HERE for word in ("-x", name))
    # mpirun takes a value as a word of its own.
    return (*words, *(part for word in _words({}, own_options) for part in word.split("=", 1)))


def _srun(nodes: Sequence[Node], own_options: Mapping[str, object]) -> tuple[str, ...]:
    """Return the options of a step over the whole job, in parallel with running steps, with ranks in our order.

    Which devices a rank sees, Slurm says: all of the job's on its node, unless the suite binds it to some.
    """
    hosts = [node.name for node in nodes for _ in range(max(1, len(node.devices)))]
    derived = {
        "overlap": True,
        "ntasks": len(hosts),
        # The only one that lets the first rank be on the first node, and nodes have different numbers of ranks.
        "distribution": "arbitrary",
        "nodelist": ",".join(hosts),
        "mem": 0,
        "cpu-bind": "none",
        "mpi": "none",
        "kill-on-bad-exit": 1,
    }
    return _words(derived, own_options)


def _as_task(nodes: Sequence[Node], env: Mapping[str, str]) -> tuple[str, ...]:
    names = " ".join(name for name in sorted(env) if env[name] in _HERE)
    return ("/bin/sh", "-c", _AS_TASK.format(here=max(1, len(nodes[0].devices)), names=names), "rank")


def _port(launcher: str, options: Mapping[str, object]) -> object:
    """Return the launcher's port in the system file, else the network's, else a free port."""
    for name in (launcher, "network"):
        given = options.get(name)
        if isinstance(given, Mapping) and given.get("port") is not None:
            return given["port"]
    return FREE_PORT


def _words(derived: Mapping[str, object], own: Mapping[str, object]) -> tuple[str, ...]:
    """Return options as words: those derived from the placement, each replaced by the suite's own of the same name."""
    options = {_bare(key): (f"--{key}", value) for key, value in derived.items()}
    options.update({_bare(key): (key if key.startswith("-") else f"--{key}", value) for key, value in own.items()})
    return tuple(
        flag if value is True else f"{flag}={value}"
        for flag, value in options.values()
        if value is not None and value is not False
    )


def _bare(key: str) -> str:
    """Return the option's name in any spelling, so that the suite's own replaces the derived option."""
    return key.lstrip("-").replace("_", "-")
