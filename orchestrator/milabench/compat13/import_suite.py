"""Turns benchmarks of another system, folders and suites, into ours: benchfiles that are data, and a suite.

A copy is written, planned on imaginary systems, and compared with the plans of its original: a folder whose copy
would start anything else keeps its benchfile, which works as it is.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from milabench.bench.registry import BENCHFILE, foreign_format
from milabench.compat13.data_form import DataForm, NotRecognised, data_form
from milabench.compat13.imported_files import REQUIREMENTS, VOIRFILE, ImportedFolder, common_items, write_files
from milabench.compat13.milabench13 import read_together, why_kept
from milabench.config.read import read_suite
from milabench.config.schema import BenchmarkConfig, Suite
from milabench.config.show import mapping_yaml
from milabench.errors import ConfigError, UsageError
from milabench.events.removal import put, remove
from milabench.facts.model import Arch
from milabench.plan.context import PlanContext, ResolvedBenchmark, benchmark_on
from milabench.plan.method import nodes_of, why_not_placed
from milabench.plan.model import Step
from milabench.plan.prepare import prepare_step
from milabench.plan.step import replicate_steps
from milabench.plan.venvs import UNPINNED
from milabench.scaffold.new_benchmark import creation_error, new_benchmark_folder
from milabench.suite_check.imaginary_systems import imaginary_system, most_machines
from milabench.workflow.context import declared_options, resolve_benchmark, with_processes

ARCH: Final[Arch] = "cuda"
_RUNNER: Final = "benchmate.run"
_FOLDER: Final = "@folder"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedBenchmark:
    """The result for a benchmark: `kept` says why its benchfile stays, `notes` the differences from milabench 1.3.

    `added` are the lines that its requirements.in got, `left_out` the locks that were not copied.
    """

    name: str
    kept: str = ""
    notes: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    is_unpinned: bool = False

    def __str__(self) -> str:
        if self.kept:
            return f"kept as it is: {self.kept}"
        added = [f"{REQUIREMENTS} has {line} too" for line in self.added]
        return f"with differences: {'; '.join((*self.notes, *added))}" if self.notes else "; ".join(("whole", *added))


def import_suite(source: Path, into: Path) -> tuple[ImportedBenchmark, ...]:
    """Write `into/suite.yaml` and `into/benchmarks/` from a suite file, or a folder of benchmarks. Return the result of each.

    Raises UsageError where something is in the way, or there is nothing to import, and ConfigError for unreadable files.
    """
    return _import(source, into, place=lambda name: f"benchmarks/{name}")


def import_folder(name: str, into: Path, source: Path) -> tuple[ImportedBenchmark, ...]:
    """Write a folder of a benchmark as `into/name`, with a suite.yaml in it. Else as `import_suite`."""
    folder = new_benchmark_folder(name, into)
    if foreign_format(source / BENCHFILE) is None:
        raise UsageError(
            f"--from {source}: has no {BENCHFILE} of milabench 1.3. `milabench import-suite` takes a folder of several"
        )
    return _import(source, folder, place=lambda _: ".")


def _import(source: Path, into: Path, *, place: Callable[[str], str]) -> tuple[ImportedBenchmark, ...]:
    if into.exists() or into.is_symlink():
        raise UsageError(f"{into} exists. Choose another folder, or remove it first")
    unread: dict[str, str] = {}
    suite = _read(source, unread)
    folders = _folders(suite, place)
    if not folders:
        raise UsageError(f"{source}: holds no benchmark of milabench 1.3")
    if inside := next((path for path in folders if into.resolve().is_relative_to(path.resolve())), None):
        raise UsageError(f"{into} is inside {inside}, which is to be copied there. Choose another folder")
    systems = _systems(suite)
    before = _foreign_steps(folders, systems)
    _recognise(folders, before)
    try:
        into.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{into.name}-", dir=into.parent) as scratch:
            while True:
                draft = Path(scratch, "draft")
                write_files(draft, suite, folders, into)
                notes, wrong = _compared(draft, folders, systems, before)
                if not wrong:
                    break
                for folder, what in wrong.items():
                    folders[folder].kept = what
                remove(draft)
            put(draft, into)
    except (OSError, shutil.Error) as error:
        raise creation_error(into, error) from None
    return tuple(_outcomes(suite, folders, notes, unread))


# ---------------------------------------------------------------- what is read


def _read(source: Path, unread: dict[str, str]) -> Suite:
    """Return the suite of a file, or of the benchmarks in a folder. `unread` gets why a suite in it could not be read."""
    if not source.is_dir():
        return _suite(source)
    benchfiles = sorted(path for path in source.rglob(BENCHFILE) if foreign_format(path) is not None)
    if not benchfiles:
        raise UsageError(f"{source}: holds no {BENCHFILE} of milabench 1.3")
    suites = [(path.parent, _suite_of(path.parent, unread)) for path in benchfiles]
    benchmarks: dict[str, BenchmarkConfig] = {}
    for folder, suite in suites:
        for name, bench in suite.benchmarks.items():
            own = name if name not in benchmarks else f"{folder.parent.name}-{name}"
            benchmarks[own] = replace(bench, name=own)
    return replace(suites[0][1], benchmarks=benchmarks)


def _suite_of(folder: Path, unread: dict[str, str]) -> Suite:
    """Return the suite of the folder's dev.yaml, else a benchmark of its name."""
    own = folder / "dev.yaml"
    if own.is_file():
        try:
            suite = _suite(own)
            mine = {name: bench for name, bench in suite.benchmarks.items() if bench.definition == folder.absolute()}
            if mine:
                return replace(suite, benchmarks=mine)
        except ConfigError as error:
            unread[folder.name] = f"its dev.yaml cannot be read: {_first_line(error)}"
    with tempfile.TemporaryDirectory(prefix="milabench-import-") as scratch:
        file = Path(scratch, "suite.yaml")
        file.write_text(mapping_yaml({folder.name: {"definition": str(folder.absolute())}}))
        return _suite(file)


