"""Imports packages, and reports the results. The interpreter of an environment runs this program by itself.

Its argument is a JSON list of the names of distributions. Standard library only, also for older Pythons than ours.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import keyword
import os
import re
import sys
import traceback

MARK = "milabench import: "
# What distributions wrongly install beside their package, and what needs more than they require.
_NOT_FOR_USE = ("test", "tests", "testing", "doc", "docs", "example", "examples", "benchmark", "benchmarks", "scripts")


def modules_of(name: str, paths: list[str]) -> list[str]:
    """Return the modules to import for a distribution with these files: the module of its own name, else all public modules.

    Of a package without `__init__.py` these are its outermost files of code. Empty for a package that has none: stubs, data,
    programs.
    """
    packages: set[tuple[str, ...]] = set()
    modules: set[tuple[str, ...]] = set()
    inner: set[tuple[str, ...]] = set()
    for path in paths:
        *folders, file = path.split("/")
        stem, _, ending = file.partition(".")
        if file == "__init__.py" and folders:
            packages.add(tuple(folders))
        elif not folders and (ending == "py" or ending.endswith("so")):
            modules.add((stem,))
        elif _is_code(folders, stem, ending):
            inner.add((*folders, stem))
    if not packages and not modules:
        depth = min(map(len, inner), default=0)
        modules = {parts for parts in inner if len(parts) == depth}
    outermost = {parts for parts in packages if not any(parts[:end] in packages for end in range(1, len(parts)))}
    found = {
        ".".join(parts)
        for parts in outermost | modules
        if all(part.isidentifier() and not keyword.iskeyword(part) for part in parts)
    }
    own = {module for module in found if _plain(module) == _plain(name)}
    public = {module for module in found if not module.startswith("_") and module not in _NOT_FOR_USE}
    return sorted(own or public)


def _is_code(folders: list[str], stem: str, ending: str) -> bool:
    """Return whether a file in folders is a module of a namespace package: no program, no library that others link."""
    if {*folders} & {*_NOT_FOR_USE, "bin", "lib", "lib64"} or stem.startswith("__"):
        return False
    is_extension = re.fullmatch(r"((cpython|abi)[\w-]*\.)?so", ending) is not None
    return ending == "py" or (is_extension and not stem.startswith("lib"))


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "_", name).lower()


def _last_line(error: BaseException) -> str:
    """Return the last line of an exception, with its type."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return ": ".join((type(error).__name__, *lines[-1:]))


def _say(**what: object) -> None:
    # Past the buffers, and on a line of its own: what is imported may print too.
    os.write(1, f"\n{MARK}{json.dumps(what)}\n".encode())


def main() -> None:
    """Import the modules that the argument names."""
    for package in json.loads(sys.argv[1]):
        try:
            files = importlib.metadata.distribution(package).files
        except importlib.metadata.PackageNotFoundError:
            _say(package=package, absent=True)
            continue
        modules = modules_of(package, [str(file) for file in files or []])
        if not modules:
            _say(package=package, nothing="it has no module" if files else "it lists no files")
        for module in modules:
            _say(package=package, module=module)
            try:
                importlib.import_module(module)
            except BaseException as error:
                traceback.print_exc()
                _say(package=package, module=module, why=_last_line(error))
    _say(end=True)
    sys.stdout.flush()
    os._exit(0)  # what is loaded may crash when it is unloaded, which is no matter of importing


if __name__ == "__main__":
    main()
