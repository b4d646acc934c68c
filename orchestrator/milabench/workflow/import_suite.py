"""Turns benchmarks of another system, folders and suites, into ours: benchfiles that are data, and one suite.

A copy is written, planned on imaginary systems, and held against the plans of what it was made from: a folder whose copy
would start anything else keeps its benchfile, which works as it is.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Final

from milabench.bench.registry import BENCHFILE, ask_together, foreign_format
from milabench.config.read import read_suite
from milabench.config.schema import BenchmarkConfig, PlanConfig, Suite
from milabench.config.show import Written, mapping_yaml, plain_benchmark
from milabench.errors import ConfigError, UsageError
from milabench.facts.model import Device, Node, SystemFacts
from milabench.plan.context import PlanContext, ResolvedBenchmark, benchmark_on, dirs_under
from milabench.plan.method import nodes_of, why_not_placed
from milabench.plan.model import Step
from milabench.plan.prepare import prepare_step
from milabench.plan.profile import PROFILES
from milabench.plan.step import replicate_steps
from milabench.workflow.context import declared_options, resolve_benchmark, with_processes

if TYPE_CHECKING:
    from milabench.compat.data_form import DataForm

ARCH: Final = "cuda"
SHARED: Final = "_milabench13"
VOIRFILE: Final = "voirfile.py"
_EMPTY_VOIRFILE: Final = '"""The program reports by itself; with this file it is started by the runner."""\n'
_RELAY: Final = "benchmate.milabench13.relay"
_RUNNER: Final = "benchmate.run"
_FOLDER: Final = "@folder"
_SUITE_HEAD: Final = """\
# Made by `milabench import-suite` from benchmarks of milabench 1.3. Folders are relative to this file.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a benchmark: `kept` says why its benchfile stays, `notes` what differs from milabench 1.3."""

    name: str
    kept: str = ""
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.kept:
            return f"kept as it is: {self.kept}"
        return f"with differences: {'; '.join(self.notes)}" if self.notes else "whole"


@dataclass(slots=True, kw_only=True)
class _Folder:
    """A definition: the benchmarks that it serves, where it is copied to, and what it can become."""

    path: Path
    place: str
    benches: list[BenchmarkConfig] = field(default_factory=list)
    kept: str = ""
    forms: dict[str, DataForm] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    """The variables of its benchfile."""


def import_suite(source: Path, into: Path, *, environ: Mapping[str, str] = os.environ) -> tuple[Outcome, ...]:
    """Write `into/suite.yaml` and `into/benchmarks/` from a suite file, or a folder of benchmarks; return what became of each.

    Raises UsageError where something is in the way, or there is nothing to import, and ConfigError for what cannot be read.
    """
    return _import(source, into, environ, place=lambda name: f"benchmarks/{name}")


def import_folder(
    name: str, into: Path, source: Path, *, environ: Mapping[str, str] = os.environ
) -> tuple[Outcome, ...]:
    """Write one folder of a benchmark as `into/name`, with a suite.yaml in it; else as `import_suite`."""
    if foreign_format(source / BENCHFILE) is None:
        raise UsageError(
            f"--from {source}: has no {BENCHFILE} of milabench 1.3; import-suite takes a folder of several"
        )
    return _import(source, into / name, environ, place=lambda _: ".")


def _import(
    source: Path, into: Path, environ: Mapping[str, str], *, place: Callable[[str], str]
) -> tuple[Outcome, ...]:
    if into.exists() or into.is_symlink():
        raise UsageError(f"{into} exists; choose another folder, or remove it first")
    unread: dict[str, str] = {}
    suite = _read(source, environ, unread)
    folders = _folders(suite, place)
    if not folders:
        raise UsageError(f"{source}: holds no benchmark of milabench 1.3")
    systems = _systems(suite)
    before = _foreign_steps(folders, systems)
    _recognise(folders, before)
    try:
        into.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{into.name}-", dir=into.parent) as scratch:
            while True:
                draft = Path(scratch, "draft")
                _write(draft, suite, folders, into)
                notes, wrong = _compared(draft, folders, systems, before, environ)
                if not wrong:
                    break
                for folder, what in wrong.items():
                    folders[folder].kept = what
                shutil.rmtree(draft)
            draft.rename(into)
    except (OSError, shutil.Error) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(f"{into}: cannot be created: {why.lower()}") from None
    return tuple(_outcomes(suite, folders, notes, unread))


