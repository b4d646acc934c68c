"""From the options of a command to the requests for its runs, and from a request to its plan and the run's manifest."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from milabench import seams
from milabench.analysis.intervals import LEAST_LAUNCHES
from milabench.analysis.replicates import PRECISIONS, PrecisionTarget, Replicates
from milabench.config.matrix import runs
from milabench.config.schema import Suite, SystemConfig
from milabench.errors import NothingSelected, UsageError
from milabench.events.rundir import Run
from milabench.plan.ab import SIDES, interleaved, of_side, side_name
from milabench.plan.model import Plan, Step
from milabench.plan.run import plan_run
from milabench.redaction import mask_argument, mask_settings, secret_names
from milabench.shown import counted, cut_text, grouped, some_of
from milabench.workflow.context import read_context
from milabench.workflow.environments import environment_records
from milabench.workflow.options import CommandContext, Extent, Session, SuiteOptions
from milabench.workflow.run_records import RunDescription

LEAST_PAIRS = 5
# Of why nothing can run: so many reasons, benchmarks of each and characters of one.
_REASONS, _NAMES, _REASON_LENGTH = 5, 5, 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The request for one run: its name, its suite or the two suites of an A/B run, its precision and budget.

    `values` are a combination of a multirun. `baseline` names the benchmark that all others are compared with.
    """

    name: str
    sides: tuple[CommandContext, ...]
    target: PrecisionTarget | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    baseline: str = ""

    @property
    def context(self) -> CommandContext:
        """Machine, folders, profile and seed, the same for both sides, and the suite of the first."""
        return self.sides[0]

    @property
    def is_ab(self) -> bool:
        """Whether two suites are measured in turn."""
        return len(self.sides) > 1

    def repeated(self, repeats: int | None, replicates: Mapping[str, int] | None = None) -> Request:
        """Return the same request with this number of replicates for all benchmarks, and for single benchmarks."""
        changed = (
            replace(side, plan_context=replace(side.plan_context, repeats=repeats, replicates=dict(replicates or {})))
            for side in self.sides
        )
        return replace(self, sides=tuple(changed))

    def measured_on(self, target: PrecisionTarget, replicates: Mapping[str, int] | None = None) -> Request:
        """Return the same request with a target. With a precision it begins with the fewest repeats that show a scatter."""
        targeted, context = replace(self, target=target), self.context.plan_context
        if target.precision is None:
            return targeted.repeated(context.repeats, replicates)
        return targeted.repeated(max(LEAST_LAUNCHES, context.repeats or context.profile.processes), replicates)


def expand_requests(
    options: SuiteOptions,
    extent: Extent,
    session: Session,
    *,
    stamp: str,
    is_part: bool = False,
    is_submitted: bool = False,
) -> tuple[Request, ...]:
    """Return the requests of a command, a request for each run: several where the system file has a `multirun`.

    `stamp` replaces `{time}` in names. `is_part`: only a part of the plan will be run. `is_submitted`: by jobs, between whose
    repeats nothing can be decided. Raises the errors of `read_context`, and UsageError for options that contradict each other.
    """
    if extent.ab is not None and is_part:
        raise UsageError("--failed runs a part, of which pairs may be left half. Leave out --ab, or use `resume`")
    whole = read_request(options, extent, session)
    suite = whole.context.suite
    # Everything is read before anything is measured: a mistake in the last run must not be found after hours.
    requests = [] if suite.multirun else [whole]
    for name, values in runs(suite.multirun, {"time": stamp, "run_name": extent.run_name}):
        if "size" in values and options.size is not None and not options.size_by:
            raise UsageError(
                f"the multirun of the system file chooses the size ({values['size']}). Leave out --size {options.size}"
            )
        # The command line's overrides come later, and so win over the combination's.
        overrides = (*(_override(suite, key, value) for key, value in values.items()), *options.overrides)
        varied = read_request(replace(options, overrides=overrides), replace(extent, run_name=name), session)
        requests.append(replace(varied, values=values))
    # The budget is for the whole command: several runs share it.
    share = None if extent.budget_s is None else extent.budget_s / len(requests)
    extent = replace(extent, budget_s=share)
    return tuple(
        with_target(request, extent, is_part=is_part, measures_on=not is_part and not is_submitted)
        for request in requests
    )


def require_jobs(system: SystemConfig) -> None:
    """Raise UsageError unless a batch scheduler provides the nodes of a system."""
    if system.engine not in seams.SCHEDULERS:
        known = " or ".join(seams.SCHEDULERS)
        raise UsageError(
            f"--submit makes jobs of a batch scheduler. Add --engine {known}, or set engine in the system file"
        )


