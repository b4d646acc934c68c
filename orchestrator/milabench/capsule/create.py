"""Packs a suite into a capsule, with all that it needs on a machine without a network."""

from __future__ import annotations

import itertools
import os
import platform
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath

from milabench.archives.archive import pieces
from milabench.capsule import contents, supplies
from milabench.capsule.contents import MAX_DEPTH, CapsuleEntry, CapsuleManifest, Content, PackedImage, PackedPython
from milabench.capsule.install import PLATFORM
from milabench.config.schema import BenchmarkConfig
from milabench.config.show import plain_benchmark, to_yaml
from milabench.errors import ConfigError, EnvironmentFailed, Problem, os_reason
from milabench.events.removal import scratch_folder
from milabench.execute import images as engines
from milabench.execute.install_session import find_uv
from milabench.execute.inventory import benchmate_digest, is_fetched
from milabench.execute.locks import hold_base
from milabench.execute.package_indexes import pip_settings
from milabench.execute.sizes import size_text
from milabench.plan.container import Image
from milabench.plan.prepare import MARKERS, OWN_DATA
from milabench.redaction import mask, mask_settings, secret_names
from milabench.shown import counted
from milabench.version import __version__
from milabench.workflow import environments
from milabench.workflow.context import read_context
from milabench.workflow.files import IS_CHECKOUT, ROOT
from milabench.workflow.install import progress_report
from milabench.workflow.options import CommandContext, Session, SuiteOptions
from milabench.workflow.preflight import command_line, pending_preparations, preparation_steps, require_current_locks

INSTALLER = Path(contents.__file__).with_name("install.sh")
# Of the frameworks' caches what preparations download. Beside them lie tokens of the user's.
_CACHES = ("huggingface/hub", "huggingface/datasets", "torch/hub")
# What a suite says of the machine, not of itself.
_OF_THE_MACHINE = (
    *("arch", "gpu", "cpu_count", "nodes", "sshkey", "known_hosts", "transport", "sync", "dirs", "reference", "costs"),
)

IsLeftOut = Callable[[str], bool]
"""Whether a file or folder of this name is left out of packing."""


def create_capsule(
    target: Path, options: SuiteOptions, session: Session, *, jobs: int = 1, has_data: bool = True
) -> CapsuleManifest:
    """Write a capsule of the selected benchmarks. The same base and packages give the same bytes.

    Raises EnvironmentFailed for parts not fetched or prepared here or missing from indexes, ConfigError for a secret in the
    suite, RecordError for files that cannot be written.
    """
    context = read_context(options, session)
    uv = find_uv(os.environ)
    if uv is None:
        raise EnvironmentFailed("uv is not installed, which a capsule is installed with. Install it")
    require_current_locks(context)
    with hold_base(Path(context.dirs.base), "capsule create", say=session.note):
        _require_present(context, has_data=has_data)
        try:
            with scratch_folder(Path(context.dirs.cache, ".capsule.building")) as scratch:
                return _Packing(context, uv, scratch, jobs).write(target, has_data=has_data)
        except FileExistsError as error:
            raise EnvironmentFailed(f"{error.filename}: {os_reason(error)}") from None


def _require_present(context: CommandContext, *, has_data: bool) -> None:
    """Raise EnvironmentFailed, with the command to give, unless every program is fetched and all data is prepared."""
    missing = [f"code/{each.folder}" for each in environments.sources(context) if not is_fetched(context.dirs, each)]
    missing += [skip.bench for skip in environments.left_out_benches(context)]
    if missing:
        raise EnvironmentFailed(
            f"not installed: {', '.join(missing)}. Run `{command_line('install', context.options)}`"
        )
    if has_data and (steps := pending_preparations(context).steps):
        names = ", ".join(dict.fromkeys(step.bench for step in steps))
        command = command_line("prepare", context.options)
        raise EnvironmentFailed(f"not prepared: {names}. Run `{command}`, or leave their data out with --no-data")


