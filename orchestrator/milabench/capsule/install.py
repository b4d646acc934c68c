"""Installs the suite of a capsule without a network, and shows the content of a capsule."""

from __future__ import annotations

import errno
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath

from milabench.capsule import contents, supplies
from milabench.capsule.contents import Capsule, CapsuleManifest, open_capsule
from milabench.errors import EnvironmentFailed, RecordError, UsageError, os_reason
from milabench.events.removal import put, scratch_folder
from milabench.execute import images as engines
from milabench.execute.install_session import InstallOptions
from milabench.execute.inventory import benchmate_digest, is_fetched
from milabench.execute.locks import hold_base
from milabench.execute.sizes import size_text
from milabench.execute.venv_build import foreign_member
from milabench.facts.probe import this_machine
from milabench.plan.container import Image
from milabench.plan.context import Dirs
from milabench.plan.system import is_local
from milabench.shown import counted, grouped
from milabench.version import __version__
from milabench.workflow import environments
from milabench.workflow.context import read_context, read_suite_only
from milabench.workflow.files import base_folder
from milabench.workflow.install import install_locally, kinds_of_devices
from milabench.workflow.options import CommandContext, InstallSettings, Session, SuiteOptions
from milabench.workflow.preflight import preparation_steps
from milabench.workflow.suites_used import record_use

# What never changes once it is unpacked; the others are the folders of this suite's programs, data and caches.
KEPT, PLACED = ("suite", "wheels", "benchmate", "python"), ("code", "data", "cache", "images")
PLATFORM = f"{sys.platform}-{platform.machine()}"


def install_from(file: Path, options: SuiteOptions, session: Session, settings: InstallSettings) -> None:
    """Install the suite of a capsule, its programs and its data below the base, whose default suite it is from then on.

    Everything is compared with the manifest before anything is used. Raises RecordError for a capsule that was altered or
    is truncated, EnvironmentFailed for a capsule of another platform, or a full disk.
    """
    if options.use_current_env:
        raise UsageError("--from installs environments. Leave out --use-current-env")
    base = base_folder(options.base)
    with open_capsule(file) as capsule:
        manifest = capsule.manifest
        _require_fitting(manifest, file)
        _require_one_machine(options)
        home = base / "cache" / "capsules" / manifest.digest[:16]
        packed = replace(options, config_file=home / manifest.suite)
        with hold_base(base, "install", say=session.note):
            if not contents.is_unpacked(home):
                session.info(f"  {file}: checking and unpacking {size_text(manifest.size)}")
                _unpack(capsule, home, (*KEPT, *PLACED))
            context = read_context(packed, session)
            if _lacks(home, context, manifest):
                session.info(f"  {file}: unpacking programs and data")
                _unpack(capsule, home, PLACED)
                context = read_context(packed, session)
            _load_images(home, context, manifest)
            _place_instruments(home, context.dirs, manifest)
            # While the base is held: a `gc` that waits for it must find what was placed in use.
            record_use(context)
    how = InstallOptions(
        benchmate=str(environments.BENCHMATE),
        environ=supplies.sealed_environment(os.environ, home / "python"),
        jobs=settings.jobs,
        force=settings.force,
        ignore_space=settings.ignore_space,
        is_sealed=True,
        capsule=str(home),
        devices=kinds_of_devices(context.machine),
        # As a URL: a folder may have a space or a comma in its name.
        pip={"no-index": "true", "find-links": (home / "wheels").as_uri()},
    )
    install_locally(environments.decide_install(context), context, how, as_default=True)
    _mark_prepared(context, manifest)
    session.info(f"install: capsule sha256:{manifest.digest}")


def verify_capsule(file: Path) -> CapsuleManifest:
    """Compare every byte of a capsule with its manifest. Return the manifest.

    Raises RecordError for an altered capsule, or if its suite or instruments would reach beyond its own folder.
    """
    with open_capsule(file) as capsule, tempfile.TemporaryDirectory(prefix="milabench-verify-") as name:
        capsule.unpack(Path(name), lambda path: path.partition("/")[0] in ("suite", "benchmate"))
        _require_own_folders(Path(name), capsule.manifest, file)
        return capsule.manifest


