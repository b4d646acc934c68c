"""From a request to its plan: the steps, the check that everything they need exists, the rest of the manifest."""

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
from milabench.workflow.request import Request

if TYPE_CHECKING:
    from milabench.workflow.execution import RunDescription


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRequest:
    """The plan of a request; `bundles` are its steps that are measured, and measured again, together or in turn.

    `pairs` says of each benchmark of an A/B run whether both sides have the same steps.
    """

    request: Request
    plan: Plan
    bundles: tuple[tuple[Step, ...], ...]
    pairs: Mapping[str, bool] = field(default_factory=dict)


def plan_single_suite(context: CommandContext) -> Plan:
    """Return the plan of a run of one suite. Raises NothingSelected, with every reason, when nothing in it can run here."""
    plan = plan_run(context.benches, context.plan_context)
    if not plan.steps:
        hint = "; `milabench install` fetches programs" if any(s.why == "not fetched" for s in plan.skipped) else ""
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
    return "; ".join(f"{skip.bench}: {skip.why}" for skip in plan.skipped)


def require_request_ready(request: Request, plan: Plan) -> None:
    """Raise EnvironmentFailed, with the command to give, unless everything that the plan needs is there."""
    for name, side in zip(SIDES, request.sides, strict=False):
        preflight.require_ready(side, of_side(plan, name) if request.is_ab else plan)


def describe_run(
    planned: PlannedRequest,
    *,
    stamp: str = "",
    validations: Sequence[str] | None = None,
    replicates: Mapping[str, Replicates] | None = None,
) -> RunDescription:
    """Return what the run directory holds beside the plan; of an A/B run, of both sides, each under its name.

    `stamp` is the time in the name of a multirun's run, which is added to every run's name anyway; `replicates` are the
    numbers that a budget has decided.
    """
    request, target = planned.request, planned.request.target
    parts = [_describe_side(side, request.name.removesuffix(f".{stamp}")) for side in request.sides]
    manifest = dict(parts[0].manifest)
    options = dict(manifest["options"])
    suite = parts[0].suite
    if target is not None:
        # `resume` and --failed compute the number of replicates from the target again.
        options |= {
            "repeat": None if target.precision is not None else options["repeat"],
            "precision": None if target.precision is None else f"{100 * target.precision:g}%",
            "budget": None if target.budget_s is None else f"{target.budget_s:g}s",
        }
        manifest["aim"] = target.to_json()
    if replicates:
        manifest["replicates"] = {name: number.to_json() for name, number in replicates.items()}
    if validations is not None:
        manifest["validations"] = list(validations)
    if request.is_ab:
        options["ab"] = [str(side.suite_file.absolute()) for side in request.sides]
        suite = _by_side([part.suite for part in parts])
        manifest["programs"] = _by_side([part.manifest["programs"] for part in parts])
        manifest["ab"] = {
            "suites": options["ab"],
            "pairs": {
                bench: {**{side: side_name(bench, side) for side in SIDES}, "same_steps": is_same}
                for bench, is_same in planned.pairs.items()
            },
        }
    return replace(
        parts[0],
        suite=suite,
        locks={name: lock for part in parts for name, lock in part.locks.items()},
        packages={venv: versions for part in parts for venv, versions in part.packages.items()},
        manifest={**manifest, "options": options},
    )


def _by_side(values: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        side_name(bench, side): value
        for side, benches in zip(SIDES, values, strict=True)
        for bench, value in benches.items()
    }


def _describe_side(context: CommandContext, name: str) -> RunDescription:
    from milabench.workflow.execution import RunDescription
    from milabench.workflow.preflight import environment_records
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
    """Return the selected benchmarks as resolved, without their secrets: what a later reader needs of the suite."""
    from milabench.config.show import benchmark_completions
    from milabench.plan.environ import secret_names

    values = {bench.config.name: benchmark_completions(bench.config) for bench in context.benches}
    for value in values.values():
        value["env"] = {name: text for name, text in value["env"].items() if name not in secret_names(value["env"])}
    return values
