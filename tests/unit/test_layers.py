"""The arrows of architecture.md, held against the imports that the code really has."""

from __future__ import annotations

import ast
import functools
import importlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from milabench.seams import FEATURES
from tests import structure
from tests.structure import circles

ROOT = Path(__file__).resolve().parents[2]

# package -> the packages of milabench that it may import, besides itself, records, errors, version and redaction
MAY_IMPORT = {
    "errors": set(),
    "records": set(),
    "version": set(),
    "redaction": set(),
    "shown": set(),
    "config": set(),
    "facts": set(),
    "events": set(),
    "bench": {"config", "facts"},
    "plan": {"bench", "config", "facts"},
    "analysis": {"events"},
    "checks": {"analysis", "events"},
    "report": {"analysis", "events"},
    "schedulers": {"config", "facts", "events", "plan"},
    "execute": {"plan", "facts", "events", "bench", "config", "schedulers"},
    "display": {"events", "plan"},
}
for packages in MAY_IMPORT.values():
    packages.add("devices")
MAY_IMPORT["devices"] = set()

BELOW_WORKFLOW = set(MAY_IMPORT)
MAY_IMPORT["seams"] = set()
MAY_IMPORT |= {"workflow": BELOW_WORKFLOW, "api": {*BELOW_WORKFLOW, "workflow"}, "cli": {*BELOW_WORKFLOW, "workflow"}}
CORE = set(MAY_IMPORT)
BUILDS_ON = re.compile(r"^Builds on: ([a-z0-9_, ]+)\.$", re.M)
# A feature imports the core and the features that its docstring names; the core imports none, but by the references of seams.py.
for room in FEATURES:
    named = BUILDS_ON.search(importlib.import_module(f"milabench.{room}").__doc__ or "")
    MAY_IMPORT[room] = CORE | set(named[1].split(", ") if named else ())
EFFECTS = {"os", "sys", "subprocess", "asyncio", "socket", "time", "random", "shutil", "rich", "asyncssh"}
EDGES = {
    "config/read.py",
    "devices/command.py",
    "devices/locks.py",
    "devices/regular_file.py",
    "facts/probe.py",
    "bench/load.py",
    "analysis/search_limits.py",
    "analysis/log_child.py",
    "events/atomic_write.py",
    "events/removal.py",
    "events/run_writer.py",
    "redaction.py",
    "seams.py",
}
# Of the features: their commands (`*_command.py`), and these, which act on files and processes.
USE_CASES = {
    "archives/signing.py",
    "bench_command/measure_commands.py",
    "capsule/create.py",
    "capsule/install.py",
    "capsule/supplies.py",
    "compat13/import_suite.py",
    "compat13/imported_files.py",
    "compat13/milabench13.py",
    "driver/task_driver.py",
    "hangs/on_node/collecting.py",
    "hangs/on_node/collectives.py",
    "hangs/steps_looked_at.py",
    "history/results_store.py",
    "images/image_recipes.py",
    "own_program/interpreter.py",
    "own_program/new_from_program.py",
    "own_program/origins.py",
    "own_program/try_program.py",
    "site/write.py",
    "timing_audit/experiment.py",
}
FOREIGN = ("compat13/child.py", "compat13/names/")  # a program of its own, and what foreign code imports in it
DOING = {"execute", "schedulers", "display", "workflow", "cli", "api"}
DOING |= {"ci", "dev", "doctor", "following", "garbage", "jobs", "pinning", "quickstart", "scaffold", "slurm"}
ONLY_HERE = {"omegaconf": {"config"}, "yaml": {"config"}, "asyncssh": {"execute"}, "rich": {"display", "cli"}}
ONLY_HERE |= {
    "click": {"cli"},
    "sqlite3": {"history"},
    "psycopg": {"history"},
    "pyarrow": {"history"},
    "xlsxwriter": {"workbooks"},
}


def modules() -> Iterator[tuple[str, Path]]:
    package = ROOT / "orchestrator" / "milabench"
    for path in sorted([*package.rglob("*.py"), *(package / "devices").glob("*.py")]):  # the latter behind a link
        yield path.relative_to(package).as_posix(), path


MODULES = list(modules())


PARSED = {module.path: module for module in structure.modules(structure.CONTROL_PLANE).values()}


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return PARSED[path].tree if path in PARSED else ast.parse(path.read_text(), str(path))


def _name_of(called: ast.expr) -> str:
    return getattr(called, "attr", getattr(called, "id", ""))


