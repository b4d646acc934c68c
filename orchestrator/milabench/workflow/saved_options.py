"""What a run directory remembers of its command, so that the same plan can be decided again, and what differs by now."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milabench.analysis.replicates import PrecisionTarget
from milabench.cli.options import SuiteOptions
from milabench.errors import RecordError

if TYPE_CHECKING:
    from milabench.events.rundir import Run
    from milabench.plan.model import Plan
    from milabench.workflow.context import CommandContext

_SHOWN = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedOptions:
    """The options of a command, and the variables that stood for options; `ab` are the suites of an A/B run."""

    options: SuiteOptions
    ab: tuple[Path, Path] | None = None
    run_name: str
    repeats: int | None
    profile: str
    seed: int
    environ: Mapping[str, str] = field(default_factory=dict)


def save_options(
    options: SuiteOptions, inputs: CommandContext, environ: Mapping[str, str] = os.environ
) -> dict[str, Any]:
    """What the manifest keeps beside suite, system and plan."""
    from milabench.workflow.context import settings_overrides

    kept = {each.name: getattr(options, each.name) for each in fields(SuiteOptions)}
    for name in ("config_file", "system_file", "base"):
        path = inputs.suite_file if name == "config_file" else kept[name]
        kept[name] = None if path is None else os.path.abspath(path)  # noqa: PTH100  links stay as they are
    kept["base"] = inputs.where.dirs.base
    kept["overrides"] = list(options.overrides)
    where = inputs.where
    return {
        "options": {
            **kept,
            "run_name": where.run_name,
            "repeat": where.repeats,
            "profile": where.profile.name,
            "environ": {name: environ[name] for name in settings_overrides(environ)},
        },
        "programs": program_digests(inputs),
    }


def load_options(run: Run) -> SavedOptions:
    """What `remember` kept. Raises RecordError for a run that cannot be decided again."""
    kept = run.manifest.get("options")
    if not isinstance(kept, dict):
        what = "does not hold all that its command was given" if run.manifest else "is not there, or only its beginning"
        raise RecordError(f"{run.path}: cannot go on: the manifest {what}; start anew with `milabench run`")
    try:
        shared = {each.name: kept.get(each.name, each.default) for each in fields(SuiteOptions)}
        for name in ("config_file", "system_file", "base"):
            shared[name] = None if shared[name] is None else Path(shared[name])
        shared["overrides"] = tuple(shared["overrides"])
        ab = kept.get("ab")
        return SavedOptions(
            options=SuiteOptions(**shared),
            ab=None if ab is None else (Path(ab[0]), Path(ab[1])),
            run_name=str(kept["run_name"]),
            repeats=kept["repeat"],
            profile=str(kept["profile"]),
            seed=int(run.manifest["seed"]),
            environ=dict(kept["environ"]),
        )
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise altered_settings(run, error) from None


def altered_settings(run: Run, error: Exception) -> RecordError:
    """What to say of a manifest that does not hold what we wrote."""
    return RecordError(f"{run.path}: its manifest was altered: {error}; start anew with `milabench run`")


def aim_of(run: Run) -> PrecisionTarget | None:
    """What a run aims at; None when the number of its replicates was given."""
    kept = run.manifest.get("aim")
    if kept is None:
        return None
    try:
        numbers = {name: None if kept.get(name) is None else float(kept[name]) for name in ("precision", "budget_s")}
    except (AttributeError, TypeError, ValueError) as error:
        raise altered_settings(run, error) from None
    return PrecisionTarget(**numbers)


def replicates_of(run: Run) -> dict[str, int]:
    """How often each benchmark of a run is run, where that was computed; nothing before it was."""
    kept = run.manifest.get("replicates")
    try:
        return {str(bench): int(each["planned"]) for bench, each in (kept or {}).items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise altered_settings(run, error) from None


def is_undecided(run: Run) -> bool:
    """Whether the pilot of a run has yet to decide how often its benchmarks are run."""
    aim = aim_of(run)
    return aim is not None and aim.precision is not None and "replicates" not in run.manifest


def saved_environment(remembered: SavedOptions, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables as they are now, but for ours, which are as they were."""
    now = {name: value for name, value in environ.items() if not name.startswith("MILABENCH_")}
    return {**now, **remembered.environ}


def program_digests(inputs: CommandContext) -> dict[str, str]:
    """`{benchmark: sha256}` of the files that define it; a fetched program is told apart by its revision, in the plan."""
    from milabench.plan.context import COMMAND

    return {
        bench.config.name: _folder_digest(Path(bench.folder))
        for bench in inputs.benches
        if bench.declared is not None and bench.declared is not COMMAND
    }


def _folder_digest(folder: Path) -> str:
    """Over names and contents; what running leaves behind (byte code, hidden files) does not count."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if "__pycache__" in name.parts or any(part.startswith(".") for part in name.parts) or not path.is_file():
            continue
        with path.open("rb") as file:
            found.update(f"{name}\0{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return found.hexdigest()


def packages_digest(packages: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """`{environment: sha256}` over the packages of environments that we did not make."""
    return {
        place: hashlib.sha256("\n".join(f"{name}=={held[name]}" for name in sorted(held)).encode()).hexdigest()
        for place, held in packages.items()
    }


def plan_differences(run: Run, plan: Plan, told: Mapping[str, Any]) -> list[str]:
    """What differs between a run as it was planned and as it would be now, a line each; none when it can go on.

    `told` is what the manifest of the new one would hold: `locks` and `programs`.
    """
    from milabench.plan.diff import lasting

    before = run.manifest
    lines = [f"system.{line}" for line in _changed(lasting(before.get("system")), lasting(plan.system))]
    for what, kept in (("environment", "locks"), ("program of", "programs")):
        old, new = before.get(kept) or {}, told.get(kept) or {}
        for name in sorted({*old, *new}):
            if old.get(name) != new.get(name):
                lines.append(f"{what} {name}: {_was(old.get(name), new.get(name))}")
    lines += _plan_differences(before.get("plan") or {}, plan)
    return [*lines[:_SHOWN], f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else lines


def _plan_differences(before: Mapping[str, Any], plan: Plan) -> list[str]:
    if before.get("hash") == plan.hash:
        return []
    from milabench.plan.diff import diff_text, plan_diff

    hashes = {step.id: step.hash for step in plan.steps}
    steps = before.get("steps") or []
    unlike = {each["id"] for each in steps if hashes.get(each["id"]) != each.get("hash")}
    unlike |= hashes.keys() - {each["id"] for each in steps}
    now = json.loads(json.dumps(plan.to_json()))  # as the manifest has it: lists, where ours are tuples
    told = plan_diff(
        {**before, "system": {}, "steps": [each for each in steps if each["id"] in unlike]},
        {**now, "system": {}, "steps": [each for each in now["steps"] if each["id"] in unlike]},
    )
    return diff_text(told).splitlines() if told else ["suite: the order of the steps"]


def _was(old: object, new: object) -> str:
    return "new" if old is None else "gone" if new is None else "changed"


def _changed(old: Any, new: Any, path: str = "") -> list[str]:
    if old == new:
        return []
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return [
            line
            for key in dict.fromkeys([*old, *new])
            for line in _changed(old.get(key), new.get(key), f"{path}.{key}" if path else str(key))
        ]
    return [f"{path}: {old} -> {new}"]
