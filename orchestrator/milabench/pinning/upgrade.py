"""Tries newer locks before they are used: resolved in a scratch copy, installed separately, run at the smallest size."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from milabench.errors import (
    DONE,
    INTERRUPTED,
    STEPS_FAILED,
    MilabenchError,
    NothingSelected,
    UsageError,
)
from milabench.events.atomic_write import replace_file
from milabench.events.removal import copy_tree, fresh_scratch, move
from milabench.execute.retry_policy import RetryPolicy
from milabench.pinning.pinned_locks import pin_benchmarks
from milabench.plan.requirements import parse_requirements
from milabench.quickstart.all_stages import measure_suite
from milabench.shown import grouped
from milabench.workflow import environments
from milabench.workflow.context import read_context, read_suite_only
from milabench.workflow.device_use import require_free_devices
from milabench.workflow.files import base_folder, display_path, suite_file
from milabench.workflow.options import CommandContext, Extent, Session, SuiteOptions
from milabench.workflow.run_suite import RunSettings

SIZE = "tiny"
FAILED = "failed-upgrade"
"""Folder of the cache with the records of the latest attempt in which something failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLock:
    """A lock as it is and as it would be, with the changes. `benches` are the selected benchmarks that use it."""

    group: str
    old: Path
    new: Path
    changes: tuple[str, ...]
    benches: tuple[str, ...]


def version_changes(old: str, new: str) -> tuple[str, ...]:
    """Return the differences between the packages of two locks: `name 1 -> 2`, `+ name 1`, `- name 1`."""
    before, after = (
        {f"{pin.name} {pin.marker}".strip(): pin.version or pin.line for pin in parse_requirements(text).pins}
        for text in (old, new)
    )
    changed = [
        f"{name} {before[name]} -> {after[name]}" for name in before if after.get(name, before[name]) != before[name]
    ]
    added = [f"+ {name} {after[name]}" for name in after if name not in before]
    removed = [f"- {name} {before[name]}" for name in before if name not in after]
    return (*changed, *added, *removed)


def mirror(files: Sequence[Path], folders: Sequence[Path], root: Path, scratch: Path) -> None:
    """Copy files and folders below a root to the same places below scratch. Their neighbours are linked."""
    for folder in folders:
        ignored = shutil.ignore_patterns("__pycache__", ".*")
        copy_tree(folder, scratch / folder.relative_to(root), ignored, is_added=True)
    for file in files:
        (scratch / file.relative_to(root)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, scratch / file.relative_to(root))
    for parent in {path.parent for path in (*files, *folders)}:
        for beside in parent.iterdir():
            place = scratch / beside.relative_to(root)
            if not place.exists() and not scratch.is_relative_to(beside):
                place.symlink_to(beside)


def upgrade(options: SuiteOptions, python: str, session: Session, *, write: bool, wait: bool) -> int:
    """Propose newer locks for this machine's variant, try each, and keep with `write` those that pass. Return the exit code.

    Nothing of the tree is changed otherwise. Raises ConfigError, UsageError, EnvironmentFailed, and Unreachable for a device in
    use unless `wait`.
    """
    context, options = _at_smallest_size(options, session)
    require_free_devices(context, wait=wait)
    cache = base_folder(options.base) / "cache"
    (cache / "wheels").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="upgrade-", dir=cache, ignore_cleanup_errors=True) as name:
        own = Path(name, "base", "cache")
        own.mkdir(parents=True)
        (own / "wheels").symlink_to(cache / "wheels")  # the instruments, built once
        locks, tried = propose(context, options, python, session, Path(name))
        if not locks:
            session.info("pin: the locks are as new as requirements.in and constraints/ allow")
            return DONE
        for lock in locks:
            session.info(f"{display_path(lock.old)}:")
            for change in lock.changes:
                session.info(f"  {change}")
        problems: dict[str, str] = {}
        for group, benches in grouped((lock.group, name) for lock in locks for name in lock.benches).items():
            names = dict.fromkeys(benches)
            code, why = _try(replace(tried, select=",".join(names)), session, wait=wait)
            if code == INTERRUPTED:
                session.info("interrupted. No lock was changed")
                return INTERRUPTED
            if why:
                why = why.replace(str(Path(name, "base")), str(cache / FAILED))
                problems[group] = why
            session.info(f"pin: {group}: {'failed: ' + why if why else 'passed'}: {', '.join(names)}")
        if problems:
            session.info(f"pin: the records and logs of the trial are in {display_path(_kept(name, cache))}")
        passed = [lock for lock in locks if lock.group not in problems]
        for lock in passed if write else ():
            replace_file(lock.old, lock.new.read_bytes())
        kept = f"{len(passed)} of {len(locks)} locks passed"
        others = "`milabench pin --all-variants` writes the locks of other machines again"
        done = f", and were written. {others}" if write else f". Nothing is written: --write keeps them. {others}"
        session.info(f"pin: {kept}{done if passed else '. Nothing is written'}")
        return STEPS_FAILED if problems else DONE


