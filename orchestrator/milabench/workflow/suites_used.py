"""The suites used in a base, and the parts of the base that each refers to: defaults of later commands, roots of `gc`.

Stored in the base as `suites.json`. Nothing breaks without it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from milabench.config.sizes import SIZES
from milabench.devices.regular_file import MIB, open_descriptor, read_regular
from milabench.errors import RecordError, UsageError, os_reason
from milabench.events.atomic_write import replace_file
from milabench.execute.locks import take_alone
from milabench.redaction import mask_argument
from milabench.workflow.files import base_folder, display_path, shipped_suite, suite_file, writing

if TYPE_CHECKING:
    from milabench.plan.context import ResolvedBenchmark
    from milabench.workflow.options import CommandContext, SuiteOptions

SUITES = "suites.json"
SCHEMA = 1
_LOCK = ".suites.lock"
_MAX_BYTES = 16 * MIB
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedSuite:
    """A suite as it was used in a base, and the items there that it refers to.

    `config` is the path of its file, or the name of a shipped suite. With `system`, `arch` and `overrides` it decides on the
    rest. `environments` maps install groups to folders below `venv/`, `programs` benchmarks to folders below `code/`, `images`
    benchmarks to files. `data` are the names of its benchmarks, `reference` the run that its scores are relative to. `used`
    and `chosen` are unix seconds: of its last use, and of the last command that it was the default for, 0 for none.
    """

    config: str
    system: str | None = None
    arch: str | None = None
    overrides: tuple[str, ...] = ()
    environments: Mapping[str, str] = field(default_factory=dict)
    programs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    images: Mapping[str, str] = field(default_factory=dict)
    data: tuple[str, ...] = ()
    reference: str = ""
    used: float = 0.0
    chosen: float = 0.0

    @property
    def key(self) -> tuple[object, ...]:
        """Identifies the use."""
        return self.config, self.system, self.arch, self.overrides

    @property
    def path(self) -> Path:
        """The suite's file."""
        return Path(self.config) if os.sep in self.config else shipped_suite(self.config)

    @property
    def exists(self) -> bool:
        """Whether it can be used again: its files are there."""
        return not is_gone(self.path) and (self.system is None or not is_gone(Path(self.system)))

    def __str__(self) -> str:
        config = display_path(self.path) if os.sep in self.config else self.config
        return config if self.system is None else f"{config} with {display_path(Path(self.system))}"


def is_gone(file: Path) -> bool:
    """Return whether the file does not exist. A file that we may not look at, such as another user's, exists."""
    try:
        return not stat.S_ISREG(file.stat().st_mode)
    except OSError as error:
        return error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
    except ValueError:  # no path
        return True


def read_suites(base: Path) -> tuple[UsedSuite, ...] | None:
    """Return the suites that were used in a base. None without a record. Raises RecordError for an unreadable record."""
    path = base / SUITES
    try:
        record = json.loads(read_regular(path, _MAX_BYTES))
        if int(record["schema"]) > SCHEMA:
            raise RecordError(f"{path}: was written by a newer version of milabench. Use that version in this base")
        return tuple(_suite_of(entry, base) for entry in record["suites"])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {os_reason(error)}") from None
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        raise RecordError(
            f"{path}: was not written by milabench. Remove it, and `milabench install` writes it again"
        ) from None


def _suite_of(entry: Mapping[str, Any], base: Path) -> UsedSuite:
    """Return an entry of the file. Raises AttributeError, KeyError, TypeError and ValueError."""
    return UsedSuite(
        config=_found(str(entry["config"]), base),
        system=None if entry.get("system") is None else _found(str(entry["system"]), base),
        arch=None if entry.get("arch") is None else str(entry["arch"]),
        overrides=tuple(map(str, entry["overrides"])),
        environments={group: str(folder) for group, folder in entry["environments"].items()},
        programs={bench: tuple(map(str, folders)) for bench, folders in entry["programs"].items()},
        images={bench: _found(str(file), base) for bench, file in entry["images"].items()},
        data=tuple(map(str, entry["data"])),
        reference=_found(str(entry["reference"]), base),
        used=float(entry["used"]),
        chosen=float(entry["chosen"]),
    )


