"""What is wrong with a node or on the way to it: one line, the right outcome, and the run goes on elsewhere."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Said
from tests.ssh.conftest import PROGRAMS
from tests.ssh.hosts import Hosts

System = Callable[[dict[str, Any]], Path]
Milabench = Callable[..., Said]


def python_of(folder: Path, environment: str, python: str = sys.executable) -> str:
    """A Python of a node that is started with these variables."""
    path = folder / "python-there"
    path.write_text(f'#!/bin/sh\nexport {environment}\nexec {python} "$@"\n')
    path.chmod(0o755)
    return str(path)


def system_of(hosts: Hosts, folder: Path, **of_first: Any) -> dict[str, Any]:
    """A system file of nodes with bases of this test; the first one is special."""
    made = hosts.system()
    for number, entry in enumerate(made["system"]["nodes"]):  # type: ignore[index]
        entry["base"] = str(folder / f"base{number}")
    made["system"]["nodes"][0].update(of_first)  # type: ignore[index]
    return made


@pytest.mark.parametrize("ahead_s", [3600, -3600])
def test_a_node_whose_clock_is_off_is_refused_and_its_records_are_placed_on_ours(
    hosts: Hosts, system: System, milabench: Milabench, tmp_path: Path, ahead_s: int
) -> None:
    if (compiler := shutil.which("cc")) is None:
        pytest.skip("a clock that is off needs a C compiler")
    skewed = tmp_path / "clock.so"
    source = str(PROGRAMS / "clock_ahead.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(skewed), source, "-ldl"], check=True)
    python = python_of(tmp_path, f"LD_PRELOAD={skewed} CLOCK_AHEAD_S={ahead_s}")
    system(system_of(hosts, tmp_path, python=python))
    where = "ahead" if ahead_s > 0 else "behind"
    refused = milabench("prepare", "--select", "good")
    assert refused.code == 5
    assert re.search(rf"^error: h0: clock: its clock is (3600|3599)\.\d s {where}; set both by NTP$", refused.err, re.M)
    assert milabench("prepare", "--select", "good", "--ignore-node-checks").code == 0
    ran = milabench("run", "--select", "good", "--ignore-node-checks", "--display", "none")
    assert ran.code == 0, ran.err
    (run,) = (tmp_path / "base" / "runs").glob("run.*")
    stamps = {
        name: json.loads((run / f"good.D0.{name}.data").read_text().splitlines()[-1])["t"]
        for name in ("node0", "node1")
    }
    assert abs(stamps["node0"] - stamps["node1"] - ahead_s) < 600  # so it was off
    assert re.search(rf"^clock \(h0\) +(3600|3599) s {where} when it began", milabench("report").out, re.M)
    shown = milabench("replay", "--display", "plain", "--speed", "1000").err
    assert max(float(second) for second in re.findall(r"^\[ *([0-9.]+)s\]", shown, re.M)) < 600
