"""A capsule on a machine without a network and without a Python: installed from it, prepared, run, reported."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from milabench.capsule.contents import open_capsule
from tests.commands import Said, milabench_in
from tests.process.cli.test_bad_places import disk
from tests.processes import CEILING_S, started, until

pytestmark = pytest.mark.e2e

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
# What a bare machine has: no python, no uv, no pip.
TOOLS = ("sh", "tar", "uname", "mkdir", "rm", "ls", "head", "sha256sum", "env", "true")
AIR_GAPPED = """\
set -eu
tar -xf "$CAPSULE" install.sh
sh install.sh "$CAPSULE" "mila bench"
"mila bench/venv/bin/python" -c '
import socket
for address in ("1.1.1.1", "127.0.0.1"):
    try:
        socket.create_connection((address, 9), timeout=5)
    except OSError as error:
        print("unreachable:", address, error.errno)
'
milabench() { "mila bench/venv/bin/milabench" "$@"; }
milabench install --from "$CAPSULE" --base "a base" 2>installed
cat installed >&2
milabench prepare --base "a base" --display none
milabench run --base "a base" --display none
milabench report --base "a base" --json >report.json
milabench report --base "a base"
"""


def in_no_network() -> list[str]:
    """What starts a command in a network namespace that has no route; skips where there can be none."""
    program = shutil.which("unshare")
    for options in (["--net"], ["--map-root-user", "--net"]) if program else ():
        argv = [str(program), *options]
        if subprocess.run([*argv, "true"], capture_output=True, check=False).returncode == 0:
            return argv
    pytest.skip("no network namespaces here")


def managed_python(folder: Path) -> None:
    """Copy this Python to where uv keeps those that it has installed: as such a one, it does not know where it lies."""
    release = ".".join(map(str, sys.version_info[:3]))
    home = folder / f"cpython-{release}-linux-{os.uname().machine}-gnu"
    library = Path(sysconfig.get_path("stdlib"))
    left_out = shutil.ignore_patterns(
        "__pycache__", "test", "tests", "site-packages", "dist-packages", "config-*", "idlelib"
    )
    shutil.copytree(library, home / "lib" / f"python{PYTHON}", ignore=left_out, symlinks=False)
    (home / "lib" / f"python{PYTHON}" / "site-packages").mkdir()
    (home / "bin").mkdir()
    shutil.copyfile(Path(sys.executable).resolve(), home / "bin" / f"python{PYTHON}")
    (home / "bin" / f"python{PYTHON}").chmod(0o755)
    for name in ("python3", "python"):
        (home / "bin" / name).symlink_to(f"python{PYTHON}")
    shared = sysconfig.get_config_var("LDLIBRARY") or ""
    for found in Path(sysconfig.get_config_var("LIBDIR") or "/none").glob(f"{shared}*") if ".so" in shared else ():
        shutil.copy(found, home / "lib")


@dataclass(frozen=True)
class Packed:
    """A capsule, the folder of its suite and of the base that it was made from, and the environment of its maker."""

    file: Path
    folder: Path
    environ: dict[str, str]

    def milabench(self, *argv: str, expect: int = 0) -> Said:
        """Run a command on the machine with a network."""
        said = milabench_in(self.environ)(*argv, cwd=self.folder)
        assert said.code == expect, said
        return said

    @property
    def here(self) -> tuple[str, ...]:
        """The options that name the suite."""
        return ("--config", "benchmarks/tiny/suite.yaml", "--base", "base")


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Packed:
    folder = tmp_path_factory.mktemp("maker")
    managed_python(folder / "pythons")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MILABENCH_")}
    environ = {
        **kept,
        "UV_PYTHON_INSTALL_DIR": str(folder / "pythons"),
        "MILABENCH_LOCK_DIR": str(folder / "locks"),
        "SECRET_TOKEN": "not-in-any-capsule",
    }
    made = Packed(file=folder / "tiny.capsule", folder=folder, environ=environ)
    made.milabench("new", "tiny")
    made.milabench("install", *made.here)
    made.milabench("prepare", *made.here)
    made.milabench("capsule", "create", *made.here, "-o", str(made.file))
    return made


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of a machine with nothing but a shell: an empty home, no cache, no settings."""
    home, tools = tmp_path / "home", tmp_path / "tools"
    home.mkdir(), tools.mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        assert found, name
        (tools / name).symlink_to(Path(found).resolve())
    (tools / "cat").symlink_to(Path(shutil.which("cat") or "/bin/cat").resolve())
    yield {"PATH": str(tools), "HOME": str(home), "MILABENCH_LOCK_DIR": str(tmp_path / "locks"), "LANG": "C.UTF-8"}