def last_chosen(base: Path) -> UsedSuite | None:
    """Return the suite that was last chosen in a base, also where its files are gone. Raises RecordError."""
    chosen = [suite for suite in read_suites(base) or () if suite.chosen]
    return max(chosen, key=lambda suite: suite.chosen, default=None)


def with_last_chosen(options: SuiteOptions) -> tuple[SuiteOptions, str]:
    """Return the options with the suite that was last chosen in the base, and the line that says so.

    As they are, with an empty line, where they name a suite, or that is the default anyway. Raises UsageError where a file
    of that suite is gone, and RecordError where it cannot be known: another suite in its place would be a surprise.
    """
    if options.config_file is not None:
        return options, ""
    where = display_path(base_folder(options.base))
    try:
        suite = last_chosen(base_folder(options.base))
    except RecordError as error:
        raise RecordError(f"{error}. Name another suite with --config") from None
    if suite is None:
        return options, ""
    if options.system_file is not None:
        suite = replace(suite, system=None)
    if is_gone(suite.path):
        raise UsageError(
            f"the suite last used in {where}, {display_path(suite.path)}, is gone. Choose a suite with --config"
        )
    if suite.system is not None and is_gone(Path(suite.system)):
        gone = f"the system file {display_path(Path(suite.system))} of the suite last used in {where}, {suite.path}, is gone"
        raise UsageError(f"{gone}. Choose another with --system or --config")
    is_default = suite.system is None and suite.path == suite_file(None)
    system = options.system_file if suite.system is None else Path(suite.system)
    # Else a plan that follows a run of one size would be of another.
    sizes = (size for size in SIZES if f"size={size}" in suite.overrides)
    size = next(sizes, None) if options.size is None else None
    given = replace(options, config_file=suite.path, system_file=system)
    if size is not None:
        given = replace(given, size=size, size_by=f"the last use of the suite in {where}")
    elif is_default:
        return given, ""
    at = "" if size is None else f" at size {size}"
    return given, f"suite: {suite}{at}, the last used in {where}. Choose another with --config"


def record_use(context: CommandContext, *, as_default: bool = True) -> None:
    """Record that a suite is used, and the items that it refers to. `as_default`: later commands use it without --config.

    Warns where that cannot be written: nothing else depends on it.
    """
    base, use = Path(context.dirs.base), _use_of(context)
    if not as_default and not (use.environments or any(use.programs.values()) or use.images):
        return  # a suite of commands, as `bench` writes one for each command line
    try:
        base.mkdir(parents=True, exist_ok=True)
        with _locked(base):
            try:
                known = read_suites(base) or ()
            except RecordError as error:
                context.session.warn(str(error))
                return
            groups = {bench.install_group for bench in context.suite.benchmarks.values()}
            suites = _updated(known, use, groups, as_default=as_default)
            replace_file(base / SUITES, _text_of(suites, base))
    except OSError as error:
        context.session.warn(f"{base / SUITES}: cannot be written: {os_reason(error)}")


def forget_suites(base: Path, forgotten: Sequence[UsedSuite]) -> None:
    """Remove suites from the record, but only the references of the last chosen suite. Raises RecordError."""
    keys = {suite.key for suite in forgotten}
    with writing(base / SUITES), _locked(base):
        kept = [suite for suite in read_suites(base) or () if suite.key not in keys]
        # Else a command without --config would mean another one, and not say so.
        if (last := last_chosen(base)) is not None and last.key in keys:
            kept.append(replace(last, environments={}, programs={}, images={}, data=(), reference=""))
        replace_file(base / SUITES, _text_of(kept, base))


