"""How the agent comes to a machine: unpacked once, whole or not at all, run by an old Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from milabench.execute.agent.unpack import files_below
from milabench.execute.agent_bootstrap import agent_digest, agent_files, boot_line, deterministic_zip
from tests.process.conftest import old_python

ARCHIVE = deterministic_zip(agent_files())
SENT = len(ARCHIVE).to_bytes(8, "big") + ARCHIVE


def begin(cache: Path, **env: str) -> subprocess.Popen[bytes]:
    """A shell that becomes the agent, which answers one question; its caches are below this folder."""
    environ = {**os.environ, "XDG_CACHE_HOME": str(cache / "home"), "TMPDIR": str(cache / "tmp"), **env}
    line = boot_line(["left", "nobody"], sign="boot-1", python=sys.executable)
    return subprocess.Popen(
        ["/bin/sh", "-c", line], env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def answer(cache: Path, content: bytes = SENT, **env: str) -> list[str]:
    """The lines that come of it."""
    output, errors = begin(cache, **env).communicate(content)
    assert not errors, errors.decode()
    return output.decode().splitlines()


def unpacked(cache: Path) -> Path:
    """The one folder that the agent was unpacked to."""
    (folder,) = cache.rglob("agent-*")
    return folder


FRESH = ["boot-1 need", "boot-1 ready", '{"left": []}']
KNOWN = FRESH[1:]


def test_an_agent_is_unpacked_once_under_its_digest_for_its_user_alone(tmp_path: Path) -> None:
    assert answer(tmp_path) == FRESH
    assert answer(tmp_path, b"") == KNOWN
    folder = unpacked(tmp_path)
    assert folder.name == f"agent-{agent_digest()[:16]}"
    assert [path.stat().st_mode & 0o777 for path in (folder, folder.parent)] == [0o700, 0o700]
    assert sorted(files_below(str(folder))) == sorted(agent_files())
    assert list(folder.rglob("*.pyc")), "Python keeps its byte code"


def test_agents_that_are_unpacked_at_the_same_time_do_not_disturb_each_other(tmp_path: Path) -> None:
    starting = [begin(tmp_path) for _ in range(6)]
    for process in starting:
        output, errors = process.communicate(SENT)
        assert output.decode().splitlines()[-2:] == KNOWN, errors.decode()
    assert [path.name for path in unpacked(tmp_path).parent.iterdir()] == [unpacked(tmp_path).name]


@pytest.mark.parametrize("damage", ["cut", "others may write", "a link"])
def test_a_folder_that_is_not_as_it_was_left_is_replaced(tmp_path: Path, damage: str) -> None:
    assert answer(tmp_path) == FRESH
    folder = unpacked(tmp_path)
    if damage == "cut":
        module = folder / "milabench" / "execute" / "agent" / "step.py"
        module.write_bytes(module.read_bytes()[:100])
    elif damage == "others may write":
        folder.chmod(0o777)
    else:
        folder.rename(tmp_path / "elsewhere")
        folder.symlink_to(tmp_path / "elsewhere")
    assert answer(tmp_path) == FRESH
    assert not folder.is_symlink()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert sorted(files_below(str(folder))) == sorted(agent_files())
    assert answer(tmp_path, b"") == KNOWN


def test_a_home_that_cannot_be_written_leaves_the_temporary_folder(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("no folder can be made below a file; root may write anywhere else")
    (tmp_path / "tmp").mkdir()
    assert answer(tmp_path) == FRESH
    assert unpacked(tmp_path).parent == tmp_path / "tmp" / f"milabench-{os.getuid()}"


def test_a_cache_that_others_can_write_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "home" / "milabench").mkdir(parents=True)
    (tmp_path / "home" / "milabench").chmod(0o777)
    assert answer(tmp_path) == FRESH
    assert unpacked(tmp_path).parent.name == f"milabench-{os.getuid()}"


def test_an_archive_that_arrives_altered_is_refused(tmp_path: Path) -> None:
    other = deterministic_zip([(name, content + b"\n") for name, content in agent_files()])
    output, _ = begin(tmp_path).communicate(len(other).to_bytes(8, "big") + other)
    lines = output.decode().splitlines()
    assert lines[0] == "boot-1 need"
    assert "arrived altered" in lines[1]
    assert not list(tmp_path.rglob("agent-*"))


@pytest.mark.parametrize(
    "words", [("serve", "--run-id", "oldest"), ("facts",), ("sweep", "nobody"), ("left", "nobody"), ("files",)]
)
def test_every_verb_runs_on_the_oldest_python_here_and_loads_nothing_but_the_agent(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    python = old_python()
    if python is None:
        pytest.skip("Python 3.8 to 3.10 is not installed (PATH, pyenv)")
    for name, content in agent_files():  # the control plane's files are not beside them
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    program = tmp_path / "milabench" / "execute" / "agent" / "__main__.py"
    done = subprocess.run(
        [python, "-I", "-S", "-X", "importtime", program, *words],
        input="",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    loaded = [line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")]
    ours = [name for name in loaded if name.startswith("milabench")]
    assert ours
    assert all(
        name.startswith(("milabench.execute.agent", "milabench.devices", "milabench.redaction")) for name in ours
    )
