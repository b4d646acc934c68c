"""Writing lock files: uv resolves, the indexes list the files, and the lock replaces the old lock in a single step."""

from __future__ import annotations

import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from milabench.errors import EnvironmentFailed
from milabench.events.atomic_write import replace_file
from milabench.execute.activities import Report
from milabench.execute.index_probe import url_responds
from milabench.execute.install_session import find_uv
from milabench.execute.installer import explain_failure, torch_index
from milabench.execute.interrupts import thread_map
from milabench.execute.package_indexes import indexes, pip_settings, uv_env, uv_options
from milabench.execute.sources import release_files
from milabench.pinning.compiled_locks import PinInput, PinSpec, lock_text, pin_command
from milabench.plan.pin import excluded_packages, inputs_digest
from milabench.plan.requirements import parse_requirements
from milabench.redaction import mask

Releases = dict[str, tuple[tuple[str, str], ...]]
"""The names and sha256 of all files of each project, as the indexes list them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """A lock that was written, or was up to date. `unverified` names unchecked parts."""

    path: Path
    has_changed: bool
    packages: int
    unverified: str = ""


def pin_locks(
    specs: Sequence[PinSpec], *, environ: Mapping[str, str], report: Report, pip: Mapping[str, str] | None = None
) -> tuple[Pinned, ...]:
    """Write the locks of every specification. Raises EnvironmentFailed at the first that cannot be resolved."""
    uv = find_uv(environ)
    if uv is None:
        raise EnvironmentFailed("pin needs uv, which was not found. Install it with `pip install uv`")
    settings = pip if pip is not None else pip_settings(environ)
    is_reachable = cache(lambda backend: url_responds(torch_index(backend), {**environ, **uv_env(settings, environ)}))
    known: Releases = {}
    written: list[Pinned] = []
    for spec in specs:
        report(f"{spec.group} ({spec.variant}): resolving")
        backend = spec.backend if spec.backend and is_reachable(spec.backend) else None
        written += _pin(spec, uv, environ, settings, backend, known)
    for lock in written:
        change = "written" if lock.has_changed else "unchanged"
        report(f"{lock.path}: {change}: " + f"{lock.packages} packages {lock.unverified}".strip())
    return tuple(written)


def _pin(
    spec: PinSpec,
    uv: str,
    environ: Mapping[str, str],
    settings: Mapping[str, str],
    backend: str | None,
    known: Releases,
) -> list[Pinned]:
    """Write the locks of a specification. `backend` is torch's when its index answers."""
    if spec.variant not in ("cpu", "unpinned"):
        # A local folder of cpu builds has the higher version (2.13.0+cpu is above 2.13.0) and would win.
        settings = {name: value for name, value in settings.items() if name != "find-links"}
        environ = {name: value for name, value in environ.items() if name not in ("UV_FIND_LINKS", "PIP_FIND_LINKS")}
    compiled = _compiled(spec, uv, environ, settings, backend)
    pinned = {pin.name for text in compiled.values() for pin in parse_requirements(text).pins}
    names = sorted(pinned - set(known))
    places = indexes(settings, environ)
    stop = threading.Event()
    listed = thread_map(lambda name: release_files(name, places, stop), names, jobs=8, stop=stop.set)
    known |= dict(zip(names, listed, strict=True))
    unverified = ""
    if "torch" in pinned and spec.backend and backend is None and spec.variant != "cpu":
        unverified = f"{torch_index(spec.backend)} could not be reached, and nobody has installed from this lock"
    constraints = spec.constraints.text if spec.constraints is not None else ""
    written = []
    for each, text in compiled.items():
        inputs = inputs_digest(Path(each.requirements).read_text(), constraints)
        lock = lock_text(text, spec, known, inputs=inputs, unverified=unverified)
        written.append(_write(Path(each.lock), lock, unverified))
    return written


def _compiled(
    spec: PinSpec, uv: str, environ: Mapping[str, str], settings: Mapping[str, str], backend: str | None
) -> dict[PinInput, str]:
    """Return the requirements of each input with versions and hashes, in the versions that suit all of them together.

    Raises EnvironmentFailed.
    """
    env = {**environ, "UV_NO_PROGRESS": "1", "NO_COLOR": "1", "COLUMNS": "1000", **uv_env(settings, environ)}
    with tempfile.TemporaryDirectory(prefix="milabench-pin-") as name:
        folder = Path(name)
        instruments = folder / "benchmate.in"
        instruments.write_text("".join(f"{line}\n" for line in spec.benchmate))
        together = folder / "group.txt"
        limits = [spec.constraints.name] if spec.constraints is not None else []
        options = list(uv_options(settings))
        if left_out := excluded_packages(Path(each.requirements).read_text() for each in spec.inputs):
            (folder / "exclude.txt").write_text("".join(f"{name}\n" for name in left_out))
            options += ["--excludes", str(folder / "exclude.txt")]

        command = partial(pin_command, uv, spec, backend=backend, options=options)

        def compile_into(output: Path, inputs: Sequence[str], constraints: Sequence[str], hashes: bool) -> str:
            argv = command(inputs=inputs, constraints=constraints, output=str(output), hashes=hashes)
            process = subprocess.run(
                argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
            )
            if process.returncode != 0:
                raise EnvironmentFailed(f"{spec.group} ({spec.variant}): {mask(explain_failure(process.stderr))}")
            return output.read_text()

        compile_into(together, [*(each.requirements for each in spec.inputs), str(instruments)], limits, hashes=False)
        return {
            each: compile_into(
                folder / f"{index}.txt", [each.requirements, str(instruments)], [str(together), *limits], hashes=True
            )
            for index, each in enumerate(spec.inputs)
        }


def _write(path: Path, text: str, unverified: str) -> Pinned:
    has_changed = not path.is_file() or path.read_text() != text
    if has_changed:
        replace_file(path, text.encode())
    return Pinned(
        path=path, has_changed=has_changed, packages=len(parse_requirements(text).pins), unverified=unverified
    )