def _updated(
    known: Sequence[UsedSuite], use: UsedSuite, groups: Collection[str], *, as_default: bool
) -> list[UsedSuite]:
    """Return the record with a use, including the references of an earlier use with another selection."""
    now = time.time()
    before = next((suite for suite in known if suite.key == use.key), use)
    merged = replace(
        use,
        environments=_among(groups, {**before.environments, **use.environments}),
        programs=_among(use.data, {**before.programs, **use.programs}),
        images=_among(use.data, {**before.images, **use.images}),
        used=now,
        chosen=now if as_default else before.chosen,
    )
    # A suite that is used with ever other overrides, as by the timing audit, is kept once where these change nothing here.
    same = [suite for suite in known if suite.key == merged.key or _refers_alike(suite, merged)]
    merged = replace(merged, chosen=max(merged.chosen, *(suite.chosen for suite in same), 0.0))
    return [*(suite for suite in known if suite not in same), merged]


def _refers_alike(suite: UsedSuite, other: UsedSuite) -> bool:
    """Return whether two uses of a suite differ in nothing but overrides, and in when they were."""
    return replace(suite, overrides=other.overrides, used=other.used, chosen=other.chosen) == other


def _among(names: Collection[str], values: Mapping[str, T]) -> dict[str, T]:
    """Return the values of names that the suite still has."""
    return {name: value for name, value in values.items() if name in names}


def _use_of(context: CommandContext) -> UsedSuite:
    """Return the use of a suite, without references from unselected benchmarks only."""
    options = context.options
    path = context.suite_file.absolute()
    return UsedSuite(
        config=path.stem if path == shipped_suite(path.stem) else str(path),
        system=None if options.system_file is None else str(options.system_file.absolute()),
        arch=options.arch,
        # Records keep no secrets.
        overrides=(
            *(mask_argument(override) for override in options.overrides),
            *(() if options.size is None else (f"size={options.size}",)),
            *(() if options.lock is None else (f"lock={options.lock.absolute()}",)),
        ),
        environments=context.plan_context.environments,
        programs={bench.config.name: tuple(_programs(bench)) for bench in context.benches},
        images=dict(_images(context)),
        data=tuple(context.suite.benchmarks),
        reference=context.suite.system.reference,
    )


def _programs(bench: ResolvedBenchmark) -> Iterator[str]:
    """Yield the folders below `code/` of a benchmark: the folder of its program, and its own where it was fetched."""
    if bench.declared is not None and bench.declared.source is not None:
        yield bench.declared.source.folder
    if bench.config.definition is not None and not isinstance(bench.config.definition, Path):
        yield bench.config.definition.folder


def _images(context: CommandContext) -> Iterator[tuple[str, str]]:
    """Yield the benchmarks with the files of their containers' images, where these are files."""
    from milabench.plan.container import container_of, image_of

    for bench in context.benches:
        box = container_of(bench.config, context.system)
        if box is not None and (file := image_of(box.engine, box.image, context.dirs.cache).file):
            yield bench.config.name, file


def _text_of(suites: Sequence[UsedSuite], base: Path) -> bytes:
    entries = [
        {
            **asdict(suite),
            "config": _stored(suite.config, base),
            "system": None if suite.system is None else _stored(suite.system, base),
            "images": {bench: _stored(file, base) for bench, file in suite.images.items()},
            "reference": _stored(suite.reference, base),
        }
        for suite in suites
    ]
    return json.dumps({"schema": SCHEMA, "suites": entries}, indent=1).encode() + b"\n"


def _stored(path: str, base: Path) -> str:
    """Return a path below the base as `./path`, so that a base can be moved. Other paths stay unchanged."""
    return f"./{Path(path).relative_to(base)}" if Path(path).is_relative_to(base) else path


def _found(path: str, base: Path) -> str:
    """Return the path that `_stored` was given."""
    return str(base / path) if path.startswith("./") else path


@contextlib.contextmanager
def _locked(base: Path) -> Iterator[None]:
    """Hold the record for the instant of a change: two commands may use a base at once."""
    descriptor = open_descriptor(base / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
    try:
        take_alone(descriptor, wait=True)
        yield
    finally:
        os.close(descriptor)
