"""Finds the interpreter of a program, and which of the imported packages it has."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from milabench.errors import EnvironmentFailed, UsageError
from milabench.own_program.program import Program

OLDEST: Final = (3, 10)
DISTRIBUTIONS: Final = {"sklearn": "scikit-learn", "PIL": "pillow", "cv2": "opencv-python", "yaml": "PyYAML"}
"""Distributions whose names differ from their modules' names, for modules that are not installed."""
_WITHIN_S: Final = 60.0
# Only finds modules, and imports none of them but the packages around a module of the program.
_CHILD: Final = """
import importlib.metadata, importlib.util, json, sys
names, module = json.loads(sys.argv[1])
def spec_of(name):
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
distributions = importlib.metadata.packages_distributions()
packages = {}
for name in names:
    for distribution in distributions.get(name, [])[:1]:
        packages[name] = [distribution, importlib.metadata.version(distribution)]
spec = spec_of(module) if module else None
if spec is not None and spec.submodule_search_locations is not None:
    spec = spec_of(module + ".__main__")
print(json.dumps({
    "python": sys.executable, "version": sys.version_info[:2], "prefix": sys.prefix, "packages": packages,
    "missing": [name for name in names if name not in sys.stdlib_module_names and spec_of(name) is None],
    "file": (spec.origin or "") if spec is not None else "",
}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """An interpreter: `packages` are distribution and version of the packages that it has, `missing` the names of the others.

    `file` is the file of the module that was looked for, empty where there is none.
    """

    python: str
    prefix: str
    version: Sequence[int]
    packages: Mapping[str, Sequence[str]]
    missing: Sequence[str]
    file: str = ""


def ask_interpreter(python: str, imports: Sequence[str], module: str = "") -> Interpreter | None:
    """Return the packages of an interpreter. None: it could not be started."""
    command = [python, "-c", _CHILD, json.dumps([list(imports), module])]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_WITHIN_S)
        return Interpreter(**json.loads(asked.stdout)) if asked.returncode == 0 else None
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None


def interpreter_of(
    program: Program,
    named: str,
    imports: Mapping[str, int],
    environ: Mapping[str, str],
    *,
    is_complete: bool = True,
) -> Interpreter:
    """Return the interpreter of a program: the interpreter that its command names, else the first with the imported packages.

    `named` is the interpreter or launcher of the command line, empty where it is a script alone. `imports` are packages with
    their lines. Raises EnvironmentFailed where packages are missing in all, unless not `is_complete`, and UsageError for a module
    that there is not.
    """
    best: Interpreter | None = None
    for python in dict.fromkeys(_candidates(named, environ)):
        asked = ask_interpreter(python, tuple(imports), program.module)
        if asked is not None and (best is None or len(asked.missing) < len(best.missing)):
            best = asked
        if best is not None and not best.missing:
            break
    if best is None:
        raise EnvironmentFailed(f"{named or 'python'}: no such interpreter on the PATH, or older than Python 3.10")
    if tuple(best.version) < OLDEST:
        version = ".".join(map(str, best.version))
        raise EnvironmentFailed(
            f"{best.python} is Python {version}, but the instruments need {'.'.join(map(str, OLDEST))}"
        )
    if program.module and not best.file:
        raise UsageError(f"-m {program.module}: no such module in {best.python}")
    if best.missing and is_complete:
        first = best.missing[0]
        raise EnvironmentFailed(
            f"{program.name} imports {', '.join(best.missing)} (line {imports[first]}), not installed for {best.python}. "
            "Activate the environment that has it, or pip install "
            + " ".join(DISTRIBUTIONS.get(name, name) for name in best.missing)
        )
    return best


def _candidates(named: str, environ: Mapping[str, str]) -> Iterator[str]:
    found = shutil.which(named, path=environ.get("PATH")) if named else None
    if named:
        # torchrun is a script in the folder of its interpreter.
        neighbour = Path(found or named).parent / "python"
        yield from (str(neighbour),) if not Path(named).name.startswith(("python", "pypy")) else (found or named,)
        return
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if environ.get(variable):
            yield f"{environ[variable]}/bin/python"
    yield sys.executable
    for name in ("python", "python3"):
        if (python := shutil.which(name, path=environ.get("PATH"))) is not None:
            yield python
