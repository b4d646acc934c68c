"""The environments of benchfiles that are not ours (bench/registry.py): their requirement files, locks and pip settings.

They were pinned without hashes, by tools that installed the files in sequence into an environment, so that the last won. Here
definitions share an environment as far as their locks agree. A definition without a lock for the machine has its own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from milabench.bench.registry import BENCHFILE, ask_together, foreign_format
from milabench.plan.pin import MADE_BY
from milabench.plan.requirements import (
    Lock,
    RequirementFile,
    merge_locks,
    parse_requirements,
    preferred_versions,
    unbroken_constraints,
    with_absolute_paths,
)
from milabench.plan.venvs import UNPINNED, VenvRequest, agreeing_groups
from milabench.shown import grouped
from milabench.workflow.files import display_path
from milabench.workflow.requirement_files import read_requirements, required_packages

if TYPE_CHECKING:
    from milabench.config.schema import BenchmarkConfig, Suite

BASE_REQUIREMENTS: Final = "base_requirements"
ADDED: Final = ("torchcompat==1.1.4",)
"""Packages that their programs import besides the instruments, found in every environment."""
_USUAL: Final = "cuda"


def foreign_requirements(definition: Path) -> tuple[str, ...] | None:
    """Return the names of a foreign benchfile's requirement files. None for our own benchfiles. It is read, not run."""
    benchfile = definition / BENCHFILE
    if foreign_format(benchfile) is None:
        return None
    statements = ast.parse(benchfile.read_text(encoding="utf-8")).body
    members = [member for statement in statements if isinstance(statement, ast.ClassDef) for member in statement.body]
    for member in reversed(members):
        if isinstance(member, ast.Assign) and BASE_REQUIREMENTS in map(ast.unparse, member.targets):
            try:
                named = ast.literal_eval(member.value)
            except ValueError:
                break
            return (named,) if isinstance(named, str) else tuple(map(str, named or ()))
    return ("requirements.in",)


def lock_name(requirements: str, variant: str) -> str:
    """Return the name of the lock of a requirement file: requirements.cuda.txt for requirements.in."""
    return requirements if variant == UNPINNED else f"{requirements.removesuffix('.in')}.{variant}.txt"


def with_own_environments(
    suite: Suite, selected: Sequence[BenchmarkConfig]
) -> tuple[Suite, tuple[BenchmarkConfig, ...], Mapping[str, str]]:
    """Return suite and selected benchmarks with the environments that foreign benchfiles have, and the missing locks.

    Benchmarks of an install group with agreeing locks share its environment. A benchmark whose lock disagrees, or which has
    none for its variant, gets an environment of its own, the latter from requirements.in. The last value has the missing
    locks by benchmark, as a person names them.
    """
    definitions = [bench.definition for bench in suite.benchmarks.values() if isinstance(bench.definition, Path)]
    if not ask_together(definitions):
        return suite, tuple(selected), {}
    named = ((definition, foreign_requirements(definition)) for definition in dict.fromkeys(definitions))
    names = {definition: files for definition, files in named if files is not None}
    members = grouped(
        (config.install_group, ((config.definition, config.install_variant), config))
        for config in suite.benchmarks.values()
        if isinstance(config.definition, Path) and config.definition in names
    )
    ours = {bench.install_group for bench in suite.benchmarks.values() if bench.definition not in names}
    changes: dict[str, dict[str, Any]] = {}
    missing: dict[str, str] = {}
    for group, pairs in members.items():
        of_group = grouped(pairs)
        locks = {key: _lock(key[0], names[key[0]], key[1]) for key in of_group}
        for number, together in enumerate(agreeing_groups(locks)):
            name = group if number == 0 and group not in ours else f"{group}-{together[0][0].name}"
            for definition, variant in together:
                is_missing = locks[definition, variant] is None and variant != UNPINNED
                for config in of_group[definition, variant]:
                    own = UNPINNED if is_missing else variant
                    changes[config.name] = {"install_group": name, "install_variant": own}
                    if is_missing:
                        missing[config.name] = f"{definition.name}/{lock_name('requirements.in', variant)}"
    benchmarks = dict(zip(suite.benchmarks, _changed(suite.benchmarks.values(), changes), strict=True))
    return replace(suite, benchmarks=benchmarks), _changed(selected, changes), missing


def _changed(
    configs: Iterable[BenchmarkConfig], changes: Mapping[str, Mapping[str, Any]]
) -> tuple[BenchmarkConfig, ...]:
    return tuple(replace(config, **changes.get(config.name, {})) for config in configs)


def _lock(definition: Path, names: Sequence[str], variant: str) -> Lock | None:
    """Return the pins of a definition's locks. None where a lock is missing, or nothing is to be locked."""
    files = [definition / lock_name(name, variant) for name in names]
    if variant == UNPINNED or not files or not all(file.is_file() for file in files):
        return None
    return merge_locks([parse_requirements(read_requirements(file).text) for file in files])


