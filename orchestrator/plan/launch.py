"""The launchers that start one process per device: the words between the interpreter and the program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.config.schema import BenchmarkConfig
from orchestrator.errors import ConfigError, Problem
from orchestrator.facts.model import SystemFacts
from orchestrator.plan.argv import render_text
from orchestrator.plan.placement import Placement

LAUNCHERS = ("none", "torchrun", "accelerate")
RENDEZVOUS_PORT = 29400


def launcher_of(config: BenchmarkConfig) -> str:
    """What `plan.launcher` says; else torchrun where one program uses many devices, unless it is a server with its client."""
    if config.plan.launcher is not None:
        return config.plan.launcher
    is_spread = config.plan.method in ("multigpu", "multinode")
    return "torchrun" if is_spread and config.server is None and config.client is None else "none"


def launcher_words(
    config: BenchmarkConfig,
    place: Placement,
    facts: SystemFacts,
    options: Mapping[str, Any],
    names: Mapping[str, Any],
) -> tuple[str, ...]:
    """The launcher's part of the command line, empty without one.

    Every further key of `plan` is an option of the launcher and wins over what follows from the placement; `options` are
    those of the system file (`torchrun: {port: ...}`). Raises ConfigError for a launcher that is not known.
    """
    match launcher_of(config):
        case "none":
            return ()
        case "torchrun":
            module, made = "torch.distributed.run", _torchrun(config, place, facts, options)
        case "accelerate":
            module, made = "accelerate.commands.launch", _accelerate(config, place, facts, options)
        case other:
            what = f"unknown launcher '{other}'"
            raise ConfigError(
                Problem(
                    where=config.origin.where("plan.launcher"),
                    path=f"{config.name}.plan.launcher",
                    what=what,
                    way_out=f"known: {', '.join(LAUNCHERS)}",
                )
            )
    return ("-m", module, *_words(config, made, names))


def _torchrun(
    config: BenchmarkConfig, place: Placement, facts: SystemFacts, options: Mapping[str, Any]
) -> dict[str, Any]:
    ranks = {"nproc-per-node": max(1, len(place.devices))}
    if config.num_machines == 1:
        return {"standalone": True, **ranks}
    return {
        "nnodes": config.num_machines,
        "node-rank": place.node_rank,
        **ranks,
        "rdzv-backend": "c10d",
        "rdzv-endpoint": f"{facts.main.ip}:{_port('torchrun', options)}",
        "rdzv-id": config.name,
    }


def _accelerate(
    config: BenchmarkConfig, place: Placement, facts: SystemFacts, options: Mapping[str, Any]
) -> dict[str, Any]:
    used = facts.nodes[: config.num_machines]
    made: dict[str, Any] = {
        "num_processes": sum(max(1, len(node.devices)) for node in used),
        "num_machines": config.num_machines,
        "machine_rank": place.node_rank,
    }
    if config.num_machines > 1:
        made |= {"main_process_ip": facts.main.ip, "main_process_port": _port("accelerate", options)}
    return made


def _port(launcher: str, options: Mapping[str, Any]) -> Any:
    given = options.get(launcher)
    return given.get("port", RENDEZVOUS_PORT) if isinstance(given, Mapping) else RENDEZVOUS_PORT


def _words(config: BenchmarkConfig, made: Mapping[str, Any], names: Mapping[str, Any]) -> tuple[str, ...]:
    options = {_bare(key): (f"--{key}", value, "") for key, value in made.items()}
    for key, value in config.plan.extra.items():
        flag = key if key.startswith("-") else f"--{key}"
        options[_bare(key)] = (flag, value, f"plan.{key}")
    words: list[str] = []
    for flag, value, path in options.values():
        if value is None or value is False:
            continue
        if value is True:
            words.append(flag)
            continue
        text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        if path:
            text = render_text(text, names, where=config.origin.where(path), path=f"{config.name}.{path}")
        words.append(f"{flag}={text}")
    return tuple(words)


def _bare(key: str) -> str:
    """The option's name however it is spelled, so that what the suite says replaces what we would say."""
    return key.lstrip("-").replace("_", "-")
