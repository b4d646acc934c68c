"""The half of a remote installation that runs on the other machine: one file, and the job beside it."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

from milabench.execute.install_session import InstallOptions, find_uv
from milabench.execute.inventory import is_linked
from milabench.execute.remote_install import packed_installer
from milabench.plan.venvs import VenvSpec
from tests.process.install.places import Place


def install(place: Place, folder: Path, spec: VenvSpec) -> subprocess.CompletedProcess[str]:
    """Install as the other machine does: without any package of ours, in the environment that it has."""
    options = InstallOptions(benchmate=str(place.benchmate), environ={}, pip={}, uv=find_uv(place.environ))
    (folder / "job").write_bytes(pickle.dumps(((spec,), place.dirs, options)))
    (folder / "milabench.pyz").write_bytes(packed_installer())
    command = (sys.executable, "-I", "-S", "-P", folder / "milabench.pyz", folder / "job")
    return subprocess.run(command, env=dict(place.environ), capture_output=True, text=True, check=False)


def test_the_packed_installer_needs_nothing_but_python(place: Place, tmp_path: Path) -> None:
    spec = place.spec(place.lock("tool==1"))
    done = install(place, tmp_path, spec)
    assert (done.returncode, done.stderr) == (0, "")
    assert "  g: creating: python" in done.stdout
    assert is_linked(place.dirs, spec)


def test_what_cannot_be_installed_is_told_in_lines_that_begin_with_error(place: Place, tmp_path: Path) -> None:
    done = install(place, tmp_path, place.spec("nosuch==1\n"))
    assert done.returncode == 4
    [line] = [line for line in done.stdout.splitlines() if line.startswith("error: ")]
    assert line.startswith("error: g: requirement nosuch does not exist")