# ---------------------------------------------------------------- what is read


def _read(source: Path, environ: Mapping[str, str], unread: dict[str, str]) -> Suite:
    """Return the suite of a file, or of the benchmarks in a folder; `unread` gets why a suite in it could not be read."""
    if not source.is_dir():
        return _suite(source, environ)
    benchfiles = sorted(path for path in source.rglob(BENCHFILE) if foreign_format(path) is not None)
    if not benchfiles:
        raise UsageError(f"{source}: holds no {BENCHFILE} of milabench 1.3")
    suites = [(path.parent, _suite_of(path.parent, environ, unread)) for path in benchfiles]
    benchmarks: dict[str, BenchmarkConfig] = {}
    for folder, suite in suites:
        for name, bench in suite.benchmarks.items():
            own = name if name not in benchmarks else f"{folder.parent.name}-{name}"
            benchmarks[own] = replace(bench, name=own)
    return replace(suites[0][1], benchmarks=benchmarks)


def _suite_of(folder: Path, environ: Mapping[str, str], unread: dict[str, str]) -> Suite:
    """Return what the folder's dev.yaml says, else one benchmark of its name."""
    own = folder / "dev.yaml"
    if own.is_file():
        try:
            suite = _suite(own, environ)
            mine = {name: bench for name, bench in suite.benchmarks.items() if bench.definition == folder.absolute()}
            if mine:
                return replace(suite, benchmarks=mine)
        except ConfigError as error:
            unread[folder.name] = f"its dev.yaml cannot be read: {_first_line(error)}"
    with tempfile.TemporaryDirectory(prefix="milabench-import-") as scratch:
        file = Path(scratch, "suite.yaml")
        file.write_text(mapping_yaml({folder.name: {"definition": str(folder.absolute())}}))
        return _suite(file, environ)


def _first_line(error: ConfigError) -> str:
    return str(error).splitlines()[0]


def _suite(file: Path, environ: Mapping[str, str]) -> Suite:
    return read_suite([file], env=environ, detected_arch=ARCH, declared=declared_options)


def _folders(suite: Suite, place: Callable[[str], str]) -> dict[Path, _Folder]:
    """Return the folders of milabench 1.3 that a suite names, each with its place in the copy."""
    folders: dict[Path, _Folder] = {}
    taken: set[str] = set()
    for bench in suite.benchmarks.values():
        path = bench.definition
        if not isinstance(path, Path) or foreign_format(path / BENCHFILE) is None:
            continue
        if path not in folders:
            name = path.name if path.name not in taken else f"{path.parent.name}-{path.name}"
            taken.add(name)
            folders[path] = _Folder(path=path, place=place(name))
        folders[path].benches.append(bench)
    return folders


# ---------------------------------------------------------------- plans on imaginary systems


def _systems(suite: Suite) -> tuple[PlanContext, ...]:
    """Return one machine with a device, one with four, and several with two each: as many as a benchmark needs."""
    most = max((bench.num_machines for bench in suite.benchmarks.values()), default=1)
    raw = {key: value for key, value in suite.system.raw.items() if key not in ("nodes", "gpu")}
    system = replace(suite.system, nodes=(), raw={**raw, "arch": ARCH})
    return tuple(
        PlanContext(
            facts=SystemFacts(arch=ARCH, nodes=tuple(_node(rank, devices) for rank in range(nodes))),
            system=system,
            dirs=dirs_under("/imaginary", {}),
            profile=PROFILES["default"],
            repeats=1,
        )
        for nodes, devices in ((1, 1), (1, 4), (max(2, most), 2))
    )


