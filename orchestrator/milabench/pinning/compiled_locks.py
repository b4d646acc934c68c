"""The questions of `milabench pin` to uv, and the lock files it makes of the answers. Reads and writes nothing itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from packaging.version import Version

from milabench.execute.needs import version_of
from milabench.plan.pin import BACKENDS, MADE_BY
from milabench.plan.requirements import Lock, Pin, RequirementFile, parse_requirements, render_requirements
from milabench.shown import grouped

# Published only on an index of their own, where the ordinary index has the CUDA build under the same name.
ELSEWHERE = ("rocm", "xpu")
PLATFORM = "linux x86_64"
# As old a glibc as the wheels of torch ask for.
UV_PLATFORM = "x86_64-manylinux_2_28"
_CUDA_ONLY = re.compile(r"(nvidia|cuda)-.+|triton$")


@dataclass(frozen=True, slots=True, kw_only=True)
class PinInput:
    """A member of a group: its requirements and the lock to write, as paths."""

    requirements: str
    lock: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PinSpec:
    """The locks of an install group for a variant: they share an environment, so they are resolved together.

    `benchmate` are the requirements of the instruments. `constraints` is a file, named by its path.
    """

    group: str
    variant: str
    python: str
    inputs: tuple[PinInput, ...]
    benchmate: tuple[str, ...]
    constraints: RequirementFile | None = None
    backend: str | None = None


def pin_specs(
    inputs: Iterable[tuple[str, PinInput]],
    variant: str,
    *,
    python: str,
    benchmate: Sequence[str],
    constraints: RequirementFile | None,
) -> tuple[PinSpec, ...]:
    """Return a specification of a variant for each group. `inputs` are pairs of an install group and a benchmark's files."""
    header = parse_requirements(constraints.text).header if constraints is not None else {}
    return tuple(
        PinSpec(
            group=group,
            variant=variant,
            python=python,
            inputs=tuple(members),
            benchmate=tuple(benchmate),
            constraints=constraints,
            backend=header.get("torch-backend", BACKENDS.get(variant)),
        )
        for group, members in grouped(inputs).items()
    )


def pin_command(
    uv: str,
    spec: PinSpec,
    *,
    inputs: Sequence[str],
    constraints: Sequence[str],
    output: str,
    backend: str | None,
    hashes: bool,
    options: Sequence[str] = (),
) -> tuple[str, ...]:
    """Return the uv command that resolves requirement files for the spec's interpreter and platform."""
    return (
        *(uv, "pip", "compile", "--no-header", "--no-annotate"),
        *("--python-version", spec.python, "--python-platform", UV_PLATFORM),
        *(("--generate-hashes",) if hashes else ()),
        *(("--torch-backend", backend) if backend else ()),
        *(part for path in constraints for part in ("--constraints", path)),
        *("--output-file", output),
        *options,
        *inputs,
    )


def lock_text(
    compiled: str,
    spec: PinSpec,
    files: Mapping[str, Sequence[tuple[str, str]]],
    *,
    inputs: str = "",
    unverified: str = "",
) -> str:
    """Return the lock file, from uv's output.

    `files` maps a package to the files that all indexes list, each with its sha256: every file of the pinned version
    is accepted, not only files of the index that was the best match here. `inputs` is the digest of the
    inputs, which `install` compares. `unverified` says why nobody has
    installed from this lock. No path and no index address gets into it.
    """
    always = {"python": spec.python, "platform": PLATFORM, "variant": spec.variant, "made by": MADE_BY}
    known = {"inputs": inputs, "unverified": unverified}
    header = {**always, **{key: text for key, text in known.items() if text}}
    pins = [_with_all_hashes(pin, files.get(pin.name, ())) for pin in parse_requirements(compiled).pins]
    if spec.variant == "cpu":
        pins = [split for pin in pins for split in _for_other_platforms(pin, files.get(pin.name, ()))]
    if spec.variant in ELSEWHERE and unverified:
        pins = [_from_elsewhere(pin, spec) for pin in pins if not _CUDA_ONLY.match(pin.name)]
    return render_requirements(Lock(pins=tuple(sorted(pins, key=lambda pin: (pin.name, pin.line))), header=header))


def hashes_of(files: Sequence[tuple[str, str]], version: str) -> dict[str, str]:
    """Return the files of exactly this version (2.13.0 is not 2.13.0+cpu), with their sha256."""
    return {name: sha256 for name, sha256 in files if version_of(name) == Version(version)}


def _with_all_hashes(pin: Pin, files: Sequence[tuple[str, str]]) -> Pin:
    if pin.version is None or not pin.hashes:
        return pin
    listed = {f"sha256:{sha256}" for sha256 in hashes_of(files, pin.version).values()}
    return replace(pin, hashes=tuple(sorted({*pin.hashes, *listed})))


def _for_other_platforms(pin: Pin, files: Sequence[tuple[str, str]]) -> tuple[Pin, ...]:
    """Return the pins of a package: torch's cpu build has a local version on Linux only, and the plain version elsewhere."""
    public, _, local = (pin.version or "").partition("+")
    if pin.name != "torch" or local != "cpu" or pin.marker:
        return (pin,)
    # uv lists the files for Linux; an installer that checks hashes refuses all others.
    mac = tuple(sorted(f"sha256:{sha}" for name, sha in hashes_of(files, public).items() if "macosx" in name))
    if not mac:
        return (pin,)
    linux_marker, mac_marker = 'sys_platform == "linux"', 'sys_platform == "darwin"'
    return (
        replace(pin, line=f"{pin.line} ; {linux_marker}", marker=linux_marker),
        Pin(line=f"torch=={public} ; {mac_marker}", name="torch", version=public, marker=mac_marker, hashes=mac),
    )


def _from_elsewhere(pin: Pin, spec: PinSpec) -> Pin:
    """Return the pin of an index that could not be asked: without hashes, so that the installer resolves its needs."""
    if pin.name != "torch" or pin.version is None:
        return pin
    version = f"{Version(pin.version).public}+{spec.backend}"
    return Pin(line=f"torch=={version}", name="torch", version=version)