def require_submittable(requests: Sequence[Request]) -> None:
    """Raise UsageError for requests that cannot be made by jobs of a scheduler."""
    for request in requests:
        options = request.context.options
        require_jobs(request.context.system)
        for option, values in (("--override", options.overrides), ("--slurm-arg", options.slurm_args)):
            if secret := next((mask_argument(value) for value in values if mask_argument(value) != value), ""):
                raise UsageError(
                    f"{option} {secret}: the jobs read the options of the run from its records, which keep no secret. Set a"
                    " variable, and write ${oc.env:VARIABLE}"
                )
        if request.target is not None and request.target.precision is not None:
            raise UsageError(
                "how often a benchmark runs has to be known before its jobs are submitted. Give --repeat, not a precision"
            )


def _override(suite: Suite, key: str, value: object) -> str:
    """Return the override of a multirun's entry: of a benchmark or the size, else of the system's options."""
    is_path = (
        key == "size"
        or key.startswith(("system.", "*."))
        or any(key.startswith(f"{bench}.") for bench in suite.benchmarks)
    )
    return f"{key if is_path else f'system.options.{key}'}={json.dumps(value)}"


def with_target(request: Request, extent: Extent, *, is_part: bool, measures_on: bool) -> Request:
    """Return the request with its precision and budget. The profile's holds only if `measures_on`. Raises UsageError."""
    precision = extent.precision
    if precision is not None and extent.repeat is not None:
        raise UsageError("--precision computes how often each benchmark is run. Leave out --repeat")
    if is_part and (precision is not None or extent.budget_s is not None):
        raise UsageError("--failed runs a part, from which no precision follows. Leave out --precision and --budget")
    is_rigorous = request.context.plan_context.profile.name == "rigorous"
    # The five pairs of an A/B run are enough for a first verdict.
    if precision is None and extent.repeat is None and measures_on and (is_rigorous or not request.is_ab):
        precision = precision_asked(request.context)
    if precision is None and extent.budget_s is None:
        return request
    return request.measured_on(PrecisionTarget(precision=precision, budget_s=extent.budget_s))


def precision_asked(context: CommandContext) -> float | None:
    """Return the uncertainty that the suite, else its profile, asks of each number. A first look asks none."""
    usual = PRECISIONS[context.plan_context.profile.name]
    return usual if usual is None or context.suite.precision is None else context.suite.precision


def read_request(options: SuiteOptions, extent: Extent, session: Session) -> Request:
    """Return the request for a suite, or for the two of an A/B run: five pairs at least unless `repeat` is given.

    Raises UsageError for sides that cannot be measured in the same run.
    """
    sides = tuple(read_context(side, session, extent) for side in extent.sides(options))
    request = Request(name=extent.run_name, sides=sides, baseline=extent.baseline)
    if extent.ab is None:
        return request
    require_comparable(*sides)
    pairs = extent.repeat if extent.repeat is not None else max(LEAST_PAIRS, sides[0].plan_context.profile.processes)
    return request.repeated(pairs)


def require_comparable(a: CommandContext, b: CommandContext) -> None:
    """Raise UsageError for two suites that cannot be measured in the same run: on other devices, or for another time."""
    for context in (a, b):
        if context.suite.multirun:
            raise UsageError(
                f"{context.suite_file}: has a multirun, which makes several runs, but --ab makes a single run of two suites"
            )
    # Sides that differ in more than their suites would be compared for the wrong reason.
    if a.plan_context.profile != b.plan_context.profile:
        raise UsageError(
            f"{a.suite_file} is measured with profile {a.plan_context.profile.name}, {b.suite_file} with "
            f"{b.plan_context.profile.name}. Choose it with --profile"
        )
    if _devices(a) != _devices(b):
        raise UsageError(f"{a.suite_file} and {b.suite_file}: are for different systems. Choose a system with --system")


def _devices(context: CommandContext) -> object:
    devices = [(node.name, [(device.index, device.uuid) for device in node.devices]) for node in context.nodes]
    return context.plan_context.facts.arch, devices


