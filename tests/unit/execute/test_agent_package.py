"""What keeps the agent fit to be sent to another machine: no dependency, an old Python, no circle."""

from __future__ import annotations

import ast
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from graphlib import TopologicalSorter
from io import BytesIO
from pathlib import Path

import pytest

from milabench.execute.agent.unpack import digest_of
from milabench.execute.agent_bootstrap import agent_digest, agent_files, deterministic_zip
from milabench.facts.probe import AGENT

FILES = {name: content for name, content in agent_files() if name.endswith(".py")}


def imported(name: str) -> Iterator[str]:
    """The absolute names of the modules that a file of the agent imports, inside functions too."""
    package = ["", *name.split("/")[:-1]]
    for node in ast.walk(ast.parse(FILES[name])):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[1 : len(package) + 1 - node.level]) if node.level else ""
            whole = ".".join(part for part in (base, node.module) if part)
            yield whole
            yield from (f"{whole}.{alias.name}" for alias in node.names)


def path_of(module: str) -> str | None:
    """The file of a module of the agent; None of what is not the agent's."""
    path = module.replace(".", "/")
    return next((name for name in (f"{path}.py", f"{path}/__init__.py") if name in FILES), None)


@pytest.mark.parametrize("name", sorted(FILES))
def test_an_agent_module_imports_only_the_standard_library_and_the_agent(name: str) -> None:
    foreign = {
        module
        for module in imported(name)
        if module.partition(".")[0] not in sys.stdlib_module_names
        and path_of(module) is None
        and path_of(module.rpartition(".")[0]) is None
    }
    assert not foreign


@pytest.mark.parametrize("name", sorted(FILES))
def test_an_agent_module_is_python_3_8(name: str) -> None:
    ast.parse(FILES[name], name, feature_version=(3, 8))


def test_agent_modules_import_each_other_in_no_circle() -> None:
    graph = {name: {path for module in imported(name) if (path := path_of(module))} - {name} for name in FILES}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def test_an_agent_that_serves_has_not_imported_what_takes_long_and_is_seldom_needed() -> None:
    code = """
import sys
names = {"__name__": "", "__file__": sys.argv[1]}
exec(open(sys.argv[1]).read(), names)
names["load_package"]()
import milabench.execute.agent.supervisor
import milabench.execute.agent.verbs
print(*sys.modules)
"""
    argv = [sys.executable, "-I", "-S", "-c", code, str(AGENT)]
    loaded = set(subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split())
    assert "milabench.execute.agent.step" in loaded
    assert not loaded & {"typing", "shutil", "glob", "getopt", "gettext", "platform", "milabench.devices.registry"}


def test_the_archive_of_the_agent_depends_on_its_content_only(tmp_path: Path) -> None:
    archive = deterministic_zip(reversed(agent_files()))
    assert archive == deterministic_zip(agent_files())
    with zipfile.ZipFile(BytesIO(archive)) as file:
        assert digest_of((name, file.read(name)) for name in file.namelist()) == agent_digest()
