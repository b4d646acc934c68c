"""Saves the options of a command in the manifest, so that the same plan can be made again, and compares it with a later plan."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from milabench.analysis.replicates import PrecisionTarget
from milabench.bench.load import folder_digest
from milabench.bench.readme import stands_for
from milabench.errors import RecordError
from milabench.events.rundir import Run
from milabench.events.stored_json import from_json_value
from milabench.plan.context import COMMAND
from milabench.plan.model import Plan
from milabench.redaction import MASK, mask_argument
from milabench.seams import handler
from milabench.workflow.context import settings_overrides
from milabench.workflow.options import CommandContext, Extent, SuiteOptions

_SHOWN = 12
_LISTS = {"overrides": "--override", "slurm_args": "--slurm-arg"}
# As `VenvSpec.folder` names it.
_STORE_FOLDER = re.compile(r"/\.store/([^/\"]+?)-[0-9a-f]{16}\b")


def save_options(context: CommandContext) -> dict[str, object]:
    """Return the manifest's entries besides suite, system and plan."""
    options, plan_context = context.options, context.plan_context
    saved = {option.name: getattr(options, option.name) for option in fields(SuiteOptions)}
    for name, path in (
        ("config_file", context.suite_file),
        ("system_file", options.system_file),
        ("lock", options.lock),
    ):
        saved[name] = None if path is None else os.path.abspath(path)  # noqa: PTH100  links stay as they are
    saved["base"] = context.dirs.base
    # JSON has no tuples: what is read back must equal what was written.
    for name in _LISTS:
        saved[name] = [mask_argument(word) for word in getattr(options, name)]
    # Each process binds the stated nodes to those that it has; what chose the size matters to who asks, now.
    del saved["bound_nodes"], saved["size_by"]
    return {
        "options": {
            **saved,
            "run_name": plan_context.run_name,
            "repeat": plan_context.repeats,
            "profile": plan_context.profile.name,
            "environ": {name: os.environ[name] for name in settings_overrides(os.environ)},
        },
        "programs": program_digests(context),
        "about": sentences(context),
        **capsule_entry(context.suite_file),
    }


def capsule_entry(suite_file: Path) -> dict[str, str]:
    """Return `{"capsule": its digest}` for a suite from a capsule. Raises RecordError when the suite was changed."""
    home = suite_file.absolute().parent.parent
    if not (home / "capsule.json").is_file():
        return {}
    return {"capsule": f"sha256:{handler('the suite of a capsule')(home, 'suite')}"}


def load_options(run: Run) -> tuple[SuiteOptions, Extent]:
    """Return the options that a run was made with. The environment is as it is now, but for MILABENCH_*, which is as it was.

    Raises RecordError for a run without them.
    """
    saved = run.manifest.get("options")
    if not isinstance(saved, dict):
        what = "does not hold the options of its command" if run.manifest else "is missing or truncated"
        raise RecordError(f"{run.path}: cannot resume: the manifest {what}. Start a new run with `milabench run`")
    try:
        values = {option.name: saved.get(option.name, option.default) for option in fields(SuiteOptions)}
        for name in ("config_file", "system_file", "base", "lock"):
            values[name] = None if values[name] is None else Path(values[name])
        for name, option in _LISTS.items():
            values[name] = tuple(values[name])
            if any(MASK in word for word in values[name]):
                # Without the value another command would be run.
                raise RecordError(
                    f"{run.path}: cannot resume: a secret was given by {option}, and records keep none. Start a new run, with"
                    " the secret in a variable and ${oc.env:VARIABLE} in its place"
                )
        ab = saved.get("ab")
        # Variables that milabench does not read (PATH, proxies, tokens) may be other ones today; they are not in the records.
        now = {name: value for name, value in os.environ.items() if not name.startswith("MILABENCH_")}
        values["environ"] = {**now, **saved["environ"]}
        extent = Extent(
            repeat=saved["repeat"],
            profile=str(saved["profile"]),
            ab=None if ab is None else (Path(ab[0]), Path(ab[1])),
            run_name=str(saved["run_name"]),
            seed=int(run.manifest["seed"]),
        )
        return SuiteOptions(**values), extent
    except (KeyError, IndexError, TypeError, ValueError) as error:
        text = f"{run.path}: its manifest was altered: {error}. Start a new run with `milabench run`"
        raise RecordError(text) from None