def _node(rank: int, devices: int) -> Node:
    held = tuple(
        Device(index=index, uuid=f"{rank}-{index}", name="imaginary", arch=ARCH, memory_mib=81_920)
        for index in range(devices)
    )
    address = f"10.0.0.{rank + 1}"
    return Node(
        name=f"node{rank}", ip=address, hostname=address, user="me", main=rank == 0, local=rank == 0,
        cpu_count=64, devices=held,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    """A benchmark on one system: its steps, of run and prepare, with one name for its folder on all nodes."""

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


def _foreign_steps(folders: Mapping[Path, _Folder], systems: Sequence[PlanContext]) -> dict[str, tuple[_Planned, ...]]:
    """Return the plans of all benchmarks on each system; a folder whose class cannot say what it starts is kept."""
    ask_together(folders)
    planned: dict[str, tuple[_Planned, ...]] = {}
    for folder in folders.values():
        module = foreign_format(folder.path / BENCHFILE)
        assert module is not None
        try:
            folder.kept = module.why_kept(folder.path)
            benches = [resolve_benchmark(bench, systems[0].dirs) for bench in folder.benches]
            for context in systems:
                for placed in with_processes(benches, context):
                    name = placed.config.name
                    planned[name] = (*planned.get(name, ()), _planned(placed, context))
        except ConfigError as error:
            folder.kept = folder.kept or f"it cannot be planned: {_first_line(error)}"
            for bench in folder.benches:
                planned.pop(bench.name, None)
    return planned


def _recognise(folders: Mapping[Path, _Folder], planned: Mapping[str, tuple[_Planned, ...]]) -> None:
    """Give each folder the forms of its benchmarks as data, or the reason why it has none."""
    for folder in folders.values():
        if folder.kept:
            continue
        module = foreign_format(folder.path / BENCHFILE)
        assert module is not None
        for bench in folder.benches:
            try:
                form = module.data_form([(each.bench, each.context) for each in planned[bench.name]])
            except module.NotRecognised as error:
                folder.kept = str(error) if len(folder.benches) == 1 else f"{bench.name}: {error}"
                break
            first = next(iter(folder.forms.values()), form)
            if form.launcher and bench.plan.method == "per_gpu":
                folder.kept = f"{bench.name}: {form.launcher} starts it on each device by itself"
                break
            if form.program != first.program:
                folder.kept = f"{bench.name} and {folder.benches[0].name} are different programs of one folder"
                break
            folder.forms[bench.name] = form
        constant = [
            {name: value for name, value in form.env.items() if "{milabench" not in value and "{bench" not in value}
            for form in folder.forms.values()
        ]
        folder.env = _common(constant)


def _common(mappings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what all mappings have alike, in the order of the first."""
    first = mappings[0] if mappings else {}
    return {key: value for key, value in first.items() if all(key in each and each[key] == value for each in mappings)}


# ---------------------------------------------------------------- what is written


def _write(draft: Path, suite: Suite, folders: Mapping[Path, _Folder], into: Path) -> None:
    """Write the copies of the folders and their suite."""
    for folder in folders.values():
        target = draft / folder.place
        ignored = shutil.ignore_patterns("__pycache__", ".git")
        shutil.copytree(folder.path, target, ignore=ignored, ignore_dangling_symlinks=True, dirs_exist_ok=True)
        if folder.kept:
            continue
        (target / BENCHFILE).write_text(_benchfile(folder))
        form = folder.forms[folder.benches[0].name]
        if form.has_runner and not (target / VOIRFILE).exists():
            (target / VOIRFILE).write_text(_EMPTY_VOIRFILE)
    (draft / "suite.yaml").write_text(_suite_text(suite, folders, into))


def _benchfile(folder: _Folder) -> str:
    """Return the text of a benchfile of ours."""
    form = folder.forms[folder.benches[0].name]
    declared: dict[str, Any] = {"script": form.script, "module": form.module}
    declared |= {"voirfile": None} if not form.has_runner else {}
    declared |= {"prepare": form.prepare} if form.prepare != "prepare.py" else {}
    declared |= {"cwd": form.cwd}
    declared |= {"env": {name: _literal(value) for name, value in folder.env.items()}} if folder.env else {}
    options = dict.fromkeys(sorted({option for bench in folder.benches for option in bench.options}))
    declared |= {"options": options} if options else {}
    lines = [
        f"    {name}={_python(value)},"
        for name, value in declared.items()
        if value is not None or name in ("voirfile", "prepare")
    ]
    head = f'"""The benchmark {folder.path.name}, written for milabench 1.3."""\n\nfrom milabench import Benchmark\n'
    return "\n".join([head, "benchmark = Benchmark(", *lines, ")", ""])


def _literal(template: str) -> str:
    return template.replace("{{", "{").replace("}}", "}")


def _python(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key)}: {_python(item)}" for key, item in value.items()) + "}"
    return json.dumps(value) if isinstance(value, str) else repr(value)


def _suite_text(suite: Suite, folders: Mapping[Path, _Folder], into: Path) -> str:
    """Return the suite of the copies: what benchmarks share stands in templates, above those that inherit it."""
    forms = {name: form for folder in folders.values() if not folder.kept for name, form in folder.forms.items()}
    needed = {
        name: {key: value for key, value in form.env.items() if key not in folder.env}
        for folder in folders.values()
        if not folder.kept
        for name, form in folder.forms.items()
    }
    for_all = _common(list(needed.values()))
    parts: list[Mapping[str, Any]] = []
    if suite.profile != "default":
        parts.append({"profile": suite.profile})
    if given := {key: value for key, value in suite.system.raw.items() if key != "arch" or suite.system.arch}:
        parts.append({"system": given})
    if suite.multirun:
        runs = [{"name": each.name, "matrix": dict(each.matrix)} for each in suite.multirun]
        parts.append({"multirun": {"runs": runs}})
    if forms:
        # milabench 1.3 runs on the main machine alone, unless a benchmark says how many it takes.
        parts.append({SHARED: {"num_machines": 1, **({"env": for_all} if for_all else {})}})
    written: set[str] = set()
    of_bench = {bench.name: folder for folder in folders.values() for bench in folder.benches}
    for name, bench in suite.benchmarks.items():
        if name not in of_bench:
            parts.append({name: _elsewhere(bench, into)})
            continue
        if name in written:
            continue
        folder = of_bench[name]
        own = {
            each.name: _suite_keys(each, folder, for_all) for each in folder.benches if each.name in suite.benchmarks
        }
        parent = SHARED if not folder.kept else ""
        if len(own) > 1 and not any("matrix" in keys for keys in own.values()):
            common = _common(list(own.values()))
            template = f"_{PurePath(folder.place).name or folder.path.name}"
            parts.append({template: {**({"inherits": parent} if parent else {}), **common}})
            own = {each: {key: value for key, value in keys.items() if key not in common} for each, keys in own.items()}
            parent = template
        parts += [{each: {**({"inherits": parent} if parent else {}), **keys}} for each, keys in own.items()]
        written |= set(own)
    return _SUITE_HEAD + "".join(f"\n{mapping_yaml(part)}" for part in parts)


def _elsewhere(bench: BenchmarkConfig, into: Path) -> dict[str, Any]:
    """Return the keys of a benchmark that is not of milabench 1.3: its folder stays where it is."""
    keys = plain_benchmark(bench)
    if isinstance(bench.definition, Path):
        keys["definition"] = os.path.relpath(bench.definition, into.absolute())
    return keys


def _suite_keys(bench: BenchmarkConfig, folder: _Folder, for_all: Mapping[str, str]) -> dict[str, Any]:
    """Return the keys of a benchmark in the suite of the copies, without those that have their defaults."""
    config = bench
    if not folder.kept:
        form = folder.forms[bench.name]
        more = {
            name: value for name, value in form.env.items() if name not in folder.env and for_all.get(name) != value
        }
        own = {name: _as_here(value, bench) for name, value in bench.env.items()}
        config = replace(bench, server=None, client=None, argv=_here(form.argv, bench), env={**own, **more})
        config = replace(config, plan=_plan(bench, form))
    keys = _as_written(plain_benchmark(config), bench)
    keys["definition"] = folder.place
    if isinstance(keys.get("plan"), dict) and keys["plan"].get("n") == 1:
        del keys["plan"]["n"]
    if keys.get("group") == bench.name:
        del keys["group"]
    if keys.get("install_group") == bench.group:
        del keys["install_group"]
    if "install_variant" not in bench.origin:
        keys.pop("install_variant", None)
    return keys


def _plan(bench: BenchmarkConfig, form: DataForm) -> PlanConfig:
    if form.launcher:
        method: Any = "multinode" if bench.num_machines > 1 else "multigpu"
        return PlanConfig(method=method, launcher=form.launcher, nodes=bench.plan.nodes, extra=form.options)
    if bench.num_machines > 1 and bench.plan.method != "per_gpu":
        return replace(bench.plan, method="multinode", launcher="none", extra={})
    return replace(bench.plan, launcher=None, extra={})


def _here(argv: tuple[Any, ...], bench: BenchmarkConfig) -> tuple[Any, ...]:
    """Return arguments whose placeholders have here the values that they have for a benchfile of milabench 1.3."""
    if any(isinstance(argument, str) for argument in argv):
        return tuple(_as_here(argument, bench) for argument in argv)
    return tuple((_as_here(option, bench), _as_here(value, bench)) for option, value in argv)


def _as_here(value: Any, bench: BenchmarkConfig) -> Any:
    module = foreign_format(bench.definition / BENCHFILE) if isinstance(bench.definition, Path) else None
    if isinstance(value, tuple):
        return tuple(_as_here(item, bench) for item in value)
    return module.as_placed_here(value, bench.group) if module is not None and isinstance(value, str) else value


def _as_written(keys: dict[str, Any], bench: BenchmarkConfig, path: str = "") -> dict[str, Any]:
    """Return keys in which what was taken from the system or the environment is asked for again."""
    asked: dict[str, Any] = {}
    for key, value in keys.items():
        here = f"{path}{key}"
        if isinstance(value, Mapping):
            asked[key] = _as_written(dict(value), bench, f"{here}.")
            continue
        origin = bench.origin.get(here)
        text = origin.interpolated if origin is not None else None
        asked[key] = Written(text) if text and ("${system." in text or "${oc.env" in text) else value
    return asked


# ---------------------------------------------------------------- both plans, side by side


def _compared(
    draft: Path,
    folders: Mapping[Path, _Folder],
    systems: Sequence[PlanContext],
    before: Mapping[str, tuple[_Planned, ...]],
    environ: Mapping[str, str],
) -> tuple[dict[str, tuple[str, ...]], dict[Path, str]]:
    """Return, by benchmark, how its copy differs from it, and by folder what must not differ and does."""
    suite = _suite(draft / "suite.yaml", environ)
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
    """Yield what two plans of a benchmark differ in, but for what `_notes` says."""
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
    """Return the program and its arguments, without what starts them: runner, relay and launcher."""
    words = step.argv
    if step.phase == "prepare":
        return words
    begin = form.script if form.script is None else f"{_FOLDER}/{form.script}"
    start = words.index(begin) if begin in words else words.index(form.module or "")
    is_under_runner = _RUNNER in words[:start]
    return ("runner" if is_under_runner else "", *words[start:])


def _notes(bench: BenchmarkConfig, form: DataForm, folder: _Folder) -> Iterator[str]:
    if form.launcher:
        yield f"the words of {form.launcher} are ours, on one device too, and it is one job, without the tag 0"
    if not form.has_runner:
        yield "it is started without the relay that reads records in its output"
    elif not (folder.path / VOIRFILE).exists():
        yield f"{VOIRFILE} is new and empty"
    if bench.server is not None or bench.client is not None:
        yield "the arguments of its server and client are in argv"
    elif form.argv != bench.argv:
        yield "argv has what its class added"


def _outcomes(
    suite: Suite, folders: Mapping[Path, _Folder], notes: Mapping[str, tuple[str, ...]], unread: Mapping[str, str]
) -> Iterator[Outcome]:
    of_bench = {bench.name: folder for folder in folders.values() for bench in folder.benches}
    for name, bench in suite.benchmarks.items():
        folder = of_bench.get(name)
        if folder is None:
            where = bench.definition if bench.definition is not None else "a command"
            yield Outcome(name=name, kept=f"not of milabench 1.3: {where}")
            continue
        more = (unread[folder.path.name],) if folder.path.name in unread else ()
        yield Outcome(name=name, kept=folder.kept, notes=(*more, *notes.get(name, ())))