def _require_own_folders(home: Path, manifest: CapsuleManifest, file: Path) -> None:
    """Raise RecordError for a suite that moves folders, and for instruments that are no plain package of their name."""
    system = read_suite_only(SuiteOptions(config_file=home / manifest.suite, environ={})).system
    if system.dirs:
        raise RecordError(f"{file}: {manifest.suite}: moves folders (system.dirs), which a capsule may not: refused")
    for wheel in (home / "benchmate").glob("*.whl"):
        if other := foreign_member(wheel):
            raise RecordError(
                f"{file}: benchmate/{wheel.name}: holds {other[:200]!r}, no part of the instruments: refused"
            )


def _require_fitting(manifest: CapsuleManifest, file: Path) -> None:
    """Raise EnvironmentFailed for a capsule of another platform or of another milabench."""
    if manifest.platform != PLATFORM:
        raise EnvironmentFailed(f"{file}: is for {manifest.platform}, and this machine is {PLATFORM}")
    library, version = platform.libc_ver()
    if manifest.glibc and (library != "glibc" or _numbers(version) < _numbers(manifest.glibc)):
        has = f"{library} {version}".strip() or "another C library"
        raise EnvironmentFailed(f"{file}: needs glibc {manifest.glibc} or newer, and this machine has {has}")
    if manifest.benchmate != benchmate_digest(environments.BENCHMATE):
        raise EnvironmentFailed(
            f"{file}: is of milabench {manifest.version}, with other instruments than this milabench {__version__}. Use the "
            f"milabench that lies in it: `tar -xf {file} install.sh && sh install.sh {file}`"
        )


def _require_one_machine(options: SuiteOptions) -> None:
    """Raise UsageError where the system has other machines. A capsule's suite names none, so any other suite shows them."""
    if not (options.system_file or options.overrides):
        return
    own = tuple(override for override in options.overrides if override.lstrip("+~").startswith("system."))
    system = read_suite_only(replace(options, config_file=None, overrides=own)).system
    machine = this_machine().answer() if system.nodes else None
    if machine is not None and not all(is_local(node, machine, system) for node in system.nodes):
        raise UsageError("--from installs on this machine only. Copy the capsule to each node, and install it there")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _unpack(capsule: Capsule, into: Path, parts: tuple[str, ...]) -> None:
    """Unpack these parts, into a folder that gets its name when complete and unaltered, or the missing parts of that folder."""
    needed = sum(entry.size for part in parts for entry in capsule.manifest.files_in(part))
    try:
        with scratch_folder(into.with_name(f".{into.name}.unpacking")) as building:
            free = shutil.disk_usage(building).free
            if needed > free:
                raise EnvironmentFailed(f"{into}: {size_text(needed)} are needed here, and {size_text(free)} are free")
            fresh = building / into.name
            fresh.mkdir()
            capsule.unpack(fresh, lambda path: path.partition("/")[0] in parts)
            if contents.is_unpacked(into):
                _add_lacking(fresh, into)
                return
            (fresh / contents.NAME).write_bytes(capsule.manifest.content)
            put(fresh, into)
    except OSError as error:
        raise EnvironmentFailed(f"{into}: cannot be unpacked: {_reason(error)}") from None


def _add_lacking(again: Path, home: Path) -> None:
    """Move the parts that an unpacked capsule lacks to their place."""
    for part in PLACED:
        for path in sorted((again / part).glob("*")) if (again / part).is_dir() else ():
            if not os.path.lexists(home / part / path.name):
                (home / part).mkdir(exist_ok=True)
                put(path, home / part / path.name)


def _reason(error: OSError) -> str:
    return "no space left on the disk" if error.errno == errno.ENOSPC else os_reason(error)


def _lacks(home: Path, context: CommandContext, manifest: CapsuleManifest) -> bool:
    """Return whether something is gone that was placed when the capsule was unpacked."""
    if environments.left_out_benches(context):
        return True
    if not all(is_fetched(context.dirs, source) for source in environments.sources(context)):
        return True
    # The file of an image is gone from here once the engine has it.
    if any(not file.is_file() and engines.missing_images([image]) for image, file in _packed(home, context, manifest)):
        return True
    data = {PurePosixPath(entry.path).parts[1] for entry in manifest.files_in("data")}
    return not all(Path(context.dirs.data, name).exists() for name in data)