def target_of(run: Run) -> PrecisionTarget | None:
    """Return the precision and the time of a run. None when the number of its replicates was given."""
    saved = run.manifest.get("aim")
    return None if saved is None else from_json_value(PrecisionTarget, saved)


def replicates_of(run: Run) -> dict[str, int]:
    """Return the number of replicates of each benchmark of a run, where it was computed. Empty before that."""
    saved = run.manifest.get("replicates") or {}
    return {bench: int(number["planned"]) for bench, number in saved.items() if number}


def is_undecided(run: Run) -> bool:
    """Return whether it was not yet decided that all benchmarks of a run are precise, or have been launched often enough."""
    target = target_of(run)
    return target is not None and target.precision is not None and not (run.is_ended and run.verdict == "passed")


def sentences(context: CommandContext) -> dict[str, str]:
    """Return the workload that each benchmark represents, from its suite or its README."""
    # A command without a definition has no folder of its own.
    lines = {
        bench.config.name: stands_for(bench.config.describe.what, Path(bench.folder))
        for bench in context.benches
        if bench.config.definition is not None
    }
    return {name: line for name, line in lines.items() if line}


def program_digests(context: CommandContext) -> dict[str, str]:
    """Return `{benchmark: sha256}` of the files that define it. A fetched program has its revision in the plan."""
    return {
        bench.config.name: folder_digest(Path(bench.folder))
        for bench in context.benches
        if bench.declared is not None and bench.declared is not COMMAND
    }


def packages_digest(packages: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return `{environment: sha256}` over the packages of environments that `milabench install` did not make."""
    return {
        venv: hashlib.sha256("\n".join(f"{name}=={versions[name]}" for name in sorted(versions)).encode()).hexdigest()
        for venv, versions in packages.items()
    }


def plan_differences(run: Run, plan: Plan, manifest: Mapping[str, object]) -> list[str]:
    """Return the differences between a run as planned and as it would be now, a line each. Empty when it can be resumed.

    `manifest` is the manifest of the new run: `locks` and `programs`.
    """
    from milabench.plan.diff import diff_text, plan_diff  # imports difflib, only to resume

    before, now = run.manifest.get("plan") or {}, plan.to_json()
    if before.get("hash") == plan.hash:
        before = now  # the system is no part of the hash
    diff = plan_diff(
        {**before, "system": run.manifest.get("system"), "steps": _without_digests(before.get("steps") or [])},
        {**now, "steps": _without_digests(now["steps"])},
    )
    lines = changed_files(run, manifest) + (diff_text(diff).splitlines() if diff else [])
    return [*lines[:_SHOWN], f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else lines


def changed_files(run: Run, manifest: Mapping[str, Any]) -> list[str]:
    """Return which environments and programs are others than when a run was planned, a line each."""
    before, lines = run.manifest, []
    for what, key in (("environment", "locks"), ("program of", "programs")):
        old, new = before.get(key) or {}, manifest.get(key) or {}
        for name in sorted({*old, *new}):
            if old.get(name) != new.get(name):
                change = "changed" if name in old and name in new else "new" if name in new else "gone"
                lines.append(f"{what} {name}: {change}")
    return lines


def _without_digests(steps: Sequence[Mapping[str, object]]) -> Any:
    """Return steps as in a manifest, with the environments' folders named by their groups alone, as the links to them are.

    The lock shows whether an environment differs, and plans of older versions name the links.
    """
    return json.loads(_STORE_FOLDER.sub(r"/\1", json.dumps(steps)))
