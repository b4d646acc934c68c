"""The files that an import writes: copies of folders with benchfiles that are data, and the suite of all of them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any, Final

from milabench.bench.registry import BENCHFILE
from milabench.compat13.data_form import DataForm, as_placed_here
from milabench.config.schema import BenchmarkConfig, PlanConfig, Suite
from milabench.config.show import Written, mapping_yaml, plain_benchmark, plain_file
from milabench.events.removal import copy_tree, path_within, remove
from milabench.plan.requirements import parse_requirements
from milabench.scaffold.new_benchmark import benchfile_text
from milabench.workflow.foreign_environments import ADDED, variants
from milabench.workflow.requirement_files import included_files, read_requirements

SHARED: Final = "_milabench13"
_EMPTY_VOIRFILE: Final = '"""The program reports by itself. With this file it is started by the runner."""\n'
_SUITE_HEAD: Final = """\
# Made by `milabench import-suite` from benchmarks of milabench 1.3. Folders are relative to this file.
"""
VOIRFILE: Final = "voirfile.py"
REQUIREMENTS: Final = "requirements.in"
_ADDED_HEAD: Final = "# milabench 1.3 has this in every environment."


@dataclass(slots=True, kw_only=True)
class ImportedFolder:
    """A definition: the benchmarks that it serves, the place of its copy, and its possible form."""

    path: Path
    place: str
    benches: list[BenchmarkConfig] = field(default_factory=list)
    kept: str = ""
    forms: dict[str, DataForm] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    """The variables of its benchfile."""

    @property
    def added(self) -> tuple[str, ...]:
        """The requirements that its copy gets: the packages that milabench 1.3 installs unasked. Raises EnvironmentFailed."""
        named = {pin.name for text in self._texts() for pin in parse_requirements(text).pins}
        return tuple(pin.line for pin in parse_requirements("\n".join(ADDED)).pins if pin.name not in named)

    @property
    def locks(self) -> tuple[str, ...]:
        """Its locks, which its copy does not get: they have other versions than ours, and lack the added packages."""
        locks = (f"requirements.{variant}.txt" for variant in sorted(variants(self.path, (REQUIREMENTS,))))
        return tuple(lock for lock in locks if not any(lock in text for text in self._texts()))

    def _texts(self) -> list[str]:
        """Return its requirements.in and the files that it includes."""
        return [file.text for file in included_files(self.path / REQUIREMENTS)]


def write_files(draft: Path, suite: Suite, folders: Mapping[Path, ImportedFolder], into: Path) -> None:
    """Write the copies of the folders and their suite."""
    for folder in folders.values():
        target = draft / folder.place
        ignored = shutil.ignore_patterns("__pycache__", ".git")
        copy_tree(folder.path, target, ignored, is_added=True)
        if folder.kept:
            continue
        (target / BENCHFILE).write_text(_benchfile(folder))
        form = folder.forms[folder.benches[0].name]
        if form.has_runner and not (target / VOIRFILE).exists():
            (target / VOIRFILE).write_text(_EMPTY_VOIRFILE)
        for lock in folder.locks:
            remove(path_within(target, lock))
        if folder.added:
            (target / REQUIREMENTS).write_text(_requirements(folder))
    (draft / "suite.yaml").write_text(_suite_text(suite, folders, into))


def _requirements(folder: ImportedFolder) -> str:
    """Return the text of a requirements.in with the added packages."""
    file = folder.path / REQUIREMENTS
    own = read_requirements(file).text if file.exists() else ""
    return "\n".join([*own.splitlines(), _ADDED_HEAD, *folder.added, ""])


def _benchfile(folder: ImportedFolder) -> str:
    """Return the text of a benchfile of ours."""
    form = folder.forms[folder.benches[0].name]
    declared: dict[str, Any] = {"module": form.module} if form.script is None else {"script": form.script}
    declared |= {"voirfile": None} if not form.has_runner else {}
    declared |= {"prepare": form.prepare} if form.prepare != "prepare.py" else {}
    declared |= {"cwd": form.cwd}
    declared |= {"env": {name: _literal(value) for name, value in folder.env.items()}} if folder.env else {}
    options = dict.fromkeys(sorted({option for bench in folder.benches for option in bench.options}))
    declared |= {"options": options} if options else {}
    return benchfile_text(f"The benchmark {folder.path.name}, written for milabench 1.3.", declared)


def _literal(template: str) -> str:
    return template.replace("{{", "{").replace("}}", "}")


def _suite_text(suite: Suite, folders: Mapping[Path, ImportedFolder], into: Path) -> str:
    """Return the suite of the copies: shared keys are in templates, above the benchmarks that inherit them."""
    data = [folder for folder in folders.values() if not folder.kept]
    # What is no constant of a benchfile.
    for_all = common_items(
        [
            {name: value for name, value in form.env.items() if name not in folder.env}
            for folder in data
            for form in folder.forms.values()
        ]
    )
    parts: list[Mapping[str, Any]] = [{key: value} for key, value in plain_file(suite).items()]
    if data:
        # milabench 1.3 runs on the main machine alone, unless a benchmark says how many it takes.
        parts.append({SHARED: {"num_machines": 1, **({"env": for_all} if for_all else {})}})
    of_bench = {bench.name: folder for folder in folders.values() for bench in folder.benches}
    for name, bench in suite.benchmarks.items():
        folder = of_bench.get(name)
        if folder is None:
            parts.append({name: _elsewhere(bench, into)})
        elif bench is folder.benches[0]:
            parts += _parts_of_a_folder(folder, for_all)
    return _SUITE_HEAD + "".join(f"\n{mapping_yaml(part)}" for part in parts)


def _parts_of_a_folder(folder: ImportedFolder, for_all: Mapping[str, str]) -> list[Mapping[str, Any]]:
    """Return the benchmarks of a folder, below a template of their common keys, where there are several."""
    inherited = {} if folder.kept else {"inherits": SHARED}
    own = {bench.name: _suite_keys(bench, folder, for_all) for bench in folder.benches}
    if len(own) == 1 or any("matrix" in keys for keys in own.values()):
        return [{name: {**inherited, **keys}} for name, keys in own.items()]
    alike = common_items(list(own.values()))
    template = f"_{PurePath(folder.place).name or folder.path.name}"
    return [
        {template: {**inherited, **alike}},
        *(
            {name: {"inherits": template, **{key: value for key, value in keys.items() if key not in alike}}}
            for name, keys in own.items()
        ),
    ]


def _elsewhere(bench: BenchmarkConfig, into: Path) -> dict[str, Any]:
    """Return the keys of a benchmark that is not of milabench 1.3: its folder stays where it is."""
    keys = plain_benchmark(bench)
    if isinstance(bench.definition, Path):
        keys["definition"] = os.path.relpath(bench.definition, into.absolute())
    return keys


def _suite_keys(bench: BenchmarkConfig, folder: ImportedFolder, for_all: Mapping[str, str]) -> dict[str, Any]:
    """Return the keys of a benchmark in the suite of the copies, without those that have their defaults."""
    config = bench
    if not folder.kept:
        form = folder.forms[bench.name]
        more = {
            name: value for name, value in form.env.items() if name not in folder.env and for_all.get(name) != value
        }
        own = {name: as_placed_here(value, bench.group) for name, value in bench.env.items()}
        argv = _as_here(form.argv, bench.group)
        config = replace(bench, server=None, client=None, argv=argv, env={**own, **more})
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


def _as_here(value: object, group: str) -> Any:
    """Return arguments whose placeholders have here the values that they have for a benchfile of milabench 1.3."""
    if isinstance(value, tuple):
        return tuple(_as_here(item, group) for item in value)
    return as_placed_here(value, group) if isinstance(value, str) else value


def _as_written(keys: dict[str, Any], bench: BenchmarkConfig, path: str = "") -> dict[str, Any]:
    """Return keys with interpolations where values came from the system or the environment."""
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


def common_items(mappings: Sequence[Mapping[str, object]]) -> dict[str, Any]:
    """Return the items that all mappings share, in the order of the first."""
    first = mappings[0] if mappings else {}
    return {key: value for key, value in first.items() if all(key in each and each[key] == value for each in mappings)}
