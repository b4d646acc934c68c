"""The runs below a base folder, by their names and in the order of their times."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from urllib.parse import unquote

from milabench.errors import NothingSelected, RecordError, os_reason
from milabench.events.rundir import ReadManifest, Run, open_run, read_alone

_STAMP = re.compile(r"\.(?P<time>\d{4}-\d\d-\d\d_\d\d[-:]\d\d[-:]\d\d(?:[.:]\d+)?)(?:_(?P<again>\d+))?$")

_LATEST = re.compile(r"latest(?:~(\d{1,9}))?")
_REPORTS = (".html", ".md", ".csv", ".xml", ".xlsx")  # no run is called like this: a file to be written was meant
_EARLIER = re.compile(r"(?P<name>.+)~(?P<before>\d{1,9})", re.DOTALL)


def latest_run(base: Path, phase: str = "run") -> Run:
    """Return the newest run of a phase below `base`. Raises NothingSelected when there is none."""
    for run in recent_runs(base, phase):
        return run
    raise NothingSelected(
        f"{base / 'runs'}: no {phase} recorded here. Start it with `milabench {phase}`, or choose another base with --base"
    )


def recent_runs(base: Path, phase: str = "run") -> Iterator[Run]:
    """Yield the runs of a phase below `base`, the newest first. Each is read when it is asked for."""
    for path in reversed(_run_folders(base)):
        try:
            run = open_run(path)
        except RecordError:
            continue  # another folder, or a run that crashed before its manifest
        if run.phase == phase:
            yield run


def runs_before_latest(word: str) -> int | None:
    """Return 0 for `latest`, N for `latest~N`, the run N before it. None for another word."""
    match = _LATEST.fullmatch(word)
    return None if match is None else int(match[1] or 0)


def find_run(base: Path, name: str | Path, read_manifest: ReadManifest = read_alone) -> Run:
    """Return the run at a path, the newest below `base` with this name or directory name, or the run of `latest~1`, `NAME~1`.

    In a path to `runs` of any base, the run's name will do too.

    Raises NothingSelected when there is none, RecordError when it cannot be read.
    """
    path = Path(name)
    is_path = path.is_absolute() or len(path.parts) > 1
    if is_path and path.is_dir():
        return open_run(path, read_manifest)
    folders = _run_folders(base)
    wanted = str(name)
    if (named := _newest_called(wanted, folders)) is not None:
        return open_run(named, read_manifest)
    before = runs_before_latest(wanted)
    if before is not None and (run := next(islice(recent_runs(base), before, None), None)) is not None:
        return run
    if path.is_dir():  # a bare word is tried as a run's name first: the checkout has folders called run, docs, config
        return open_run(path, read_manifest)
    if path.suffix == ".zip" and path.is_file():
        raise RecordError(f"{path}: is no run directory. Unpack the bundle to a folder, and name that as the --base")
    if is_path:
        if path.parent.name == "runs" and (named := _newest_called(path.name, _run_folders(path.parent.parent))):
            return open_run(named, read_manifest)
        raise RecordError(f"{path}: no such run directory")
    known = ", ".join(folder.name for folder in folders[-3:])
    latest = f". The latest are {known}" if known else ""
    to_write = f". To write that file, give -o {wanted}" if path.suffix in _REPORTS else ""
    raise NothingSelected(f"no run is called '{wanted}' below {base / 'runs'}{to_write or latest}")


def _newest_called(wanted: str, folders: Sequence[Path]) -> Path | None:
    """Return the last of the folders, oldest first, with this name: the folder's own, or the name that the run was given.

    `NAME~N` is the run N before the last of this name.
    """
    named = next(_called(wanted, folders), None)
    if named is None and (match := _EARLIER.fullmatch(wanted)) is not None:
        named = next(islice(_called(match["name"], folders), int(match["before"]), None), None)
    return named


def _called(wanted: str, folders: Sequence[Path]) -> Iterator[Path]:
    for folder in reversed(folders):
        given = _STAMP.sub("", folder.name)
        if wanted in (folder.name, given, unquote(given, errors="surrogateescape")):
            yield folder


def _run_folders(base: Path) -> list[Path]:
    """Return the folders below `base/runs`, oldest first by the time in their names."""
    try:
        folders = [path for path in (base / "runs").iterdir() if path.is_dir()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RecordError(f"{base / 'runs'}: cannot be read: {os_reason(error)}") from None

    def age(path: Path) -> tuple[str, int, str]:
        match = _STAMP.search(path.name)
        return (match["time"].replace(":", "-"), int(match["again"] or 0), path.name) if match else ("", 0, path.name)

    return sorted(folders, key=age)