def test_a_machine_without_network_and_python_installs_prepares_runs_and_reports(
    packed: Packed, bare: dict[str, str], tmp_path: Path
) -> None:
    namespace = in_no_network()
    folder = tmp_path / "machine"
    folder.mkdir()
    done = subprocess.run(
        [*namespace, str(Path(shutil.which("sh") or "/bin/sh")), "-c", AIR_GAPPED],
        cwd=folder,
        env={**bare, "CAPSULE": str(packed.file)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert done.stdout.count("unreachable: ") == 2
    assert "prepare: nothing to do, prepared: 1 benchmark" in done.stderr
    with open_capsule(packed.file) as opened:
        digest = f"sha256:{opened.manifest.digest}"
        assert [python.folder != "" for python in opened.manifest.pythons] == [True]
    assert f"capsule  {digest}" in done.stdout
    report = json.loads((folder / "report.json").read_text())
    assert report["capsule"] == digest
    assert [bench["outcome"] for bench in report["benchmarks"]] == ["passed"]
    # The interpreter of the environment is the packed one: there is no other.
    (store,) = (path for path in (folder / "a base" / "venv" / ".store").iterdir() if path.is_dir())
    assert (store / "bin" / "python").resolve().is_relative_to(folder)


def test_the_same_base_gives_the_same_bytes_and_nothing_of_its_makers_environment(packed: Packed) -> None:
    again = packed.folder / "again"
    packed.milabench("capsule", "create", *packed.here, "-o", str(again))
    assert again.read_bytes() == packed.file.read_bytes()
    for secret in ("not-in-any-capsule", os.environ.get("HOME", "/nowhere-at-all") + "/"):
        with open_capsule(again) as opened:
            listed = opened.manifest.content.decode()
        assert secret not in listed
    assert b"not-in-any-capsule" not in again.read_bytes()
    shown = json.loads(packed.milabench("capsule", "show", "--json", str(again)).out)
    assert shown["prepared"] == ["tiny"]
    assert set(shown["parts"]) >= {"bin", "milabench", "python", "wheels", "benchmate", "suite", "data", "install.sh"}
    again.unlink()


def test_an_altered_capsule_does_not_even_begin(packed: Packed, bare: dict[str, str], tmp_path: Path) -> None:
    content = packed.file.read_bytes()
    with open_capsule(packed.file) as opened:
        wheel = next(e for e in opened.manifest.files if e.path.startswith("milabench/click"))
    at = content.index(wheel.header) + len(wheel.header) + 40
    altered = tmp_path / "altered"
    altered.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    for file, why in ((altered, "was altered"), (tmp_path / "half", "cannot be unpacked")):
        if not file.exists():
            file.write_bytes(content[: len(content) // 3])
        done = subprocess.run(
            ["sh", "-c", f"tar -xf '{file}' install.sh; sh install.sh '{file}' here"],
            cwd=tmp_path,
            env=bare,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 4
        assert why in done.stderr.splitlines()[-1]
        assert not (tmp_path / "here").exists()


def test_creating_asks_for_what_is_not_there(packed: Packed, tmp_path: Path) -> None:
    target = str(tmp_path / "a")
    other = ("--config", "benchmarks/tiny/suite.yaml", "--base", str(tmp_path / "base"))
    assert (
        "not prepared: tiny. Run `milabench prepare "
        in packed.milabench("capsule", "create", *other, "-o", target, expect=4).err
    )
    secret = "tiny.argv.--password=hunter2hunter2"
    said = packed.milabench(
        "capsule", "create", *packed.here, "--override", secret, "-o", target, "--no-data", expect=2
    )
    assert "holds a secret" in said.err
    assert "hunter2" not in said.err
    assert not Path(target).exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a disk")
def test_a_disk_that_fills_while_a_capsule_is_written_has_no_part_of_it(packed: Packed, tmp_path: Path) -> None:
    with disk(tmp_path / "small", "2m"):
        target = tmp_path / "small" / "a"
        said = packed.milabench("capsule", "create", *packed.here, "-o", str(target), expect=6)
        assert said.err.splitlines()[-1].endswith("cannot be packed: no space left on device")
        assert list(target.parent.iterdir()) == []


def test_an_interrupted_creation_leaves_the_file_as_it_was(packed: Packed, tmp_path: Path) -> None:
    target = tmp_path / "out" / "a"
    target.parent.mkdir()
    target.write_text("before")
    large = packed.folder / "base" / "data" / "tiny" / "large"
    with large.open("wb") as file:
        file.truncate(2**30)
    argv = [sys.executable, "-m", "milabench", "capsule", "create", *packed.here, "-o", str(target)]
    try:
        with started(argv, env=packed.environ, cwd=packed.folder, stderr=subprocess.PIPE, text=True) as process:
            until(lambda: len(list(target.parent.iterdir())) > 1, "the draft")
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=CEILING_S)[1]
        assert process.returncode == 130, said
    finally:
        large.unlink()
    assert [path.name for path in target.parent.iterdir()] == ["a"]
    assert target.read_text() == "before"
    assert not (packed.folder / "base" / "cache" / ".capsule.building").exists()