def request_of(run: Run, session: Session, **changes: Any) -> Request:
    """Return the request of a recorded run, read again, with the numbers of replicates that were decided.

    `changes` replace options of its command. Raises RecordError for a run whose options were not saved.
    """
    from milabench.workflow.saved_options import load_options, replicates_of, target_of

    options, extent = load_options(run)
    target = target_of(run)
    request = replace(
        read_request(replace(options, **changes), extent, session),
        name=str(run.manifest.get("name") or "run"),
        target=target,
    )
    return request if target is None else request.measured_on(target, replicates_of(run))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRequest:
    """The plan of a request. `bundles` are its steps that are measured, and measured again, together or in turn.

    `pairs` says of each benchmark of an A/B run whether both sides have the same steps.
    """

    request: Request
    plan: Plan
    bundles: tuple[tuple[Step, ...], ...]
    pairs: Mapping[str, bool] = field(default_factory=dict)


def plan_single_suite(context: CommandContext) -> Plan:
    """Return the plan of a run of a single suite. Raises NothingSelected, with every reason, when nothing in it can run here."""
    plan = plan_run(context.benches, context.plan_context)
    if not plan.steps:
        hint = ". `milabench install` fetches programs" if any(s.why == "not fetched" for s in plan.skipped) else ""
        raise NothingSelected(f"no selected benchmark can run: {_skip_reasons(plan)}{hint}")
    return plan


def plan_request(request: Request) -> PlannedRequest:
    """Return the plan of a request. Raises NothingSelected when nothing can run, or nothing is on both sides."""
    if not request.is_ab:
        plan = plan_single_suite(request.context)
        return PlannedRequest(request=request, plan=plan, bundles=plan.groups())
    a, b = request.sides
    both = interleaved(plan_run(a.benches, a.plan_context), plan_run(b.benches, b.plan_context), a.plan_context.seed)
    if not both.plan.steps:
        raise NothingSelected(
            f"{a.suite_file} and {b.suite_file}: no benchmark can run on both sides: {_skip_reasons(both.plan)}"
        )
    return PlannedRequest(request=request, plan=both.plan, bundles=both.bundles, pairs=both.pairs)


def _skip_reasons(plan: Plan) -> str:
    """Return why nothing can run, each reason once with the benchmarks that have it: a few names, and how many more."""
    by_reason = grouped((cut_text(skip.why, _REASON_LENGTH), skip.bench) for skip in plan.skipped)
    shown = [f"{some_of(names, _NAMES)}: {why}" for why, names in by_reason.items()]
    more = [counted(len(shown) - _REASONS, "more reason")] if len(shown) > _REASONS else []
    return "; ".join([*shown[:_REASONS], *more])


def require_request_ready(request: Request, plan: Plan, *, prepares: bool = False) -> None:
    """Raise EnvironmentFailed, with the command to give, unless everything that the plan needs is there.

    `prepares`: first prepare missing data, where that takes seconds. See `prepare_quickly`.
    """
    from milabench.workflow.preflight import lacking_preparations, require_ready  # reaches machines; `plan` does not

    for name, side in zip(SIDES, request.sides, strict=False):
        part = of_side(plan, name) if request.is_ab else plan
        if not prepares:
            require_ready(side, part)
        elif (pending := lacking_preparations(side, part)).steps:
            from milabench.workflow.prepare import prepare_quickly

            prepare_quickly(pending, side)


def describe_run(
    planned: PlannedRequest,
    *,
    stamp: str = "",
    validations: Sequence[str] | None = None,
    replicates: Mapping[str, Replicates] | None = None,
) -> RunDescription:
    """Return the contents of the run directory in addition to the plan. For an A/B run, of both sides, each under its name.

    `stamp` is the time in the name of a multirun's run, which is added to every run's name anyway. `replicates` are the
    numbers that a budget has decided.
    """
    request, target = planned.request, planned.request.target
    parts = [_describe_side(side, request.name.removesuffix(f".{stamp}")) for side in request.sides]
    manifest = _first_manifest(parts)
    options = dict(manifest["options"])
    suite, locks = parts[0].suite, parts[0].locks
    if target is not None:
        # `resume` and --failed compute the number of replicates from the target again.
        options |= {
            "repeat": None if target.precision is not None else options["repeat"],
            # That of the suite or its profile is found there again.
            "precision": None
            if target.precision in (None, precision_asked(request.context))
            else f"{100 * target.precision:g}%",
            "budget": None if target.budget_s is None else f"{target.budget_s:g}s",
        }
        manifest["aim"] = target.to_json()
    if replicates:
        manifest["replicates"] = {name: number.to_json() for name, number in replicates.items()}
    if validations is not None:
        manifest["validations"] = list(validations)
    if request.is_ab:
        options["ab"] = [str((side.options.lock or side.suite_file).absolute()) for side in request.sides]
        options["lock"] = None
        suite = _by_side([part.suite for part in parts])
        locks = _locks_by_side([part.locks for part in parts])
        for key in ("programs", "about"):
            manifest[key] = _by_side([part.manifest[key] for part in parts])
        pairs = _pairs_of_sides(planned.pairs)
        manifest["ab"] = {
            "suites": options["ab"],
            "pairs": pairs,
            "differs": differing_sides(parts, list(planned.pairs)),
        }
    elif request.baseline and len(request.context.benches) > 1:
        manifest["ab"] = _against_baseline(request.context, request.baseline)
    return replace(
        parts[0],
        suite=suite,
        locks=locks,
        packages={venv: versions for part in parts for venv, versions in part.packages.items()},
        manifest={**manifest, "options": options},
    )


