"""What one run is asked for: a suite, or two in turn; how often, or how precisely within which budget."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milabench.analysis.replicates import PILOT, PrecisionTarget
from milabench.cli.options import Extent, SuiteOptions, is_on_command_line
from milabench.errors import ConfigError, UsageError
from milabench.workflow.context import CommandContext, read_context, warn_user

if TYPE_CHECKING:
    from milabench.events.rundir import Run

LEAST_PAIRS = 5
PRECISION_OF_RIGOROUS = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteSide:
    """One suite: the options, and what they read."""

    options: SuiteOptions
    inputs: CommandContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What one run is asked for: its name, one suite or the two of an A/B run, how precisely.

    `chosen` are the values of a multirun's combination.
    """

    name: str
    sides: tuple[SuiteSide, ...]
    aim: PrecisionTarget | None = None
    chosen: Mapping[str, Any] = field(default_factory=dict)

    @property
    def inputs(self) -> CommandContext:
        """Machine, folders, profile and seed, the same for both sides; and the suite of the first."""
        return self.sides[0].inputs

    @property
    def is_ab(self) -> bool:
        """Whether two suites are measured in turn."""
        return len(self.sides) > 1

    def repeated(self, repeats: int | None, replicates: Mapping[str, int] | None = None) -> Request:
        """The same with so many replicates of all, and of single benchmarks."""

        def side(each: SuiteSide) -> SuiteSide:
            where = replace(each.inputs.where, repeats=repeats, replicates=dict(replicates or {}))
            return replace(each, inputs=replace(each.inputs, where=where))

        return replace(self, sides=tuple(map(side, self.sides)))


def expand_requests(
    options: SuiteOptions, extent: Extent, *, run_name: str, stamp: str, seed: int, is_part: bool = False
) -> tuple[Request, ...]:
    """What a command asks for, a run each; `stamp` stands for `{time}` in names, `is_part`: only a part will be run.

    Raises what `read_inputs` raises, and UsageError for what cannot be asked for together.
    """
    from milabench.cli.multirun import read_variations

    if extent.ab is not None:
        if is_part:
            raise UsageError("--failed runs a part, of which pairs may be left half; leave out --ab, or use `resume`")
        if is_on_command_line("config_file"):
            raise UsageError("--ab names both suites; leave out --config")
        made: tuple[Request, ...] = (ab_request(options, extent.ab, extent, run_name=run_name, seed=seed),)
    else:
        runs = read_variations(
            options, run_name=run_name, stamp=stamp, repeats=extent.repeat, profile=extent.profile, seed=seed
        )
        made = tuple(
            Request(name=each.name, sides=(SuiteSide(options=each.options, inputs=each.inputs),), chosen=each.chosen)
            for each in runs
        )
    # Several runs share the budget: it is for what was asked for, all of it.
    share = None if extent.budget_s is None else extent.budget_s / len(made)
    return tuple(with_target(each, replace(extent, budget_s=share), is_part=is_part) for each in made)


def with_target(request: Request, extent: Extent, *, is_part: bool) -> Request:
    """The request with what is aimed at: a precision starts with a pilot. Raises UsageError for contradictions."""
    precision = extent.precision
    if precision is not None and extent.repeat is not None:
        raise UsageError("--precision computes how often each benchmark is run; leave out --repeat")
    if is_part and (precision is not None or extent.budget_s is not None):
        raise UsageError("--failed runs a part, from which no precision follows; leave out --precision and --budget")
    if precision is None and request.inputs.where.profile.name == "rigorous" and extent.repeat is None and not is_part:
        precision = PRECISION_OF_RIGOROUS
    if precision is None and extent.budget_s is None:
        return request
    aimed = replace(request, aim=PrecisionTarget(precision=precision, budget_s=extent.budget_s))
    return aimed if precision is None else aimed.repeated(PILOT)


def ab_request(
    options: SuiteOptions,
    files: tuple[Path, Path],
    extent: Extent,
    *,
    run_name: str,
    seed: int,
    environ: Mapping[str, str] = os.environ,
) -> Request:
    """Both sides, alike but for the suite; five pairs at least unless `repeat` says otherwise.

    Raises UsageError and ConfigError for sides that cannot be measured in one run.
    """
    said: set[str] = set()

    def warn_once(text: str) -> None:
        if text not in said:
            said.add(text)
            warn_user(text)

    def side(file: Path) -> SuiteSide:
        own = replace(options, config_file=file)
        inputs = read_context(
            own,
            run_name=run_name,
            repeats=extent.repeat,
            profile=extent.profile,
            seed=seed,
            environ=environ,
            warn=warn_once,
        )
        return SuiteSide(options=own, inputs=inputs)

    sides = (side(files[0]), side(files[1]))
    require_alike(sides)
    pairs = extent.repeat if extent.repeat is not None else max(LEAST_PAIRS, sides[0].inputs.where.profile.processes)
    return Request(name=run_name, sides=sides).repeated(pairs)


def require_alike(sides: tuple[SuiteSide, SuiteSide]) -> None:
    """Raise for two suites that cannot be measured in one run: on other devices, for another time, in one environment."""
    a, b = (each.inputs for each in sides)
    for inputs in (a, b):
        if inputs.suite.multirun:
            raise UsageError(
                f"{inputs.suite_file}: has a multirun, which makes several runs; --ab makes one of two suites"
            )
    if a.where.profile != b.where.profile:
        raise UsageError(
            f"{a.suite_file} is measured with profile {a.where.profile.name}, {b.suite_file} with "
            f"{b.where.profile.name}; choose one with --profile"
        )
    if _devices(a) != _devices(b):
        raise UsageError(f"{a.suite_file} and {b.suite_file}: are for different systems; name one with --system")
    if a.where.current_env is None:
        from milabench.workflow.environments import decide_install

        venvs = {venv.group: venv.digest for venv in decide_install(a).venvs}
        both = [venv.group for venv in decide_install(b).venvs if venvs.get(venv.group, venv.digest) != venv.digest]
        if both:
            raise ConfigError(
                f"{b.suite_file}: asks for another environment '{both[0]}' than {a.suite_file}; name them apart with "
                "install_group"
            )


def _devices(inputs: CommandContext) -> object:
    facts = inputs.where.facts
    return facts.arch, [(node.name, [(each.index, each.uuid) for each in node.devices]) for node in facts.nodes]


def request_of(run: Run, environ: Mapping[str, str] = os.environ) -> Request:
    """What a run was asked for, read again, with the numbers of replicates that it holds.

    Raises RecordError for a run that cannot be decided again.
    """
    from milabench.workflow.saved_options import aim_of, load_options, replicates_of, saved_environment

    kept = load_options(run)
    aim = aim_of(run)
    extent = Extent(repeat=kept.repeats, profile=kept.profile)
    now = saved_environment(kept, environ)
    if kept.ab is not None:
        request = ab_request(kept.options, kept.ab, extent, run_name=kept.run_name, seed=kept.seed, environ=now)
    else:
        inputs = read_context(
            kept.options,
            run_name=kept.run_name,
            repeats=kept.repeats,
            profile=kept.profile,
            seed=kept.seed,
            environ=now,
        )
        request = Request(name=kept.run_name, sides=(SuiteSide(options=kept.options, inputs=inputs),))
    request = replace(request, name=str(run.manifest.get("name") or "run"), aim=aim)
    if aim is None:
        return request
    return request.repeated(PILOT if aim.precision is not None else kept.repeats, replicates_of(run))
