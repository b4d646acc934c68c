"""Writes the lock files of the selected benchmarks: uv resolves, the indexes list the files, and each replaces its old lock."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from milabench.errors import EnvironmentFailed
from milabench.events.atomic_write import replace_file
from milabench.execute.activities import Report
from milabench.execute.install_session import find_uv
from milabench.execute.installer import explain_failure, torch_index
from milabench.execute.interrupts import thread_map
from milabench.execute.package_indexes import indexes, pip_settings, url_responds, uv_env, uv_options
from milabench.execute.sources import release_files
from milabench.execute.venv_build import benchmate_requirements
from milabench.pinning.compiled_locks import PinInput, PinSpec, lock_text, pin_command, pin_specs
from milabench.plan.pin import excluded_packages, inputs_digest
from milabench.plan.requirements import RequirementFile, parse_requirements
from milabench.plan.venvs import UNPINNED
from milabench.redaction import mask
from milabench.shown import grouped
from milabench.workflow import environments
from milabench.workflow.context import read_context
from milabench.workflow.files import require_file
from milabench.workflow.foreign_environments import ADDED, foreign_requirements, lock_name
from milabench.workflow.install import progress_report
from milabench.workflow.options import CommandContext, Session, SuiteOptions

Releases = dict[str, tuple[tuple[str, str], ...]]
"""The names and sha256 of all files of each project, as the indexes list them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """A lock that was written, or was up to date. `unverified` names unchecked parts."""

    path: Path
    has_changed: bool
    packages: int
    unverified: str = ""


def pin_benchmarks(
    options: SuiteOptions, variants: Sequence[str], python: str, session: Session, *, is_proposal: bool = False
) -> None:
    """Write the locks of the selected benchmarks for these variants, by default the system's, and this Python.

    Of a proposal, in a copy of the tree, nobody is told how many files changed. Raises ConfigError and EnvironmentFailed.
    """
    context = read_context(options, session)
    wanted = variants or (context.plan_context.facts.arch,)
    groups = {bench.config.install_group for bench in context.benches}
    # Benchmarks that share a folder share its locks: each is written once.
    folders = dict.fromkeys(
        (config.install_group, environments.requirements_of(config.definition))
        for config in context.suite.benchmarks.values()
        if config.install_group in groups and isinstance(config.definition, Path)
    )
    instruments = benchmate_requirements(environments.BENCHMATE)
    foreign = {folder for _, folder in folders if foreign_requirements(folder) is not None}
    specs = [
        spec
        for variant in wanted
        for added, is_foreign in (((), False), (ADDED, True))
        for spec in pin_specs(
            [
                (group, each)
                for group, folder in folders
                if (folder in foreign) is is_foreign
                for each in pin_inputs(folder, variant)
            ],
            variant,
            python=python,
            benchmate=(*instruments, *added),
            constraints=_constraints(variant),
        )
    ]
    written = pin_locks(specs, environ=dict(os.environ), report=progress_report(session))
    changed = sum(lock.has_changed for lock in written)
    if not is_proposal:
        session.info(f"pin: {changed} of {len(written)} lock files changed")
        for where, benches in _unpinned(context).items():
            session.warn(
                f"{', '.join(benches)}: installed without these locks, from requirements.in. To use them, remove "
                f"`install_variant: unpinned` at {where}"
            )


def _constraints(variant: str) -> RequirementFile | None:
    path = environments.CONSTRAINTS / f"{variant}.txt"
    return RequirementFile(name=str(path), text=path.read_text()) if path.is_file() else None


def _unpinned(context: CommandContext) -> dict[str, list[str]]:
    """Return the selected benchmarks that the suite itself leaves without a lock, by the place where it says so."""
    configs = [bench.config for bench in context.benches if bench.config.install_variant == UNPINNED]
    kept = (config for config in configs if config.name not in context.missing_locks)
    return grouped((config.origin.where("install_variant"), config.name) for config in kept)


def pin_inputs(folder: Path, variant: str) -> Iterator[PinInput]:
    """Yield the locks of a folder for a variant, each with its source, its own where it exists. Raises EnvironmentFailed."""
    names = foreign_requirements(folder)
    for name in ("requirements.in",) if names is None else names:
        requirements = environments.requirements_source(folder, variant) if names is None else folder / name
        if requirements.exists():  # uv says best what is not there, but waits for a pipe
            require_file(requirements, EnvironmentFailed)
        yield PinInput(requirements=str(requirements), lock=str(folder / lock_name(name, variant)))