class _Packing:
    """The packing of a capsule: the contents as they are found, and notes on them."""

    def __init__(self, context: CommandContext, uv: str, scratch: Path, jobs: int) -> None:
        self.uv, self.scratch, self.jobs = uv, scratch, jobs
        self.session = context.session
        self.environ = dict(os.environ)
        self.settings = pip_settings(self.environ)
        self.contents: list[Content] = []
        self.notes: list[str] = []
        names = [bench.config.name for bench in context.benches]
        # Only what is selected: its environments must not depend on benchmarks that are not there.
        chosen = {name: replace(context.suite.benchmarks[name], enabled=True) for name in names}
        self.context = replace(context, suite=replace(context.suite, benchmarks=chosen))
        self.others = {*context.suite.benchmarks} - {*names}

    def write(self, target: Path, *, has_data: bool) -> CapsuleManifest:
        """Gather everything and write the file."""
        context, report = self.context, progress_report(self.session)
        plan = environments.decide_install(context)
        suite = self._add_suite()
        report("packages: looking for the files that the locks name")
        releases = [each for venv in plan.venvs for each in supplies.locked_releases(venv, self.settings)]
        wheels = self._add_files("wheels", releases)
        own = self._add_files("milabench", supplies.own_releases(self.settings))
        self._add_projects()
        self._add(Content(path="bin/uv", content=Path(self.uv), is_executable=True))
        mine = f"{sys.version_info.major}.{sys.version_info.minor}"
        pythons = self._add_pythons({mine, *(supplies.minor(venv.python) for venv in plan.venvs)})
        self._add_sources()
        images = self._add_images(plan.images)
        prepared = self._add_data() if has_data else {}
        report(f"reading {counted(len(self.contents), 'file')}")
        self.contents.sort(key=lambda content: content.path)
        entries, has_paths = self._entries()
        prepared = {name: digest for name, digest in prepared.items() if not has_paths & {name, ""}}
        first = self._bootstrap(entries, mine)
        manifest = CapsuleManifest(
            version=__version__,
            suite=suite,
            benchmarks=tuple(context.suite.benchmarks),
            platform=PLATFORM,
            glibc=supplies.oldest_glibc([*wheels, *own]),
            benchmate=benchmate_digest(environments.BENCHMATE),
            pythons=pythons,
            prepared=prepared,
            images=images,
            notes=tuple(self.notes),
            files=(*map(contents.entry_of, first), *entries),
        )
        report(f"writing {size_text(manifest.size)}")
        contents.write_capsule(target, manifest, [*first, *self.contents])
        return manifest

    def _add(self, *contents: Content) -> None:
        self.contents += contents

    def _entries(self) -> tuple[list[CapsuleEntry], set[str]]:
        """Return all entries, and the owners of data that holds a path of this machine, "" for shared data."""
        needle = os.fsencode(self.context.dirs.base)
        has_paths: set[str] = set()
        entries = []
        for content in self.contents:
            parts = PurePosixPath(content.path).parts
            if parts[0] != "data" or not isinstance(content.content, Path):
                entries.append(contents.entry_of(content))
                continue
            seen: list[bool] = []
            entries.append(contents.entry_of(content, _searched(pieces(content.content), needle, seen)))
            if seen:
                owner = parts[1] if parts[1] in self.context.suite.benchmarks else ""
                has_paths.add(owner)
        for owner in sorted(has_paths):
            self.notes.append(
                f"{owner or 'shared data'}: holds paths of the machine it was prepared on, so `prepare` runs again"
            )
        return entries, has_paths

    # --- the suite ---

    def _add_suite(self) -> str:
        """Add the suite, resolved, with the folders of its benchmarks. Return its file."""
        folders = packed_folders(
            config.definition
            for config in self.context.suite.benchmarks.values()
            if isinstance(config.definition, Path)
        )
        paths = {folder: path for path, folder in folders.items()}
        benchmarks: dict[str, BenchmarkConfig] = {}
        for name, config in self.context.suite.benchmarks.items():
            moved = config
            if isinstance(config.definition, Path):
                moved = replace(moved, definition=Path(paths[config.definition.resolve()]))
            if config.command:
                self.notes.append(f"{name}: its command runs as installed on the machine. No program is packed")
            hidden = secret_names(config.env)
            moved = replace(moved, env={key: value for key, value in config.env.items() if key not in hidden})
            self.notes += [
                f"{name}: env.{key} is a secret and not packed. Give it there with --override" for key in hidden
            ]
            _require_public(config, plain_benchmark(moved))
            benchmarks[name] = moved
        system = self.context.suite.system
        raw = {key: value for key, value in system.raw.items() if key not in _OF_THE_MACHINE}
        if mask_settings(raw) != raw:
            raise ConfigError("system: holds a secret, and a capsule holds none. Give it by ${oc.env:VARIABLE}")
        suite = replace(self.context.suite, benchmarks=benchmarks, system=replace(system, raw=raw, arch=None))
        file = f"suite/{self.context.suite_file.stem}.yaml"
        head = f"# Packed by milabench {__version__}: resolved, as it was when the capsule was created.\n"
        self._add(Content(path=file, content=f"{head}{to_yaml(suite)}".encode()))
        for path, folder in folders.items():
            for content in tree(folder, f"suite/{path}", lambda name: name == "__pycache__" or name.startswith(".")):
                _require_no_secret(content)
                self._add(content)
        return file

    # --- packages ---

    def _add_files(self, folder: str, releases: list[supplies.Release]) -> list[str]:
        files = supplies.fetch_files(list(dict.fromkeys(releases)), self.environ, self.uv, jobs=self.jobs)
        self._add(*(Content(path=f"{folder}/{name}", content=path) for name, path in files.items()))
        return list(files)

    def _add_projects(self) -> None:
        """Add the wheels of the instruments and of milabench."""
        for name, project in (("benchmate", environments.BENCHMATE), ("milabench", ROOT if IS_CHECKOUT else None)):
            into = self.scratch / name
            into.mkdir()
            if project is None:
                wheel = supplies.installed_wheel(name, into)
            else:
                wheel = supplies.build_wheel(project, into, self.uv, self.environ, self.settings)
            self._add(Content(path=f"{name}/{wheel.name}", content=wheel))

    def _add_pythons(self, versions: set[str]) -> tuple[PackedPython, ...]:
        pythons = []
        for version in sorted(versions):
            folder = supplies.managed_python(self.uv, version, self.environ)
            if folder is None:
                pythons.append(PackedPython(version=version))
                hint = f"`uv python install {version}` installs a Python that can be packed"
                self.notes.append(f"python {version} is not in it, and must be on the machine. {hint}")
                continue
            pythons.append(PackedPython(version=version, folder=f"python/{folder.name}"))
            self._add(*tree(folder, f"python/{folder.name}", lambda name: name in ("__pycache__", ".lock")))
        return tuple(pythons)

    def _add_sources(self) -> None:
        """Add fetched programs and definitions, each with the marker that says it is whole."""
        dirs = self.context.dirs
        folders = {source.folder for source in environments.sources(self.context)}
        for config in self.context.suite.benchmarks.values():
            if config.definition is not None and not isinstance(config.definition, Path):
                folders.add(config.definition.folder)
        for folder in sorted(folders):
            self._add(*tree(Path(dirs.code, folder), f"code/{folder}", lambda name: name in ("__pycache__", ".git")))
            marker = f".{folder}.complete"
            self._add(Content(path=f"code/{marker}", content=Path(dirs.code, marker)))

    def _add_images(self, images: tuple[Image, ...]) -> tuple[PackedImage, ...]:
        packed = []
        if missing := engines.missing_images(images):
            raise EnvironmentFailed(f"not installed: {', '.join(missing)}. Fetch it with `milabench install`")
        for number, image in enumerate(images):
            if not image.source:
                self.notes.append(f"image {image.name} is a file of yours, and must be on the machine")
                continue
            path = f"images/{number}.{'sif' if image.file else 'tar'}"
            saved = Path(image.file) if image.file else engines.save_image(image, self.scratch / f"{number}.tar")
            self._add(Content(path=path, content=saved))
            packed.append(PackedImage(engine=image.engine, image=image.name, path=path))
        return tuple(packed)

    # --- data ---

    def _add_data(self) -> dict[str, str]:
        """Add the prepared data. Return their digests by benchmark."""
        prepared = {each.step.bench: each.portable for each in preparation_steps(self.context)}
        data, cache = Path(self.context.dirs.data), Path(self.context.dirs.cache)
        for path in sorted(data.iterdir()) if prepared and data.is_dir() else ():
            if path.name == OWN_DATA:
                continue
            is_anothers = path.name in self.others or (path / MARKERS).is_dir()
            # Beside the folders of benchmarks lies what they share; one without a preparation has only what runs have left.
            if path.name in prepared or not (is_anothers or path.name in self.context.suite.benchmarks):
                self._add(*tree(path, f"data/{path.name}", lambda name: name == MARKERS))
        for name in _CACHES if prepared else ():
            if (cache / name).is_dir():
                self._add(*tree(cache / name, f"cache/{name}", lambda name: name == ".locks"))
        return prepared

    # --- beginning with a shell ---

    def _bootstrap(self, entries: list[CapsuleEntry], python: str) -> list[Content]:
        """Return the script that installs milabench from the capsule, and the sums of its inputs."""
        parts = sorted({entry.path.split("/")[0] for entry in entries} & {"bin", "milabench", "python"})
        values = {
            "@PARTS@": " ".join(parts),
            "@PYTHON@": python,
            "@UNAME@": f"{platform.system()}-{platform.machine()}",
        }
        text = INSTALLER.read_text()
        for name, value in values.items():
            text = text.replace(name, value)
        sums = "".join(
            f"{entry.sha256}  {entry.path}\n"
            for entry in entries
            if entry.path.split("/")[0] in parts and not entry.link
        )
        return [
            Content(path="install.sh", content=text.encode(), is_executable=True),
            Content(path="SHA256SUMS", content=sums.encode()),
        ]