def _first_line(error: ConfigError) -> str:
    return str(error).splitlines()[0]


def _suite(file: Path) -> Suite:
    return read_suite([file], env=os.environ, detected_arch=ARCH, declared=declared_options)


def _folders(suite: Suite, place: Callable[[str], str]) -> dict[Path, ImportedFolder]:
    """Return the folders of milabench 1.3 that a suite names, each with its place in the copy."""
    folders: dict[Path, ImportedFolder] = {}
    taken: set[str] = set()
    for bench in suite.benchmarks.values():
        path = bench.definition
        if not isinstance(path, Path) or foreign_format(path / BENCHFILE) is None:
            continue
        if path not in folders:
            name = path.name if path.name not in taken else f"{path.parent.name}-{path.name}"
            taken.add(name)
            folders[path] = ImportedFolder(path=path, place=place(name))
        folders[path].benches.append(bench)
    return folders


# ---------------------------------------------------------------- plans on imaginary systems


def _systems(suite: Suite) -> tuple[PlanContext, ...]:
    """Return a machine with a device, another with four, and several with two each: as many as a benchmark needs."""
    return tuple(
        imaginary_system(suite, ARCH, nodes, devices)
        for nodes, devices in ((1, 1), (1, 4), (max(2, most_machines(suite)), 2))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    """A benchmark on a system: its steps, of run and prepare, with the same name for its folder on all nodes."""

    bench: ResolvedBenchmark
    context: PlanContext
    steps: tuple[Step, ...]


def _planned(bench: ResolvedBenchmark, context: PlanContext) -> _Planned:
    if why_not_placed(bench.config, context.facts) is not None:
        return _Planned(bench=bench, context=context, steps=())
    ranks = [node for _, node in nodes_of(bench.config, context.facts)]
    run = replicate_steps(bench, context, repeat=None)
    prepare = (prepare_step(benchmark_on(node, bench, context)) for node in ranks)
    steps = [step for step in (*run, *prepare) if step is not None]
    folders = {node.name: benchmark_on(node, bench, context).folder for node in ranks}
    return _Planned(
        bench=bench, context=context, steps=tuple(_without_folder(step, folders[step.node]) for step in steps)
    )


def _without_folder(step: Step, folder: str) -> Step:
    def there(text: str) -> str:
        return text.replace(folder, _FOLDER)

    return replace(
        step,
        argv=tuple(map(there, step.argv)),
        env={name: there(value) for name, value in step.env.items()},
        cwd=there(step.cwd),
    )


def _foreign_steps(
    folders: Mapping[Path, ImportedFolder], systems: Sequence[PlanContext]
) -> dict[str, tuple[_Planned, ...]]:
    """Return the plans of all benchmarks on each system. A folder whose class cannot name its processes is kept."""
    read_together(folders)
    for folder in folders.values():
        try:
            folder.kept = why_kept(folder.path)
        except ConfigError as error:
            folder.kept = f"it cannot be planned: {_first_line(error)}"
    asked = [folder for folder in folders.values() if not folder.kept]
    try:
        # Together they are asked in the time of a few.
        return _plans_of(asked, systems)
    except ConfigError:
        planned: dict[str, tuple[_Planned, ...]] = {}
        for folder in asked:
            try:
                planned |= _plans_of([folder], systems)
            except ConfigError as error:
                folder.kept = f"it cannot be planned: {_first_line(error)}"
        return planned


def _plans_of(folders: Sequence[ImportedFolder], systems: Sequence[PlanContext]) -> dict[str, tuple[_Planned, ...]]:
    """Return the plans of the folders' benchmarks on each system, by name. Raises ConfigError."""
    benches = [resolve_benchmark(bench, systems[0].dirs) for folder in folders for bench in folder.benches]
    planned: dict[str, tuple[_Planned, ...]] = {}
    for context in systems:
        for bench in with_processes(benches, context):
            name = bench.config.name
            planned[name] = (*planned.get(name, ()), _planned(bench, context))
    return planned


def _recognise(folders: Mapping[Path, ImportedFolder], planned: Mapping[str, tuple[_Planned, ...]]) -> None:
    """Give each folder the forms of its benchmarks as data, or the reason why it has none."""
    for folder in folders.values():
        if folder.kept:
            continue
        for bench in folder.benches:
            try:
                form = data_form([(each.bench, each.context) for each in planned[bench.name]])
            except NotRecognised as error:
                folder.kept = str(error) if len(folder.benches) == 1 else f"{bench.name}: {error}"
                break
            first = next(iter(folder.forms.values()), form)
            if form.launcher and bench.plan.method == "per_gpu":
                folder.kept = f"{bench.name}: {form.launcher} starts it on each device by itself"
                break
            if form.program != first.program:
                folder.kept = f"{bench.name} and {folder.benches[0].name} are different programs of the same folder"
                break
            folder.forms[bench.name] = form
        constant = [
            {name: value for name, value in form.env.items() if "{" not in value.replace("{{", "")}
            for form in folder.forms.values()
        ]
        folder.env = common_items(constant)


# ---------------------------------------------------------------- both plans, side by side


def _compared(
    draft: Path,
    folders: Mapping[Path, ImportedFolder],
    systems: Sequence[PlanContext],
    before: Mapping[str, tuple[_Planned, ...]],
) -> tuple[dict[str, tuple[str, ...]], dict[Path, str]]:
    """Return, by benchmark, how its copy differs from it, and by folder the forbidden differences."""
    suite = _suite(draft / "suite.yaml")
    notes: dict[str, tuple[str, ...]] = {}
    wrong: dict[Path, str] = {}
    for folder in folders.values():
        if folder.kept:
            continue
        for bench in folder.benches:
            copied = resolve_benchmark(suite.benchmarks[bench.name], systems[0].dirs)
            try:
                plans = [_planned(copied, context) for context in systems]
            except ConfigError as error:
                wrong[folder.path] = f"{bench.name}: its copy cannot be planned: {_first_line(error)}"
                break
            form = folder.forms[bench.name]
            found = [
                what
                for one, other in zip(before[bench.name], plans, strict=True)
                for what in _differences(one, other, form)
            ]
            if found:
                wrong[folder.path] = f"{bench.name}: {found[0]}"
                break
            notes[bench.name] = tuple(_notes(bench, form, folder))
    return notes, wrong


def _differences(foreign: _Planned, ours: _Planned, form: DataForm) -> Iterator[str]:
    """Yield the differences of two plans of a benchmark, except the differences of `_notes`."""
    if len(foreign.steps) != len(ours.steps):
        yield f"{len(foreign.steps)} processes that run and prepare it became {len(ours.steps)}"
        return
    for one, other in zip(foreign.steps, ours.steps, strict=True):
        for what in ("node", "devices", "cwd", "timeout_s", "max_silence_s", "phase"):
            if getattr(one, what) != getattr(other, what):
                yield f"{what} {getattr(one, what)} became {getattr(other, what)}"
        if one.tag != other.tag and not form.launcher:
            yield f"tag {one.tag!r} became {other.tag!r}"
        env = {name: value for name, value in one.env.items() if name != "MILABENCH_CONFIG"}
        for name in sorted({name for name in {*env, *other.env} if env.get(name) != other.env.get(name)}):
            yield f"the variable {name}={env.get(name)} became {other.env.get(name)}"
        words, copied = (_program_words(step, form) for step in (one, other))
        if words != copied:
            pair = next((pair for pair in zip(words, copied, strict=False) if pair[0] != pair[1]), None)
            yield f"'{pair[0]}' became '{pair[1]}'" if pair else f"{len(words)} words became {len(copied)}"


def _program_words(step: Step, form: DataForm) -> tuple[str, ...]:
    """Return the program and its arguments, without runner, relay and launcher. All words of a step with another program."""
    words = step.argv
    if step.phase == "prepare":
        return words
    program = f"{_FOLDER}/{form.script}" if form.script is not None else form.module or ""
    start = words.index(program) if program in words else 0
    is_under_runner = _RUNNER in words[:start]
    return ("runner" if is_under_runner else "", *words[start:])


def _notes(bench: BenchmarkConfig, form: DataForm, folder: ImportedFolder) -> Iterator[str]:
    if form.launcher:
        yield f"the words of {form.launcher} are ours, on one device too, and it is one job, without the tag 0"
    if not form.has_runner:
        yield "it is started without the relay, which reads records in its output and ends it when enough was measured"
    elif not (folder.path / VOIRFILE).exists():
        yield f"{VOIRFILE} is new and empty"
    if bench.server is not None or bench.client is not None:
        yield "the arguments of its server and client are in argv"
    elif form.argv != bench.argv:
        yield "argv has the words that its class added"


def _outcomes(
    suite: Suite,
    folders: Mapping[Path, ImportedFolder],
    notes: Mapping[str, tuple[str, ...]],
    unread: Mapping[str, str],
) -> Iterator[ImportedBenchmark]:
    of_bench = {bench.name: folder for folder in folders.values() for bench in folder.benches}
    for name, bench in suite.benchmarks.items():
        folder = of_bench.get(name)
        if folder is None:
            where = bench.definition if bench.definition is not None else "a command"
            yield ImportedBenchmark(name=name, kept=f"not of milabench 1.3: {where}")
            continue
        more = (unread[folder.path.name],) if folder.path.name in unread else ()
        yield ImportedBenchmark(
            name=name,
            kept=folder.kept,
            notes=(*more, *notes.get(name, ())),
            added=() if folder.kept else folder.added,
            left_out=() if folder.kept else folder.locks,
            is_unpinned=bench.install_variant == UNPINNED,
        )