def pin_locks(specs: Sequence[PinSpec], *, environ: Mapping[str, str], report: Report) -> tuple[Pinned, ...]:
    """Write the locks of every specification. Raises EnvironmentFailed at the first that cannot be resolved."""
    uv = find_uv(environ)
    if uv is None:
        raise EnvironmentFailed("pin needs uv, which was not found. Install it with `pip install uv`")
    settings = pip_settings(environ)
    is_reachable = cache(lambda backend: url_responds(torch_index(backend), {**environ, **uv_env(settings, environ)}))
    known: Releases = {}
    written: list[Pinned] = []
    for spec in specs:
        report(f"{spec.group} ({spec.variant}): resolving")
        backend = spec.backend if spec.backend and is_reachable(spec.backend) else None
        written += _pin(spec, uv, environ, settings, backend, known)
    for lock in written:
        change = "written" if lock.has_changed else "unchanged"
        report(f"{lock.path}: {change}: " + f"{lock.packages} packages {lock.unverified}".strip())
    return tuple(written)


def _pin(
    spec: PinSpec,
    uv: str,
    environ: Mapping[str, str],
    settings: Mapping[str, str],
    backend: str | None,
    known: Releases,
) -> list[Pinned]:
    """Write the locks of a specification. `backend` is torch's when its index answers."""
    if spec.variant not in ("cpu", "unpinned"):
        # A local folder of cpu builds has the higher version (2.13.0+cpu is above 2.13.0) and would win.
        settings = {name: value for name, value in settings.items() if name != "find-links"}
        environ = {name: value for name, value in environ.items() if name not in ("UV_FIND_LINKS", "PIP_FIND_LINKS")}
    compiled = _compiled(spec, uv, environ, settings, backend)
    pinned = {pin.name for text in compiled.values() for pin in parse_requirements(text).pins}
    names = sorted(pinned - set(known))
    places = indexes(settings, environ)
    stop = threading.Event()
    listed = thread_map(lambda name: release_files(name, places, stop), names, jobs=8, stop=stop.set)
    known |= dict(zip(names, listed, strict=True))
    unverified = ""
    if "torch" in pinned and spec.backend and backend is None and spec.variant != "cpu":
        unverified = f"{torch_index(spec.backend)} could not be reached, and nobody has installed from this lock"
    constraints = spec.constraints.text if spec.constraints is not None else ""
    written = []
    for each, text in compiled.items():
        inputs = inputs_digest(Path(each.requirements).read_text(), constraints)
        lock = lock_text(text, spec, known, inputs=inputs, unverified=unverified)
        written.append(_write(Path(each.lock), lock, unverified))
    return written


def _compiled(
    spec: PinSpec, uv: str, environ: Mapping[str, str], settings: Mapping[str, str], backend: str | None
) -> dict[PinInput, str]:
    """Return the requirements of each input with versions and hashes, in the versions that suit all of them together.

    Raises EnvironmentFailed.
    """
    env = {**environ, "UV_NO_PROGRESS": "1", "NO_COLOR": "1", "COLUMNS": "1000", **uv_env(settings, environ)}
    with tempfile.TemporaryDirectory(prefix="milabench-pin-") as name:
        folder = Path(name)
        instruments = folder / "benchmate.in"
        instruments.write_text("".join(f"{line}\n" for line in spec.benchmate))
        together = folder / "group.txt"
        limits = [spec.constraints.name] if spec.constraints is not None else []
        options = list(uv_options(settings))
        if left_out := excluded_packages(Path(each.requirements).read_text() for each in spec.inputs):
            (folder / "exclude.txt").write_text("".join(f"{name}\n" for name in left_out))
            options += ["--excludes", str(folder / "exclude.txt")]

        command = partial(pin_command, uv, spec, backend=backend, options=options)

        def compile_into(output: Path, inputs: Sequence[str], constraints: Sequence[str], hashes: bool) -> str:
            argv = command(inputs=inputs, constraints=constraints, output=str(output), hashes=hashes)
            process = subprocess.run(
                argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
            )
            if process.returncode != 0:
                raise EnvironmentFailed(f"{spec.group} ({spec.variant}): {mask(explain_failure(process.stderr))}")
            return output.read_text()

        compile_into(together, [*(each.requirements for each in spec.inputs), str(instruments)], limits, hashes=False)
        return {
            each: compile_into(
                folder / f"{index}.txt", [each.requirements, str(instruments)], [str(together), *limits], hashes=True
            )
            for index, each in enumerate(spec.inputs)
        }


def _write(path: Path, text: str, unverified: str) -> Pinned:
    has_changed = not path.is_file() or path.read_text() != text
    if has_changed:
        replace_file(path, text.encode())
    return Pinned(
        path=path, has_changed=has_changed, packages=len(parse_requirements(text).pins), unverified=unverified
    )