def _require_public(config: BenchmarkConfig, values: Mapping[str, object]) -> None:
    """Raise ConfigError for a benchmark that holds a secret elsewhere than in its environment."""
    masked = mask_settings(values)
    for key, value in values.items():
        if masked[key] != value:
            hint = f"a capsule holds none. Give it as a variable of {config.name}.env"
            raise config.error(key, "holds a secret", hint)


def _require_no_secret(content: Content) -> None:
    if isinstance(content.content, Path) and content.content.stat().st_size < 2**20:
        text = content.content.read_bytes().decode("utf-8", "replace")
        if mask(text) != text:
            raise ConfigError(
                Problem(str(content.content), "", "holds a secret", "take it out, as a capsule holds none")
            )


def _searched(source: Iterator[bytes], needle: bytes, seen: list[bool]) -> Iterator[bytes]:
    """Yield the pieces. Put something into `seen` when the needle is in them, also across two of them."""
    tail = b""
    for piece in source:
        joined = tail + piece
        if not seen and needle in joined:
            seen.append(True)
        tail = joined[-len(needle) :]
        yield piece


def packed_folders(definitions: Iterable[Path]) -> dict[str, Path]:
    """Return the folders of benchmarks, and their neighbours whose locks they share, by their paths below the suite's folder.

    Equal names get a number. A benchmark finds the locks where its benchfile says, so where two benchmarks of
    different folders share different locks of the same name, the second lies in a folder of its own.
    """
    packed: dict[str, Path] = {}
    for definition in dict.fromkeys(definitions):
        folder, locks = definition.resolve(), environments.requirements_of(definition).resolve()
        if folder in packed.values():
            continue
        shared = None if locks.is_relative_to(folder) else os.path.relpath(locks, folder.parent)
        homes = itertools.chain(["benchmarks"], (f"benchmarks~{number}" for number in itertools.count(1)))
        home = next(home for home in homes if shared is None or packed.get(f"{home}/{shared}", locks) == locks)
        taken = sum(PurePosixPath(path).name.partition("~")[0] == folder.name for path in packed)
        if shared is not None:
            packed[f"{home}/{shared}"] = locks
        packed[f"{home}/{folder.name}" + (f"~{taken}" if taken else "")] = folder
    return packed


