"""An installation on nodes: it is told there and here what is being done, and what was built is imported there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from milabench.execute.inventory import benchmate_digest
from tests.commands import ROOT
from tests.process.cli.installable import installable, instruments
from tests.process.install.places import wheel
from tests.process.install.slow_index import slow_index
from tests.processes import end_of, started
from tests.ssh.hosts import Hosts
from tests.ssh.test_commands import with_bases

pytestmark = pytest.mark.slow


@pytest.mark.e2e
@pytest.mark.long
@pytest.mark.parametrize("is_broken", [False, True], ids=["whole", "broken"])
def test_nodes_tell_what_they_do_and_import_what_they_built(
    hosts: Hosts, system: Callable[[dict[str, Any]], Path], environ: dict[str, str], tmp_path: Path, is_broken: bool
) -> None:
    with slow_index(tmp_path / "wheels", held=True) as index:
        here, _, _ = installable(tmp_path, tmp_path / "base")
        wheel(tmp_path / "wheels", "tool", "1", content="raise OSError('of another age')\n" if is_broken else "")
        (tmp_path / "timed" / "requirements.in").write_text("tool\n")
        suite = yaml.safe_load((tmp_path / "suite.yaml").read_text())
        suite["timed"]["pip"] = {"index-url": index.url}
        (tmp_path / "suite.yaml").write_text(json.dumps(suite))
        for name in ("base0", "base1"):
            kept = tmp_path / name / "cache" / "wheels" / f"benchmate-{benchmate_digest(ROOT / 'benchmate')[:16]}"
            kept.mkdir(parents=True)
            instruments(kept)
        system(with_bases(hosts, tmp_path, "base0", "base1"))
        argv = [sys.executable, "-m", "milabench", "install", *here]
        del environ["MILABENCH_USE_CURRENT_ENV"]
        with started(argv, env=environ, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            told = ""
            while not re.search(r"^  h0: timed: installing: .*, \d+ s$", told, re.MULTILINE):
                line = process.stderr.readline()
                assert line, told
                told += line
            index.go.set()
            told += process.stderr.read()
            code = end_of(process)
    assert code == (4 if is_broken else 0), told
    for number in (0, 1):
        assert f"h{number}: timed: needs: " in told
        if is_broken:
            why = f"error: h{number}: timed: tool, which timed requires, cannot be imported: OSError: of another age"
            assert why in told
        assert (tmp_path / f"base{number}" / "venv" / "timed").is_symlink() != is_broken
