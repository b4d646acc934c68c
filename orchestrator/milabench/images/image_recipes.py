"""Recipes of container images, from the wheel that goes into them and the locks of the suite."""

from __future__ import annotations

import hashlib
import re
import tempfile
import zipfile
from email.parser import Parser
from pathlib import Path

from milabench.archives.archive import files, open_checked, read_member, unpack_archive
from milabench.devices.regular_file import open_regular
from milabench.errors import EnvironmentFailed, RecordError, UsageError, os_reason
from milabench.execute.installer import torch_index
from milabench.execute.inventory import benchmate_digest
from milabench.images.recipe import ControlPlane, apptainer_definition, base_image, containerfile
from milabench.plan.requirements import parse_requirements
from milabench.workflow.context import read_context
from milabench.workflow.environments import BENCHMATE, decide_install
from milabench.workflow.options import Session, SuiteOptions

_NAME = re.compile(r"milabench-[\w.+]+-py3-none-any\.whl")
_LOCK = "milabench/shipped/constraints/milabench.txt"
_INSTRUMENTS = "milabench/shipped/benchmate"
_HINT = "Give the wheel of this milabench with --wheel. `make release` builds it"


def oci_recipe(wheel: Path, base: str | None, session: Session) -> str:
    """Return the Containerfile of the control plane. Raises UsageError and EnvironmentFailed."""
    return containerfile(read_control_plane(wheel), _base(base, "3.11", session))


def apptainer_recipe(options: SuiteOptions, wheel: Path, base: str | None, session: Session) -> str:
    """Return the definition of the only environment of the selected benchmarks.

    Raises UsageError where they have several, EnvironmentFailed for an environment of which no image can be made, and
    ConfigError.
    """
    context = read_context(options, session)
    specs = decide_install(context).venvs
    if len(specs) != 1:
        groups = "; ".join(f"{spec.group} for {', '.join(spec.benches)}" for spec in specs) or "none"
        raise UsageError(f"an image has a single environment, and --select names {len(specs)}: {groups}")
    [spec] = specs
    control = read_control_plane(wheel)
    if spec.pip:
        session.note(f"{spec.group}: the suite's pip settings ({', '.join(sorted(spec.pip))}) are no part of a recipe")
    index = torch_index(spec.torch_backend) if spec.torch_backend else None
    try:
        return apptainer_definition(spec, control, _base(base, spec.python, session), index)
    except ValueError as error:
        raise EnvironmentFailed(f"{spec.group}: {error}") from None


def _base(given: str | None, python: str, session: Session) -> str:
    try:
        name = base_image(given, python)
    except ValueError as error:
        raise UsageError(f"--from: {error}") from None
    if "@sha256:" not in name:
        session.note(f"{name}: a tag can be moved to another image. Pin it with --from NAME@sha256:DIGEST")
    return name


def read_control_plane(wheel: Path) -> ControlPlane:
    """Return the parts of a wheel of this milabench that an image needs. Raises EnvironmentFailed for any other file."""
    if not _NAME.fullmatch(wheel.name):
        raise EnvironmentFailed(f"{wheel}: not the name of a wheel of milabench, which pip goes by. {_HINT}")
    try:
        with open_regular(wheel) as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        with open_checked(wheel) as archive:
            names = files(archive)
            metadata = next((name for name in names if name.endswith(".dist-info/METADATA")), "")
            if not metadata.startswith("milabench-") or _LOCK not in names:
                raise EnvironmentFailed(f"{wheel}: not a wheel of milabench that knows its dependencies. {_HINT}")
            about = Parser().parsestr(read_member(archive, metadata).decode())
            lock = parse_requirements(read_member(archive, _LOCK).decode())
            _require_same_instruments(archive, wheel)
    except (OSError, RecordError, UnicodeDecodeError) as error:
        why = os_reason(error) if isinstance(error, OSError) else str(error)
        raise EnvironmentFailed(why if str(wheel) in why else f"{wheel}: cannot be read: {why}. {_HINT}") from None
    return ControlPlane(
        file=wheel.name,
        version=str(about["Version"]),
        sha256=sha256,
        requirements=tuple(line for line in about.get_all("Requires-Dist") or () if "extra ==" not in line),
        lock=lock,
    )


def _require_same_instruments(archive: zipfile.ZipFile, wheel: Path) -> None:
    """Raise EnvironmentFailed unless the wheel brings the instruments of which the environment's digest speaks."""
    with tempfile.TemporaryDirectory(prefix="milabench-") as scratch:
        unpack_archive(archive, _INSTRUMENTS, Path(scratch))
        if benchmate_digest(Path(scratch)) != benchmate_digest(BENCHMATE):
            raise EnvironmentFailed(f"{wheel}: brings another benchmate than this milabench. {_HINT}")
