"""The runs that one command stands for: one, or with `multirun` in the system file one for each of its combinations."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from milabench.cli.options import SuiteOptions
    from milabench.config.schema import Suite
    from milabench.workflow.context import CommandContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Variation:
    """One of the runs: its name, the values that were chosen for it, the options that include them, and what they read."""

    name: str
    options: SuiteOptions
    inputs: CommandContext
    chosen: Mapping[str, Any] = field(default_factory=dict)


def read_variations(
    options: SuiteOptions, *, run_name: str, stamp: str, repeats: int | None, profile: str | None, seed: int
) -> tuple[Variation, ...]:
    """The runs in order; `stamp` stands for `{time}` in their names. Raises what `read_inputs` raises."""
    from milabench.config.matrix import runs
    from milabench.workflow.context import read_context, warn_user

    said: set[str] = set()

    def warn_once(text: str) -> None:
        if text not in said:
            said.add(text)
            warn_user(text)

    inputs = read_context(options, run_name=run_name, repeats=repeats, profile=profile, seed=seed, warn=warn_once)
    if not inputs.suite.multirun:
        return (Variation(name=run_name, options=options, inputs=inputs),)
    made = []
    for name, chosen in runs(inputs.suite.multirun, {"time": stamp, "run_name": run_name}):
        # What is said on the command line wins: it comes later.
        overrides = (*(override(inputs.suite, key, value) for key, value in chosen.items()), *options.overrides)
        varied = replace(options, overrides=overrides)
        read = read_context(varied, run_name=name, repeats=repeats, profile=profile, seed=seed, warn=warn_once)
        made.append(Variation(name=name, options=varied, inputs=read, chosen=chosen))
    return tuple(made)


def override(suite: Suite, key: str, value: object) -> str:
    """The override that an entry of a multirun's matrix stands for: of a benchmark, else of the system's options."""
    named = key.startswith(("system.", "*.")) or any(key.startswith(f"{bench}.") for bench in suite.benchmarks)
    return f"{key if named else f'system.options.{key}'}={json.dumps(value)}"
