"""Recipes of container images as text: a Containerfile of the control plane, an Apptainer definition of an environment.

The same inputs give the same bytes. Nothing is built here, and everything that a recipe installs is checked by its hash.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from milabench.plan.requirements import Lock, broken_constraints, parse_requirements, render_requirements
from milabench.plan.venvs import VenvSpec
from milabench.shown import visible_line

FOLDER = "/opt/milabench"
LEAST_PYTHON = (3, 11)
_ENVIRONMENT = f"{FOLDER}/environment"
_PYTHON = f"{_ENVIRONMENT}/bin/python"
# With the registry: podman asks for it, and apptainer takes it.
_BASE = "docker.io/library/python:{python}-slim-bookworm"
_REFERENCE = re.compile(r"[a-z0-9][\w./:-]*(@sha256:[0-9a-f]{64})?", re.IGNORECASE)
_END_OF_LOCK = "END_OF_LOCK"


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlane:
    """The wheel of milabench that goes into an image: its file, and its metadata.

    `requirements` are its dependencies as it declares them, `lock` their versions with hashes, which is inside the wheel.
    """

    file: str
    version: str
    sha256: str
    requirements: tuple[str, ...]
    lock: Lock


def base_image(given: str | None, python: str = "3.11") -> str:
    """Return the image to start from: the given image, else Python's own. Raises ValueError for other texts than image names."""
    if given is None:
        return _BASE.format(python=".".join(python.split(".")[:2]))
    if not _REFERENCE.fullmatch(given):
        raise ValueError(f"'{given}' is not the name of an image. Give NAME:TAG or NAME@sha256:DIGEST")
    return given


def containerfile(control: ControlPlane, base: str) -> str:
    """Return the recipe of an OCI image of the control plane, for docker, podman and buildah."""
    labels = {
        "org.opencontainers.image.title": "milabench",
        "org.opencontainers.image.version": control.version,
        "org.opencontainers.image.base.name": base,
        "milabench.wheel.sha256": control.sha256,
    }
    steps = [
        *_unpacked(control, f"sys.version_info >= {LEAST_PYTHON}"),
        _pip("--require-hashes", "--requirement", "source/milabench/shipped/constraints/milabench.txt"),
        _pip("--no-index", f"./{control.file}"),
        *_checked("import milabench.cli"),
    ]
    lines = [
        "# The control plane of milabench. In the folder with the wheel: docker build -f Containerfile -t milabench .",
        f"FROM {base}",
        *(f"LABEL {name}={shlex.quote(value)}" for name, value in labels.items()),
        f"COPY {control.file} {FOLDER}/",
        "RUN " + " && \\\n    ".join(steps),
        f'ENV PATH="{_ENVIRONMENT}/bin:$PATH"',
        "WORKDIR /work",
        'ENTRYPOINT ["milabench"]',
        'CMD ["--help"]',
    ]
    return "\n".join(lines) + "\n"


def apptainer_definition(spec: VenvSpec, control: ControlPlane, base: str, index: str | None) -> str:
    """Return the definition of an image with a single environment, and with the control plane in it.

    `index` is an additional index. Raises ValueError for an environment of which no such image can be made.
    """
    lock = image_lock(spec, control)
    python = tuple(int(part) for part in spec.python.split(".")[:2])
    labels = {
        "org.opencontainers.image.title": f"milabench-{spec.group}",
        "org.opencontainers.image.version": control.version,
        "org.opencontainers.image.base.name": base,
        "milabench.environment": spec.group,
        "milabench.environment.digest": spec.digest,
        "milabench.environment.variant": spec.variant,
        "milabench.environment.python": spec.python,
        "milabench.benchmate.digest": spec.benchmate,
        "milabench.wheel.sha256": control.sha256,
    }
    steps = [
        "set -eu",
        *_unpacked(control, f"sys.version_info[:2] == {python}"),
        f"cat > requirements.txt <<'{_END_OF_LOCK}'",
        render_requirements(lock).rstrip("\n"),
        _END_OF_LOCK,
        _pip("--require-hashes", *(("--extra-index-url", index) if index else ()), "--requirement", "requirements.txt"),
        _pip("--no-index", "--no-build-isolation", "source/milabench/shipped/benchmate"),
        _pip("--no-index", f"./{control.file}"),
        *_checked("import benchmate, milabench.cli"),
    ]
    sections = [
        f"# The environment {spec.group} of milabench, for {visible_line(', '.join(sorted(spec.benches)))}.\n"
        f"# In the folder with the wheel: apptainer build {spec.group}.sif {spec.group}.def",
        f"Bootstrap: docker\nFrom: {base}",
        _section("labels", (f"{name} {value}" for name, value in labels.items())),
        _section("files", [f"{control.file} {FOLDER}/{control.file}"]),
        "\n".join(["%post", *steps]),  # not indented: the lock is between its lines as it is
        _section("environment", [f'export PATH="{_ENVIRONMENT}/bin:$PATH"', "export MILABENCH_USE_CURRENT_ENV=1"]),
        _section("test", [f"{_PYTHON} -c 'import benchmate, milabench.cli'"]),
        _section("runscript", ['exec milabench "$@"']),
    ]
    return "\n\n".join(sections) + "\n"


def image_lock(spec: VenvSpec, control: ControlPlane) -> Lock:
    """Return the installed packages: the environment's lock, and the control plane's own packages outside it.

    Raises ValueError, with the reason, where a package has no hash or the two cannot share an environment.
    """
    lock = spec.lock
    if tuple(int(part) for part in spec.python.split(".")[:2]) < LEAST_PYTHON:
        raise ValueError(f"its lock is for python {spec.python}, and the control plane needs 3.11 or later")
    if loose := [pin.name or pin.line for pin in lock.pins if not pin.hashes]:
        raise ValueError(
            f"its lock has no hash for {', '.join(loose[:3])}. An image contains only checked packages: "
            "`milabench pin` writes such a lock"
        )
    if lock.options:
        raise ValueError(f"its requirement file has the option {lock.options[0]}, which a recipe cannot carry")
    wanted = parse_requirements("\n".join(control.requirements))
    for pin, limit in broken_constraints(lock, wanted):
        raise ValueError(f"its lock has {pin.line}, and the control plane needs {limit.line}. Pin the benchmark again")
    names = {pin.name for pin in lock.pins}
    own = [pin for pin in control.lock.pins if pin.name not in names]
    pins = sorted((*lock.pins, *own), key=lambda pin: (pin.name, pin.line))
    return replace(lock, pins=tuple(pins), header={})


def _unpacked(control: ControlPlane, is_right_python: str) -> Iterator[str]:
    """Yield the commands that check wheel and interpreter, unpack the wheel, and make an empty environment."""
    yield f"cd {FOLDER}"
    yield f"echo '{control.sha256}  {control.file}' | sha256sum -c -"
    yield f"python3 -c 'import sys; sys.exit(not ({is_right_python}) and \"another Python is needed\")'"
    yield f"python3 -m venv {_ENVIRONMENT}"
    yield f"python3 -m zipfile -e {control.file} source"


def _pip(*words: str) -> str:
    return shlex.join([_PYTHON, "-m", "pip", "install", "--no-cache-dir", "--no-deps", *words])


def _checked(imports: str) -> Iterator[str]:
    """Yield the commands that check the environment, and remove its build requirements."""
    yield f"{_PYTHON} -m pip check"
    yield f"{_PYTHON} -c '{imports}'"
    yield "rm -r source"


def _section(name: str, lines: Iterable[str]) -> str:
    return "\n".join([f"%{name}", *(f"    {line}" for line in lines)])
