"""Benchfiles that are not ours, and the modules that understand them, which features add."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Final, cast

from milabench import seams
from milabench.devices.regular_file import read_regular
from milabench.shown import grouped

BENCHFILE = "benchfile.py"


class EveryName(frozenset[str]):
    """The options of a benchmark that takes any key of a suite."""

    def __contains__(self, _: object) -> bool:
        return True


EVERY_NAME: Final = EveryName()


def foreign_format(benchfile: Path) -> ModuleType | None:
    """Return the module that reads a benchfile, where it is not ours. The benchfile is read, not run."""
    try:
        text = read_regular(benchfile).decode()
    except (OSError, UnicodeDecodeError):
        return None
    assigned = [name for name in seams.BENCHFILES if re.search(rf"^{name}\s*[:=]", text, re.MULTILINE)]
    return module_of(assigned[0]) if assigned else None


def ask_together(folders: Iterable[Path]) -> bool:
    """Ask the benchfiles of several folders that are not ours at once, which takes less time than in sequence.

    Return whether there is any.
    """
    formats = ((foreign_format(folder / BENCHFILE), folder) for folder in dict.fromkeys(folders))
    of_module = grouped((module, folder) for module, folder in formats if module is not None)
    for module, own in of_module.items():
        module.read_together(own)
    return bool(of_module)


def module_of(name: str) -> ModuleType:
    """Return the module that reads benchfiles in which this name is assigned. Raises UsageError where its feature is left out.

    `declared_in(folder)` returns its benchmark. `read_together(folders)` prepares that for several. `placed(benches, context)`
    returns benchmarks with the processes of a plan.
    """
    seams.require(seams.BENCHFILES[name], f"a benchfile with {name}")
    return cast("ModuleType", seams.resolved(seams.BENCHFILES[name]))
