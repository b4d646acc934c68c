"""Reads requirement files, those that they include among them."""

from __future__ import annotations

from pathlib import Path

from milabench.devices.regular_file import read_regular
from milabench.errors import EnvironmentFailed
from milabench.execute.inventory import marker_environment
from milabench.plan.requirements import RequirementFile, applies, parse_requirements
from milabench.workflow.files import display_path


def required_packages(file: Path, python: str = "") -> tuple[str, ...] | None:
    """Return the packages that a requirements.in names, and those it includes by `-r`. None where it is not there.

    Only those whose markers hold on this machine, with the running Python or another version ("3.11").
    """
    if not file.is_file():
        return None
    environment = marker_environment(python)
    pins = (pin for each in included_files(file) for pin in parse_requirements(each.text).pins)
    return tuple(dict.fromkeys(pin.name for pin in pins if pin.name and applies(pin.line, environment)))


def included_files(file: Path) -> list[RequirementFile]:
    """Return a requirement file and those that it includes by `-r`, as far as they are there. Raises EnvironmentFailed."""
    files: dict[Path, RequirementFile] = {}
    pending = [file.resolve()]
    while pending:
        current = pending.pop(0)
        if current in files or not current.is_file():
            continue
        files[current] = read_requirements(current)
        included = (option.split(maxsplit=1) for option in parse_requirements(files[current].text).options)
        pending += [
            (current.parent / words[1]).resolve()
            for words in included
            if words[0] in ("-r", "--requirement") and words[1:]
        ]
    return list(files.values())


def read_requirements(path: Path) -> RequirementFile:
    """Read a requirement file. Raises EnvironmentFailed when it cannot be read."""
    shown = display_path(path)
    try:
        return RequirementFile(name=shown, text=read_regular(path).decode())
    except (OSError, UnicodeDecodeError) as error:
        raise EnvironmentFailed(f"{shown}: cannot be read: {error}") from None