def tree(root: Path, prefix: str, is_left_out: IsLeftOut, depth: int = 0, top: Path | None = None) -> Iterator[Content]:
    """Yield a file, or the files and links below a folder. The target of a link to the outside is packed in its place.

    A link leads outside where that is not below `top`, by default the folder itself. Raises EnvironmentFailed for files that a
    capsule cannot hold.
    """
    if root.is_file():
        yield Content(path=prefix, content=root, is_executable=os.access(root, os.X_OK))
        return
    if not root.is_dir():
        raise EnvironmentFailed(f"{root}: is neither a file nor a folder: cannot be packed")
    if depth > MAX_DEPTH:
        raise EnvironmentFailed(f"{root}: lies more than {MAX_DEPTH} folders deep: cannot be packed")
    try:
        children = sorted(root.iterdir())
    except OSError as error:
        raise EnvironmentFailed(f"{root}: cannot be read: {os_reason(error)}") from None
    top = top or root.resolve()
    for path in children:
        if is_left_out(path.name):
            continue
        inner = f"{prefix}/{path.name}"
        if not path.is_symlink():
            yield from tree(path, inner, is_left_out, depth + 1, top)
            continue
        target = path.resolve()
        if target.is_relative_to(top) and target != top and _is_packed(target.relative_to(top), is_left_out):
            yield Content(path=inner, link=os.path.relpath(target, root.resolve()))
        elif target.exists():  # a link to nothing is left out: nobody can have used it
            yield from tree(target, inner, is_left_out, depth + 1)


def _is_packed(path: Path, is_left_out: IsLeftOut) -> bool:
    return not any(is_left_out(part) for part in path.parts)