def _kept(scratch: str, cache: Path) -> Path:
    """Keep the records and logs of an attempt, but no environments and caches, in place of earlier ones. Return the folder."""
    kept = fresh_scratch(cache / FAILED)
    for path in Path(scratch, "base").iterdir():
        if path.name not in ("venv", "cache", "data", "code"):
            move(path, kept / path.name)
    return kept


def propose(
    context: CommandContext, options: SuiteOptions, python: str, session: Session, scratch: Path
) -> tuple[list[NewLock], SuiteOptions]:
    """Resolve the locks again in a copy of the suite. Return those that differ, and the options that mean the copy."""
    configs = context.suite.benchmarks.values()
    definitions = {config.name: config.definition for config in configs if isinstance(config.definition, Path)}
    places = {name: environments.requirements_of(folder) for name, folder in definitions.items()}
    folders = list(dict.fromkeys([*definitions.values(), *(place.resolve() for place in places.values())]))
    files = [file.resolve() for file in context.suite.files]
    root = Path(os.path.commonpath([str(path.parent) for path in (*files, *folders)]))
    tree = scratch / "tree"
    mirror(files, folders, root, tree)
    own_suite = suite_file(options.config_file).resolve()
    copied = replace(
        options,
        config_file=tree / own_suite.relative_to(root),
        base=scratch / "base",
    )
    outside = [
        bench.config.name
        for bench in read_context(copied, session, warn=False).benches
        if isinstance(bench.config.definition, Path) and not bench.config.definition.is_relative_to(tree)
    ]
    if outside:
        raise UsageError(
            f"{', '.join(outside)}: a definition with an absolute path cannot be tried apart. Make it relative"
        )
    arch = context.plan_context.facts.arch
    pin_benchmarks(copied, (arch,), python, session, is_proposal=True)
    selected = {bench.config.name: bench.config.install_group for bench in context.benches}
    users = grouped((places[name].resolve() / f"requirements.{arch}.txt", name) for name in selected if name in places)
    locks = []
    for old, benches in users.items():
        new = tree / old.relative_to(root)
        if changes := version_changes(old.read_text() if old.is_file() else "", new.read_text()):
            group = selected[benches[-1]]
            locks.append(NewLock(group=group, old=old, new=new, changes=changes, benches=tuple(benches)))
    return locks, copied


def _at_smallest_size(options: SuiteOptions, session: Session) -> tuple[CommandContext, SuiteOptions]:
    """Return the suite at the smallest size, or the requested size, and the options for it.

    Benchmarks without sizes are as they are. Those that have sizes and not the smallest are left out, which is reported. Raises
    NothingSelected where none is left.
    """
    context = read_context(options, session)
    if options.size or not any(bench.config.size for bench in context.benches):
        return context, options
    smallest = replace(options, size=SIZE)
    lacking = read_suite_only(smallest).lacking
    selected = [bench.config.name for bench in context.benches]
    if untried := [name for name in selected if name in lacking]:
        session.info(f"pin: not tried, with sizes and none that is {SIZE}: {', '.join(untried)}")
    kept = [name for name in selected if name not in lacking]
    if not kept:
        raise NothingSelected(f"no selected benchmark has the size {SIZE}. Choose a size to try with --size")
    if untried:
        smallest = replace(smallest, select=",".join(kept))
    return read_context(smallest, session, warn=False), smallest


def _try(options: SuiteOptions, session: Session, *, wait: bool) -> tuple[int, str]:
    """Install, prepare and run in environments apart. Return the exit code, and why it is no success."""
    extent = Extent(run_name="upgrade", profile="quick", repeat=1)
    settings = RunSettings(retry=RetryPolicy(wait=wait), as_default=False, is_kept=False)
    try:
        runs, code = measure_suite(options, extent, settings, session, session.info)
    except MilabenchError as error:
        return error.exit_code, str(error).splitlines()[0]
    if code in (DONE, INTERRUPTED):
        return code, ""
    return code, _failures_of(runs)


def _failures_of(runs: Sequence[str]) -> str:
    """Return which benchmarks of runs did not pass."""
    from milabench.analysis.summary import summarise
    from milabench.events.rundir import open_run

    outcomes: Mapping[str, str] = {
        bench.bench: bench.outcome for run in runs for bench in summarise(open_run(Path(run))).benchmarks
    }
    return (
        ", ".join(name for name, outcome in outcomes.items() if outcome not in ("passed", "skipped")) + " did not pass"
    )