@functools.cache  # every test asks of every module
def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Call) and _name_of(node.func).endswith("import_module"):
            found |= {
                each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)
            }
    return found


def package_of(name: str) -> str:
    return name.split("/", maxsplit=1)[0].removesuffix(".py")


def offenders(found: Callable[[str, Path], set[str]]) -> dict[str, set[str]]:
    """What is found in modules that should have nothing of it, by their names; in one test for all, for they are hundreds."""
    return {name: those for name, path in MODULES if (those := found(name, path))}


def roots(path: Path) -> set[str]:
    return {found.split(".")[0] for found in imports(path)}


def test_a_module_imports_only_what_its_layer_may() -> None:
    def beyond(name: str, path: Path) -> set[str]:
        package = package_of(name)
        if package.startswith("__") or name.startswith(FOREIGN):
            return set()
        reached = {parts[1] for found in imports(path) if (parts := found.split("."))[0] == "milabench" and parts[1:]}
        return reached - MAY_IMPORT[package] - {package, "records", "errors", "version", "redaction", "shown", "seams"}

    assert offenders(beyond) == {}


def test_features_do_not_build_on_each_other_in_a_circle() -> None:
    assert circles({room: MAY_IMPORT[room] & FEATURES for room in FEATURES}) == []


def test_deciding_has_no_effects() -> None:
    def effects(name: str, path: Path) -> set[str]:
        has_them = package_of(name) in DOING or name in EDGES | USE_CASES or name.startswith(("__", *FOREIGN))
        has_them |= name.endswith("_command.py")
        return set() if has_them else roots(path) & EFFECTS

    assert offenders(effects) == {}


def test_a_dependency_lives_in_its_one_place() -> None:
    def elsewhere(name: str, path: Path) -> set[str]:
        place = "cli" if name.endswith("_command.py") else package_of(name)
        return {found for found in roots(path) if place not in ONLY_HERE.get(found, {place})}

    assert offenders(elsewhere) == {}


# Text that is copied into the environment of a benchmark, which has torch.
COPIED = {"execute/torchvision_shim.py"}


def test_what_is_copied_into_environments_is_not_imported_here() -> None:
    copied = {f"milabench.{module.removesuffix('.py').replace('/', '.')}" for module in COPIED}
    assert offenders(lambda _, path: imports(path) & copied) == {}


def test_the_control_plane_never_imports_the_instruments() -> None:
    instruments = {"benchmate", "torch", "voir", "ptera"}
    assert offenders(lambda name, path: set() if name in COPIED else roots(path) & instruments) == {}


# What may write to standard output and error: the program, command line and displays, and what is a process of its own on a node.
WRITERS = ("__main__.py", "cli/", "display/", "execute/agent", "execute/remote_install.py", *FOREIGN)


def writes(path: Path) -> Iterator[str]:
    """The statements that write to a standard stream, but those of a module that is run as a program."""
    for top in tree_of(path).body:
        if isinstance(top, ast.If) and "__main__" in ast.unparse(top.test):
            continue
        for node in ast.walk(top):
            # Words of every call take long to make; only these can be one of those that are looked for.
            if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in (
                "print",
                "write",
            ):
                called = ast.unparse(node.func)
                if called == "print" or re.fullmatch(r"sys\.std(out|err)(\.buffer)?\.write", called):
                    yield f"line {node.lineno}: {ast.unparse(node)}"


def test_below_the_command_line_nothing_writes_to_a_standard_stream() -> None:
    def written(name: str, path: Path) -> set[str]:
        return set() if name.startswith(WRITERS) or name.endswith("_command.py") else set(writes(path))

    assert offenders(written) == {}


def test_writing_to_a_standard_stream_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    path.write_text("import sys\nprint('a', file=sys.stderr)\nsys.stdout.buffer.write(b'b')\nsys.stdout.flush()\n")
    assert [line.partition(":")[0] for line in writes(path)] == ["line 2", "line 3"]


def test_the_instruments_never_import_the_control_plane() -> None:
    for path in (ROOT / "benchmate").rglob("*.py"):
        assert "milabench" not in roots(path), path


def test_benchmarks_import_only_what_they_may() -> None:
    for path in (ROOT / "benchmarks").rglob("*.py"):
        reached = roots(path) & {"milabench", "benchmate"}
        allowed = {"milabench"} if path.name == "benchfile.py" else {"benchmate"}
        assert reached <= allowed, path