def differing_sides(sides: Sequence[RunDescription], benches: Sequence[str]) -> str:
    """Return the differences between the two sides of an A/B run in a line, versions of packages first."""
    from milabench.analysis.comparison_model import System
    from milabench.analysis.score import score
    from milabench.analysis.summary_model import Summary
    from milabench.analysis.system_diff import difference_line, different_values

    empty = Summary(verdict="passed", benchmarks=(), score=score(()))
    versions: list[dict[str, str]] = []
    for side in sides:
        known = [(name, version) for packages in side.packages.values() for name, version in packages.items()]
        versions.append({name: ", ".join(sorted({v for n, v in known if n == name})) for name, _ in sorted(known)})
    packages = [f"{name} {values}" for name, values in different_values(versions)]
    systems = [
        System(name=name, summary=empty, manifest={"suite": mask_settings(side.suite), "locks": side.locks})
        for name, side in zip(SIDES, sides, strict=True)
    ]
    more = [counted(len(packages) - _NAMES, "more package")] if len(packages) > _NAMES else []
    return "; ".join([*packages[:_NAMES], *more, difference_line(systems, benches)])


def _pairs_of_sides(same_steps: Mapping[str, bool]) -> dict[str, dict[str, Any]]:
    """Return the two sides of each benchmark, and whether both have the same steps."""
    return {
        bench: {**{side: side_name(bench, side) for side in SIDES}, "same_steps": is_same}
        for bench, is_same in same_steps.items()
    }


def _against_baseline(context: CommandContext, baseline: str) -> dict[str, Any]:
    """Return the pairs of a command with each other command of its suite, whose replicates come block by block."""
    commands = {bench.config.name: bench.config.command for bench in context.benches}
    others = [bench for bench in commands if bench != baseline]
    pairs = {
        other: {"A": baseline, "B": other, "same_steps": commands[other] == commands[baseline]} for other in others
    }
    return {"suites": [baseline, others[0] if len(others) == 1 else "each of the others"], "pairs": pairs}


def _first_manifest(parts: Sequence[RunDescription]) -> dict[str, Any]:
    """Return the entries of the first side. A run of two suites was made from a capsule only where both are of the same."""
    first = dict(parts[0].manifest)
    if any(part.manifest.get("capsule") != first.get("capsule") for part in parts):
        first.pop("capsule", None)
    return first


def _by_side(values: Sequence[Mapping[str, object]]) -> dict[str, Any]:
    return {
        side_name(bench, side): value
        for side, benches in zip(SIDES, values, strict=True)
        for bench, value in benches.items()
    }


def _locks_by_side(locks: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the locks of both sides. Environments with equal names are listed under the name of their side."""
    a, b = locks
    return {
        group if other.get(group, lock) == lock else side_name(group, side): lock
        for side, own, other in zip(SIDES, (a, b), (b, a), strict=True)
        for group, lock in own.items()
    }


def _describe_side(context: CommandContext, name: str) -> RunDescription:
    from milabench.workflow.saved_options import packages_digest, save_options

    locks, packages = environment_records(context)
    return RunDescription(
        name=name,
        suite=suite_values(context),
        locks=locks or packages_digest(packages),
        packages=packages,
        manifest=save_options(context),
    )


def suite_values(context: CommandContext) -> dict[str, Any]:
    """Return the selected benchmarks as resolved, without their secrets: a later reader needs this part of the suite."""
    from milabench.config.show import benchmark_completions

    values = {bench.config.name: benchmark_completions(bench.config) for bench in context.benches}
    for value in values.values():
        # Secrets reach the steps, by their environment, and no record.
        value["env"] = {name: text for name, text in value["env"].items() if name not in secret_names(value["env"])}
    return cast("dict[str, Any]", mask_settings(values))
