"""Builds environments on remote machines with the code of local installs: packed into a file, run by the remote Python."""

from __future__ import annotations

import hashlib
import os
import pickle
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from milabench.errors import EnvironmentFailed, MilabenchError
from milabench.events.removal import remove
from milabench.execute.activities import Activities
from milabench.execute.agent_bootstrap import deterministic_zip
from milabench.execute.api import Frame, Progress
from milabench.execute.file_sync import RemoteFiles
from milabench.execute.install_session import InstallOptions, find_uv, raise_failures
from milabench.execute.remote_host import RemoteHost, helper_node, run_shell
from milabench.execute.venv import install_venvs
from milabench.plan.context import Dirs
from milabench.plan.venvs import VenvSpec
from milabench.redaction import learn, values_in, values_in_environment

PACKAGE = Path(__file__).resolve().parent.parent
PACKAGES = ("bench", "config", "devices", "events", "execute", "facts", "plan", "records", "schedulers")
# Begins a line about what is being done at the moment, which replaces the one before.
_NOW = "now: "
NOW_EVERY_S = 2.0
_MAIN = "from milabench.execute.remote_install import main\nmain()\n"
_LOOK = (
    'for p in python3.11 python3.12 python3.13 python3.14 python3; do if "$p" -c '
    '"import sys; sys.exit(sys.version_info < (3, 11))" 2>/dev/null; then exec "$p" "$@"; fi; done; '
    "echo no Python 3.11 or later on its PATH: building environments needs it. Install it, "
    "or copy the environments with system.sync: venv >&2; exit 4"
)


@cache
def packed_installer() -> bytes:
    """Return a file that Python runs: the part of this package that builds environments, and its dependencies."""
    return deterministic_zip(_files())


def _files() -> Iterator[tuple[str, bytes]]:
    import packaging

    yield "__main__.py", _MAIN.encode()
    inner = [path for package in PACKAGES for path in (PACKAGE / package).rglob("*.py")]
    for path in sorted([*PACKAGE.glob("*.py"), *inner]):
        yield f"milabench/{path.relative_to(PACKAGE).as_posix()}", path.read_bytes()
    assert packaging.__file__ is not None
    folder = Path(packaging.__file__).parent
    for path in sorted(folder.rglob("*.py")):
        yield f"packaging/{path.relative_to(folder).as_posix()}", path.read_bytes()


async def install_remotely(
    machine: RemoteHost,
    remote: RemoteFiles,
    specs: Sequence[VenvSpec],
    dirs: Dirs,
    options: InstallOptions,
    scratch: Path,
    *,
    uv: Path | None,
    activities: Activities,
) -> None:
    """Build environments on a machine, in its folders and, but for `environ`, with these options.

    `activities` show its work under the machine's name.

    `scratch` is a local folder, `uv` our program when it runs there too. Raises EnvironmentFailed with why not.
    """
    folder = f"{dirs.cache}/install"
    tools = scratch / machine.name
    tools.mkdir(parents=True)
    program = f"milabench-{hashlib.sha256(packed_installer()).hexdigest()[:12]}.pyz"
    (tools / program).write_bytes(packed_installer())
    if uv is not None:
        options = replace(options, uv=f"{folder}/uv")
        shutil.copy(uv, tools / "uv")  # no link: it would be sent as a link, which points nowhere there
    # The suite's settings of pip may hold credentials: for the user's eyes only, and gone when it has been read. A name of
    # its own: another control plane may install there at the same time.
    job = f"job-{os.urandom(6).hex()}"
    with os.fdopen(os.open(tools / job, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(pickle.dumps((tuple(specs), dirs, options)))
    await remote.send(tools, folder, keep=True)
    words: list[str] = []

    def emit(progress: Progress) -> None:
        if isinstance(progress, Frame) and progress.kind == "line":
            import json

            for line in progress.payload.splitlines():
                text = json.loads(line)["data"].rstrip("\n")
                if text.startswith(_NOW):
                    activities.now(machine.name, text.removeprefix(_NOW).strip() or "installing")
                    continue
                words.append(text)
                activities.report(f"{machine.name}: {text.strip()}")

    async with helper_node(machine, "install") as node:
        outcome = await run_shell(node, _LOOK, "-P", f"{folder}/{program}", f"{folder}/{job}", cwd=folder, emit=emit)
    await remote.forget(f"{folder}/{job}")
    if outcome.name == "failed":
        errors = [line.removeprefix("error: ") for line in words if line.startswith("error: ")]
        raise EnvironmentFailed("\nerror: ".join(f"{machine.name}: {line}" for line in errors or [outcome.detail]))


def main() -> None:
    """Build the environments that the job lists. Runs on the remote machine and exits with the matching exit code."""
    # The job was written by the same code, into a folder of the same user.
    job = Path(sys.argv[1])
    specs, dirs, options = pickle.loads(job.read_bytes())
    remove(job)
    learn([*values_in_environment(os.environ), *(value for spec in specs for value in values_in(dict(spec.pip)))])
    options = replace(options, environ=dict(os.environ), uv=options.uv or find_uv(os.environ))
    activities = Activities(lambda stage: print(f"  {stage}", flush=True))
    try:
        with activities.watched(lambda rows: print(_NOW + "; ".join(rows), flush=True), every_s=NOW_EVERY_S):
            raise_failures(install_venvs(specs, dirs, options, activities))
    except MilabenchError as error:
        print(f"error: {error}", flush=True)
        sys.exit(error.exit_code)