def foreign_request(
    config: BenchmarkConfig,
    names: Sequence[str],
    *,
    constraints: RequirementFile | None,
    arch: str,
    instruments: Sequence[str],
    is_lock_missing: bool,
) -> VenvRequest:
    """Return the environment requirements of a benchmark whose benchfile is not ours. Raises EnvironmentFailed.

    `names` are its requirement files, `constraints` limits on unpinned packages, `instruments` the instruments' needs.
    """
    assert isinstance(config.definition, Path)
    variant, sources = config.install_variant, [config.definition / name for name in names]
    composed = [_composed(config.definition / lock_name(name, variant)) for name in names]
    files = tuple(file for file, _ in composed)
    lock = merge_locks([parse_requirements(file.text) for file in files])
    limits = [line for _, limit in composed for line in limit]
    own_limits = _words(config.pip.get("constraints"), by_line=True)
    usual = _usual_lock(config.definition, names) if is_lock_missing else None
    if variant == UNPINNED and constraints is not None:
        limits += _limits_for_all(constraints, lock, own_limits, usual)
    limits += own_limits
    required = [each for source in sources for each in required_packages(source) or ()]
    overrides = (*instruments, *ADDED)
    is_ours = any(parse_requirements(file.text).header.get("made by") == MADE_BY for file in files)
    return VenvRequest(
        bench=config.name,
        group=config.install_group,
        variant=variant,
        requirements=files,
        constraints=RequirementFile(name=f"constraints of {config.name}", text="".join(f"{line}\n" for line in limits))
        if limits
        else None,
        pip={str(key): str(value) for key, value in config.pip.items() if key not in ("args", "constraints")},
        arch=arch,
        required=tuple(dict.fromkeys(required)),
        overrides=() if is_ours else overrides,
        pip_args=tuple(_words(config.pip.get("args"))),
        preferred=None
        if usual is None
        else _preferred(*usual, lock, parse_requirements("\n".join((*limits, *overrides)))),
    )


def _limits_for_all(
    constraints: RequirementFile, lock: Lock, own_limits: Sequence[str], usual: tuple[str, Lock] | None
) -> list[str]:
    """Return our constraints, except those that the suite or a lock of the definition contradicts.

    A build for a kind of device is not compared with a build for another kind.
    """
    elsewhere = (*parse_requirements("\n".join(own_limits)).pins, *(usual[1].pins if usual is not None else ()))
    asked = replace(lock, pins=(*lock.pins, *(pin for pin in elsewhere if "+" not in (pin.version or ""))))
    return unbroken_constraints(constraints.text, asked).splitlines()


def _usual_lock(definition: Path, names: Sequence[str]) -> tuple[str, Lock] | None:
    """Return a lock for another kind of machine, preferably the most usual kind, and its file. None where there is none."""
    for variant in (_USUAL, *sorted(variants(definition, names))):
        if (lock := _lock(definition, names, variant)) is not None:
            return display_path(definition / lock_name(names[0], variant)), lock
    return None


def _preferred(name: str, lock: Lock, wanted: Lock, limits: Lock) -> RequirementFile | None:
    """Return the versions of a lock for another kind of machine, except of constrained packages."""
    constrained = {pin.name for pin in limits.pins}
    free = replace(wanted, pins=tuple(pin for pin in wanted.pins if pin.name not in constrained))
    text = preferred_versions(free, lock)
    return RequirementFile(name=name, text=text) if text else None


def variants(definition: Path, names: Sequence[str]) -> set[str]:
    """Return the variants for which a definition has locks of its requirement files."""
    stems = [name.removesuffix(".in") for name in names]
    return {file.name[len(stem) + 1 : -4] for stem in stems for file in definition.glob(f"{stem}.*.txt")}


def _composed(file: Path) -> tuple[RequirementFile, list[str]]:
    """Return a requirement file with those that it includes by -r behind it, and the lines of those that it names by -c.

    A missing file is empty.
    """
    text, limits = "", list[str]()
    pending, seen = [(file, True)], set[Path]()
    while pending:
        path, is_required = pending.pop(0)
        if path in seen or (path == file and not path.is_file()):
            continue
        seen.add(path)
        own = []
        for line in with_absolute_paths(read_requirements(path).text, str(path.parent)).splitlines():
            option, _, value = line.strip().replace("=", " ", 1).partition(" ")
            is_included = option in ("-r", "--requirement", "-c", "--constraint")
            if is_included:
                included = Path(path.parent, value.partition(" #")[0].strip())
                pending.append((included, is_required and option in ("-r", "--requirement")))
            own.append("" if is_included else line)
        if is_required:
            text += "".join(f"{line}\n" for line in own)
        else:
            limits += [line for line in own if line.strip() and not line.strip().startswith("#")]
    return RequirementFile(name=display_path(file), text=text), limits


def _words(value: object, *, by_line: bool = False) -> list[str]:
    """Return a setting of pip as words, from one text or several. `by_line`: return the texts whole."""
    texts = [str(each) for each in value] if isinstance(value, list | tuple) else [str(value)] if value else []
    return texts if by_line else [word for text in texts for word in text.split()]
