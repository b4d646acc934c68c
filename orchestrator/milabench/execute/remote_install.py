"""Builds environments on remote machines with the same code as local ones: packed into one file, run by the remote Python."""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from milabench.errors import EnvironmentFailed, MilabenchError
from milabench.execute.api import Failed, Frame, Progress, StepRequest
from milabench.execute.archive import deterministic_zip
from milabench.execute.file_sync import RemoteFiles
from milabench.execute.remote_host import RemoteHost, remote_node
from milabench.execute.venv import InstallOptions, VenvBroken, install_venvs
from milabench.execute.venv import InstallProgress as Stage
from milabench.plan.dirs import Dirs
from milabench.plan.model import Step
from milabench.plan.venvs import VenvSpec

PACKAGE = Path(__file__).resolve().parent.parent
PACKAGES = ("bench", "config", "devices", "events", "execute", "facts", "plan")
_MAIN = "from milabench.execute.remote_install import main\nmain()\n"
_LOOK = (
    'for p in python3.11 python3.12 python3.13 python3.14 python3; do if "$p" -c '
    '"import sys; sys.exit(sys.version_info < (3, 11))" 2>/dev/null; then exec "$p" "$@"; fi; done; '
    "echo no Python 3.11 or later on its PATH, which building environments needs: install one, "
    "or copy the environments with system.sync: venv >&2; exit 4"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteInstallJob:
    """The environments to build on another machine."""

    specs: tuple[VenvSpec, ...]
    dirs: Dirs
    benchmate: str
    uv: str | None
    jobs: int
    force: bool
    update: bool


@cache
def packed_installer() -> bytes:
    """Return one file that Python runs: the part of this package that builds environments, and its dependencies."""
    return deterministic_zip(_files())


def _files() -> Iterator[tuple[str, bytes]]:
    import packaging

    yield "__main__.py", _MAIN.encode()
    outer = [PACKAGE / "__init__.py", PACKAGE / "errors.py"]
    inner = [path for package in PACKAGES for path in (PACKAGE / package).glob("*.py")]
    for path in sorted([*outer, *inner]):
        yield f"milabench/{path.relative_to(PACKAGE).as_posix()}", path.read_bytes()
    assert packaging.__file__ is not None
    folder = Path(packaging.__file__).parent
    for path in sorted(folder.rglob("*.py")):
        yield f"packaging/{path.relative_to(folder).as_posix()}", path.read_bytes()


async def install_remotely(
    machine: RemoteHost,
    remote: RemoteFiles,
    job: RemoteInstallJob,
    scratch: Path,
    *,
    uv: Path | None,
    say: Callable[[str], object],
) -> None:
    """Build the job's environments on a machine; `scratch` is a local folder, `uv` our program when it runs there too.

    Raises EnvironmentFailed with why not.
    """
    folder = f"{job.dirs.cache}/install"
    tools = scratch / machine.name
    tools.mkdir(parents=True)
    program = f"milabench-{hashlib.sha256(packed_installer()).hexdigest()[:12]}.pyz"
    (tools / program).write_bytes(packed_installer())
    if uv is not None:
        os.link(uv, tools / "uv") if uv.stat().st_dev == tools.stat().st_dev else (tools / "uv").symlink_to(uv)
    (tools / "job").write_bytes(pickle.dumps(job))
    await remote.send(tools, folder)
    step = Step(
        id="install",
        bench="install",
        phase="install",
        argv=("/bin/sh", "-c", _LOOK, "install", "-P", f"{folder}/{program}", f"{folder}/job"),
        env={"PATH": "@path", "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=folder,
        needs_data=False,
    )
    words: list[str] = []

    def emit(progress: Progress) -> None:
        if isinstance(progress, Frame) and progress.kind == "line":
            import json

            for line in progress.payload.splitlines():
                text = json.loads(line)["data"].rstrip("\n")
                words.append(text)
                say(f"{machine.name}: {text.strip()}")

    async with remote_node(machine, f"install-{os.getpid()}-{hashlib.sha256(os.urandom(8)).hexdigest()[:8]}") as node:
        outcome = await node.run(StepRequest(step=step), emit)
    if isinstance(outcome, Failed):
        errors = [line.removeprefix("error: ") for line in words if line.startswith("error: ")]
        raise EnvironmentFailed("\nerror: ".join(f"{machine.name}: {line}" for line in errors or [outcome.detail]))


def main(argv: Sequence[str] | None = None) -> None:
    """Build what the job lists; runs on the remote machine and exits with the matching exit code."""
    path = (argv or sys.argv[1:])[0]
    with open(path, "rb") as file:  # noqa: PTH123
        job = pickle.loads(file.read())  # written by the same code, into a folder of the same user
    options = InstallOptions(
        benchmate=Path(job.benchmate),
        environ=dict(os.environ),
        jobs=job.jobs,
        force=job.force,
        update=job.update,
        **({"uv": job.uv} if job.uv else {}),
    )
    try:
        outcomes = install_venvs(job.specs, job.dirs, options, _say)
    except MilabenchError as error:
        print(f"error: {error}", flush=True)
        sys.exit(error.exit_code)
    broken = [outcome for outcome in outcomes if isinstance(outcome, VenvBroken)]
    for outcome in broken:
        print(f"error: {outcome}", flush=True)
    sys.exit(EnvironmentFailed.exit_code if broken else 0)


def _say(stage: Stage) -> None:
    print(f"  {stage.subject}: {stage.stage}{f': {stage.detail}' if stage.detail else ''}", flush=True)
