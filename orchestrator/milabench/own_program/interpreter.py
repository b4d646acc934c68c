"""Finds the interpreter of a program, and which of the imported packages it has."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Final

from milabench.errors import EnvironmentFailed, UsageError

DISTRIBUTIONS: Final = {"sklearn": "scikit-learn", "PIL": "pillow", "cv2": "opencv-python", "yaml": "PyYAML"}
"""Distributions whose names differ from their modules' names, for modules that are not installed."""
_WITHIN_S: Final = 60.0
# Fails before Python 3.10, which the instruments need. It only finds modules, and imports none but the packages around a module
# of the program.
_CHILD: Final = """
import importlib.metadata, importlib.util, json, sys
names, module = json.loads(sys.argv[1])
def spec_of(name):
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
distributions = importlib.metadata.packages_distributions()
firsts = {name: distributions[name][0] for name in names if name in distributions}
spec = spec_of(module) if module else None
if spec is not None and spec.submodule_search_locations is not None:
    spec = spec_of(module + ".__main__")
print(json.dumps({
    "python": sys.executable, "prefix": sys.prefix,
    "packages": {name: [first, importlib.metadata.version(first)] for name, first in firsts.items()},
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
    packages: Mapping[str, Sequence[str]]
    missing: Sequence[str]
    file: str = ""


def ask_interpreter(python: str, imports: Iterable[str], module: str = "") -> Interpreter | None:
    """Return the packages of an interpreter. None: it could not be started."""
    command = [python, "-c", _CHILD, json.dumps([list(imports), module])]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_WITHIN_S)
        return Interpreter(**json.loads(asked.stdout)) if asked.returncode == 0 else None
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None


def find_interpreter(start: Sequence[str], imports: Iterable[str], module: str = "") -> Interpreter:
    """Return the interpreter of a program: the one that starts it, else the first with most of the imported packages.

    `start` are the words before the program, `module` is a module whose file is looked for. Raises EnvironmentFailed where no
    interpreter answers.
    """
    best: Interpreter | None = None
    for python in _candidates(*start[:1]):
        asked = ask_interpreter(python, imports, module)
        if asked is not None and (best is None or len(asked.missing) < len(best.missing)):
            best = asked
        if best is not None and not best.missing:
            break
    if best is None:
        named = start[0] if start else "python"
        raise EnvironmentFailed(f"{named}: no such interpreter on the PATH, or older than Python 3.10")
    return best


def module_file(start: Sequence[str], module: str) -> Path:
    """Return the file of a module that an interpreter finds here, or has installed. Raises UsageError and EnvironmentFailed."""
    found = find_interpreter(start, (), module)
    if not found.file:
        pypi = f"`milabench new NAME --from pypi:PROJECT==VERSION --module {module}` fetches a package"
        raise UsageError(f"-m {module}: no such module in {Path.cwd()} or {found.python}. {pypi}")
    return Path(found.file)


def require_packages(interpreter: Interpreter, imports: Mapping[str, int], name: str) -> None:
    """Raise EnvironmentFailed where a program of this name imports packages, with their lines, that its interpreter has not."""
    if missing := interpreter.missing:
        distributions = " ".join(DISTRIBUTIONS.get(package, package) for package in missing)
        raise EnvironmentFailed(
            f"{name} imports {', '.join(missing)} (line {imports[missing[0]]}), not installed for {interpreter.python}. "
            f"Activate the environment that has it, or pip install {distributions}"
        )


def _candidates(named: str = "") -> Iterable[str]:
    """Return the interpreters that may start a program, the likeliest first. `named` is an interpreter or a launcher."""
    found = shutil.which(named) or named
    if PurePath(named).name.startswith(("python", "pypy")):
        return (found,)
    if named:
        # torchrun is a script in the folder of its interpreter.
        return (str(PurePath(found).parent / "python"),)
    active = (os.environ.get(variable) for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"))
    pythons = [*(f"{folder}/bin/python" for folder in active if folder), sys.executable]
    return dict.fromkeys([*pythons, *filter(None, map(shutil.which, ("python", "python3")))])