def _packed(home: Path, context: CommandContext, manifest: CapsuleManifest) -> Iterator[tuple[Image, Path]]:
    """Yield the images of the selected benchmarks that the capsule holds, with where they are unpacked to."""
    packed = {(image.engine, image.image): home / image.path for image in manifest.images}
    for image in environments.images(context):
        if (image.engine, image.name) in packed:
            yield image, packed[image.engine, image.name]


def _load_images(home: Path, context: CommandContext, manifest: CapsuleManifest) -> None:
    for image, file in _packed(home, context, manifest):
        if file.is_file() and engines.missing_images([image]):
            engines.load_image(image, file)
    if missing := engines.missing_images(environments.images(context)):
        raise EnvironmentFailed(f"not in the capsule: {', '.join(missing)}")


def _place_instruments(home: Path, dirs: Dirs, manifest: CapsuleManifest) -> None:
    """Put the wheel of the instruments where an installation of this suite looks for it before it builds a wheel."""
    folder = Path(dirs.cache, "wheels", f"benchmate-{manifest.benchmate[:16]}")
    folder.mkdir(parents=True, exist_ok=True)
    for wheel in (home / "benchmate").glob("*.whl"):
        if not (folder / wheel.name).exists():
            shutil.copyfile(wheel, folder / wheel.name)


def _mark_prepared(context: CommandContext, manifest: CapsuleManifest) -> None:
    """Leave the markers of preparations whose data came with the capsule, unless they would make something else here."""
    for preparation in preparation_steps(context):
        digest = manifest.prepared.get(preparation.step.bench)
        if digest == preparation.portable:
            Path(preparation.marker).parent.mkdir(parents=True, exist_ok=True)
            Path(preparation.marker).touch()
        elif not Path(preparation.marker).exists():
            context.session.note(
                f"{preparation.step.bench}: its data is not in the capsule, or is of other options. `prepare` makes it"
            )


def capsule_text(path: Path, manifest: CapsuleManifest) -> str:
    """Return the purpose and the content of a capsule, for a person."""
    pythons = ", ".join(f"{each.version} ({'packed' if each.folder else 'needed'})" for each in manifest.pythons)
    lines = [
        f"{path}: {size_text(manifest.size)}, {counted(len(manifest.files), 'file')}",
        f"  capsule     sha256:{manifest.digest}",
        f"  milabench   {manifest.version}",
        f"  platform    {manifest.platform}" + (f", glibc {manifest.glibc} or newer" if manifest.glibc else ""),
        f"  python      {pythons}",
        f"  suite       {manifest.suite}: {', '.join(manifest.benchmarks)}",
        f"  prepared    {', '.join(manifest.prepared) or 'nothing'}",
    ]
    for part in dict.fromkeys(entry.path.split("/")[0] for entry in manifest.files if "/" in entry.path):
        entries = manifest.files_in(part)
        lines.append(f"  {part:<11} {size_text(sum(entry.size for entry in entries))}, {counted(len(entries), 'file')}")
    lines += [f"  note: {note}" for note in manifest.notes]
    lines.append(
        "  It is code that will run: install only capsules that you trust. `capsule verify` finds alterations, not intentions."
    )
    return "\n".join(lines)


def capsule_json(path: Path, manifest: CapsuleManifest) -> dict[str, object]:
    """Return the same for a program. The manifest itself lists every file."""
    parts = grouped((entry.path.split("/")[0], entry.size) for entry in manifest.files)
    return {
        "schema": 1,
        "capsule": str(path),
        "digest": f"sha256:{manifest.digest}",
        "bytes": manifest.size,
        **{key: getattr(manifest, key) for key in ("version", "platform", "glibc", "suite")},
        "pythons": [{"version": each.version, "packed": bool(each.folder)} for each in manifest.pythons],
        "benchmarks": list(manifest.benchmarks),
        "prepared": list(manifest.prepared),
        "images": [image.image for image in manifest.images],
        "parts": {part: {"bytes": sum(sizes), "files": len(sizes)} for part, sizes in parts.items()},
        "notes": list(manifest.notes),
    }
