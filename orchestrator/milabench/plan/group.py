"""What steps of one group share: the barrier at which they wait for each other, and the monitor that watches them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from milabench.config.schema import BenchmarkConfig
from milabench.errors import ConfigError, Problem
from milabench.plan.context import NodeBenchmark
from milabench.plan.method import is_client_server, method_of

BARRIER_S = 600.0


def barrier(config: BenchmarkConfig, instances: int, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of `measure` for steps that start together; `instances` is how many there are, on all nodes.

    The longest wait, in seconds, is `system.options.barrier.timeout_s`, else half of `max_duration`, at most ten minutes.
    Raises ConfigError when it is no number of seconds.
    """
    # The ranks of one job wait for each other anyway, and a client for its server.
    if instances < 2 or not method_of(config).is_concurrent or is_client_server(config):
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
    """Return the command that watches a group, from the environment of its steps; empty when it is not wanted.

    Steps without an environment are watched by what `instruments` names, where there is something.

    `system.options.monitor: false` switches it off; `system.options.simulated_devices` names a file of scripted readings.
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
