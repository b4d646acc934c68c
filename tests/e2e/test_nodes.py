"""Environments on machines that share nothing with this one: built there, or copied."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.ssh.hosts import Hosts, on_loopback, why_no_sshd

pytestmark = [pytest.mark.e2e, pytest.mark.long]

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    """Two machines."""
    if (why := why_no_sshd()) is not None:
        pytest.skip(why)
    with on_loopback(2) as made:
        yield made


def milabench(verb: str, system: Path, base: Path) -> str:
    words = [verb, "--config", "tests/suite/odd.yaml", "--select", "good", "--system", str(system), "--base", str(base)]
    env = {**os.environ, "MILABENCH_LOCK_DIR": str(base.parent / "locks"), "MILABENCH_WAIT": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "milabench", *words], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_environments_are_built_on_each_machine_and_used_there(hosts: Hosts, tmp_path: Path) -> None:
    made = hosts.system()
    bases = [tmp_path / "there0", tmp_path / "there1"]
    for entry, base in zip(made["system"]["nodes"], bases, strict=True):  # type: ignore[index]
        entry["base"] = str(base)
    system = tmp_path / "cluster.yaml"
    system.write_text(yaml.safe_dump(made))
    here = tmp_path / "here"
    before = [host.logins for host in hosts.hosts]
    milabench("install", system, here)
    assert [host.logins for host in hosts.hosts] == [number + 1 for number in before]
    assert not (here / "venv").exists()
    for base in bases:
        assert (base / "venv" / "odd" / "bin" / "python").exists()
        assert list((base / "venv" / ".store").glob("odd-*/.complete"))
    milabench("prepare", system, here)
    milabench("run", system, here)
    (run,) = (here / "runs").glob("run.*")
    for number, base in enumerate(bases):
        assert str(base / "venv" / ".store" / "odd-") in (run / f"good.D0.node{number}.data").read_text()


def test_environments_that_could_only_be_moved_are_refused_with_the_node(hosts: Hosts, tmp_path: Path) -> None:
    """A base at another path cannot take environments that were made here."""
    made = hosts.system(sync=["venv"])
    for number, entry in enumerate(made["system"]["nodes"]):  # type: ignore[arg-type, index]
        entry["base"] = str(tmp_path / f"elsewhere{number}")
    system = tmp_path / "cluster.yaml"
    system.write_text(yaml.safe_dump(made))
    words = ["install", "--config", "tests/suite/odd.yaml", "--select", "good", "--system", str(system)]
    done = subprocess.run(
        [sys.executable, "-m", "milabench", *words, "--base", str(tmp_path / "here")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 4
    assert "an environment cannot be moved" in done.stderr
    assert "h0: " in done.stderr
    assert "h1: " in done.stderr
