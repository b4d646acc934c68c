"""What follows from a request: the plan, whether everything that it needs is there, what the manifest tells beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from milabench.analysis.replicates import Replicates
from milabench.errors import NothingSelected
from milabench.plan.ab import SIDES, interleaved, of_side, side_name
from milabench.plan.model import Plan, Step
from milabench.plan.run import plan_run
from milabench.workflow import preflight
from milabench.workflow.context import CommandContext
from milabench.workflow.request import Request, SuiteSide

if TYPE_CHECKING:
    from milabench.workflow.execution import RunDescription


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRequest:
    """The plan of a request; `bundles` are its steps that are measured, and measured again, together or in turn."""

    request: Request
    plan: Plan
    bundles: tuple[tuple[Step, ...], ...]
    pairs: Mapping[str, bool] = field(default_factory=dict)


def plan_single_suite(inputs: CommandContext) -> Plan:
    """The plan of a run of one suite. Raises NothingSelected, with every reason, when nothing in it can run here."""
    plan = plan_run(inputs.benches, inputs.where)
    if not plan.steps:
        reasons = "; ".join(f"{skip.bench}: {skip.why}" for skip in plan.skipped)
        way = (
            "; `milabench install` fetches programs" if any(skip.why == "not fetched" for skip in plan.skipped) else ""
        )
        raise NothingSelected(f"no selected benchmark can run: {reasons}{way}")
    return plan


def plan_request(request: Request) -> PlannedRequest:
    """The plan of a request. Raises NothingSelected when nothing can run, or is on both sides."""
    if not request.is_ab:
        plan = plan_single_suite(request.inputs)
        return PlannedRequest(request=request, plan=plan, bundles=plan.groups())
    a, b = (each.inputs for each in request.sides)
    both = interleaved(plan_run(a.benches, a.where), plan_run(b.benches, b.where), a.where.seed)
    if not both.plan.steps:
        reasons = "; ".join(f"{skip.bench}: {skip.why}" for skip in both.plan.skipped)
        raise NothingSelected(f"{a.suite_file} and {b.suite_file}: no benchmark can run on both sides: {reasons}")
    return PlannedRequest(request=request, plan=both.plan, bundles=both.bundles, pairs=both.pairs)


def require_request_ready(request: Request, plan: Plan) -> None:
    """Raise EnvironmentFailed, with the command to give, unless everything that the plan needs is there."""
    for name, side in zip(SIDES, request.sides, strict=False):
        own = of_side(plan, name) if request.is_ab else plan
        preflight.require_ready(side.inputs, own, side.options)


def describe_run(
    decision: PlannedRequest,
    *,
    stamp: str = "",
    validations: Sequence[str] | None = None,
    replicates: Mapping[str, Replicates] | None = None,
) -> RunDescription:
    """What the run directory tells beside the plan; of both sides, each under its name.

    `stamp` is the time in the name of a multirun's run, which is added to every run's name anyway; `replicates` are the
    numbers that a budget has decided.
    """
    request = decision.request
    parts = [_recording(side, request.name.removesuffix(f".{stamp}")) for side in request.sides]
    aim = request.aim
    told = dict(parts[0].told)
    options = dict(told["options"])
    if aim is not None:
        # Computed from the aim again by whoever goes on, or repeats a part.
        options |= {
            "repeat": None if aim.precision is not None else options["repeat"],
            "precision": None if aim.precision is None else f"{100 * aim.precision:g}%",
            "budget": None if aim.budget_s is None else f"{aim.budget_s:g}s",
        }
        told["aim"] = aim.to_json()
    if replicates:
        told["replicates"] = {name: each.to_json() for name, each in replicates.items()}
    if not request.is_ab:
        suite: Mapping[str, Any] = parts[0].suite
    else:
        files = [str(side.inputs.suite_file.absolute()) for side in request.sides]
        options["ab"] = files
        suite = _by_side([part.suite for part in parts])
        told["programs"] = _by_side([part.told["programs"] for part in parts])
        told["ab"] = {
            "suites": files,
            "pairs": {
                bench: {**{side: side_name(bench, side) for side in SIDES}, "same_steps": is_same}
                for bench, is_same in decision.pairs.items()
            },
        }
    return replace(
        parts[0],
        suite=suite,
        locks={name: lock for part in parts for name, lock in part.locks.items()},
        packages={place: held for part in parts for place, held in part.packages.items()},
        told={**told, "options": options, **({} if validations is None else {"validations": list(validations)})},
    )


def _by_side(values: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        side_name(bench, side): value for side, each in zip(SIDES, values, strict=True) for bench, value in each.items()
    }


def _recording(side: SuiteSide, name: str) -> RunDescription:
    from milabench.workflow.execution import RunDescription
    from milabench.workflow.preflight import environment_records
    from milabench.workflow.saved_options import packages_digest, save_options

    locks, packages = environment_records(side.inputs)
    return RunDescription(
        name=name,
        suite=suite_values(side.inputs),
        locks=locks or packages_digest(packages),
        packages=packages,
        told=save_options(side.options, side.inputs),
    )


def suite_values(inputs: CommandContext) -> dict[str, Any]:
    """The selected benchmarks as resolved, without their secrets: what a later reader needs of the suite."""
    from milabench.config.show import benchmark_completions
    from milabench.plan.environ import secret_names

    values = {bench.config.name: benchmark_completions(bench.config) for bench in inputs.benches}
    for value in values.values():
        value["env"] = {name: text for name, text in value["env"].items() if name not in secret_names(value["env"])}
    return values
