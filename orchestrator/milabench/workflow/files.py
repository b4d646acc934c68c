"""The files and folders that users name, and where the defaults are. Their reading and writing, with errors that say why."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from milabench.config.problems import did_you_mean
from milabench.devices.regular_file import MIB, open_regular, read_regular
from milabench.errors import ConfigError, MilabenchError, Problem, RecordError, UsageError, os_reason, with_remedy
from milabench.events.atomic_write import write_output

_PACKAGE = Path(__file__).resolve().parents[1]
_CHECKOUT = _PACKAGE.parents[1]
IS_CHECKOUT = (_CHECKOUT / "benchmate" / "pyproject.toml").is_file()
ROOT = _CHECKOUT if IS_CHECKOUT else _PACKAGE / "shipped"
"""The folder of config/, benchmarks/, constraints/ and benchmate/: of the checkout, else of the wheel."""
SUITES = ROOT / "config"
MAX_BYTES = 256 * MIB
_ZIP = b"PK\x03\x04"


def shipped_suite(name: str) -> Path:
    """Return the path of a suite that comes with milabench."""
    return SUITES / f"{name}.yaml"


def display_path(path: Path) -> str:
    """Return the path as a person would type it from here."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def base_folder(base: Path | None) -> Path:
    """Return the folder that holds environments, data and runs: the given folder, else `results` here."""
    return (base or Path("results")).expanduser().resolve()


def shipped_names(folder: Path) -> list[str]:
    """Return the names by which the files of a shipped folder can be chosen: of suites, or weight profiles."""
    return sorted(path.stem for path in folder.glob("*.yaml") if path.stem != "base")


def suite_file(config_file: Path | None) -> Path:
    """Return the suite to read: the given file or shipped suite, else config/standard.yaml, here or shipped.

    Raises UsageError for a name that is both, ConfigError for a name that is neither.
    """
    if config_file is None:
        here = Path("config", "standard.yaml").absolute()
        return here if here.is_file() else shipped_suite("standard")
    if str(config_file).lstrip().startswith("{"):
        raise UsageError(
            "MILABENCH_CONFIG holds the keys of a benchmark, as its programs are given them, not the path of a suite."
            " Unset it, or give --config"
        )
    return file_or_shipped(config_file, SUITES, "suite")


def file_or_shipped(given: Path, folder: Path, what: str) -> Path:
    """Return the given file, or for a name alone the shipped file of this name in a folder.

    Raises UsageError for a name that is both, ConfigError for a name that is neither.
    """
    if given.suffix or len(given.parts) != 1:
        return given
    shipped = folder / f"{given.name}.yaml"
    if not shipped.is_file():
        if given.exists():
            return given
        names = shipped_names(folder)
        hint = did_you_mean(given.name, names) or f"shipped {what}s: {', '.join(names)}"
        raise ConfigError(Problem(str(given), "", f"neither a file here nor a shipped {what}", hint))
    if given.exists():
        raise UsageError(f"{given} is a file here and a shipped {what}. Give {given.absolute()} or {shipped}")
    return shipped


def read_file(path: Path, error: type[MilabenchError] = ConfigError, hint: str = "") -> bytes:
    """Return the content of a file that a user named, a pipe of the shell's too. Raises `error`, with the hint."""
    try:
        return read_regular(path, MAX_BYTES, is_pipe_allowed=True)
    except OSError as why:
        raise _unreadable(path, why, error, hint) from None


def _unreadable(path: Path, why: OSError, error: type[MilabenchError], hint: str = "") -> MilabenchError:
    return error(with_remedy(f"{path}: cannot be read: {os_reason(why)}", hint))


def require_file(path: Path, error: type[MilabenchError]) -> None:
    """Raise `error` unless the path is a regular file that can be read."""
    try:
        open_regular(path).close()
    except OSError as why:
        raise _unreadable(path, why, error) from None


def write_file(path: Path, content: str | bytes, *, is_folder_made: bool = True) -> None:
    """Write a file whole or not at all, with the folders above it where they are to be made. Raises RecordError."""
    with writing(path):
        if is_folder_made:
            path.parent.mkdir(parents=True, exist_ok=True)
        write_output(path, content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise RecordError for an OSError while a file or a folder is written."""
    try:
        yield
    except OSError as error:
        raise RecordError(f"{path}: cannot be written: {os_reason(error)}") from None


def is_archive(path: Path) -> bool:
    """Return whether a file begins as a bundle does. False for a file that cannot be read."""
    try:
        with open_regular(path) as file:
            return file.read(len(_ZIP)) == _ZIP
    except (OSError, ValueError):  # ValueError: a name that no file can have
        return False
