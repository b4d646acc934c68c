"""The rate of each third-party definition against a clock of its own in the same process: a test for each, by its name.

After the run the program lies in the base byte for byte as it was published.

    pytest tests/truth/test_definitions.py -m e2e -k dpo

The clock comes in by sitecustomize (clock_site/), stamps a function of the program that no probe of ours replaces, and counts
items from that function's arguments. Environments are made in a base of the session, or taken from MILABENCH_TRUTH_BASE.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.commands import ROOT, milabench_in
from tests.truth.launches import Launch, stamps_of

# Each installs an environment and runs a benchmark; test_own_clocks.py is what every change waits for.
pytestmark = [pytest.mark.e2e, pytest.mark.long]

HERE = Path(__file__).parent
SUITES = ROOT / "config"
CLOCKS: Mapping[str, Mapping[str, Any]] = yaml.safe_load((HERE / "definitions.yaml").read_text())
CLOSE = 0.01


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where environments, programs and data are; removed afterwards unless it was given."""
    given = os.environ.get("MILABENCH_TRUTH_BASE")
    folder = Path(given) if given else tmp_path_factory.mktemp("definitions")
    yield folder
    if not given:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("name", CLOCKS)
def test_the_rate_is_that_of_an_independent_clock_in_the_same_process(name: str, base: Path, tmp_path: Path) -> None:
    clock = CLOCKS[name]
    kept = {key: value for key, value in os.environ.items() if not key.startswith("MILABENCH_")}
    milabench = milabench_in({**kept, "MILABENCH_BASE": str(base), "MILABENCH_LOCK_DIR": str(tmp_path / "locks")})
    chosen = ("--config", str(SUITES / f"{clock.get('suite', 'ci')}.yaml"), "--select", name)
    installed = milabench("install", *chosen)
    assert installed.code == 0, installed.err
    planned = json.loads(milabench("plan", "run", "--json", *chosen).out)
    python_path = planned["steps"][0]["env"].get("PYTHONPATH", "")
    variables = {
        "PYTHONPATH": ":".join(filter(None, (str(HERE / "clock_site"), python_path))),
        "INDEPENDENT_CALL": clock["call"],
        "INDEPENDENT_ITEMS": str(clock.get("items", 1)),
        "INDEPENDENT_COMPILED": "1" if clock.get("compiled") else "",
        "INDEPENDENT_STAMPS": str(tmp_path),
    }
    overrides = [word for key, value in variables.items() for word in ("--override", f"{name}.env.{key}='{value}'")]
    run = f"clock-{name}-{os.getpid()}"
    milabench("run", *chosen, "--profile", "quick", "--repeat", "1", "--run-name", run, *overrides)
    (bench,) = json.loads(milabench("report", run, "--json").out)["benchmarks"]
    assert bench["outcome"] == "passed", bench["failures"]
    (rate,) = [metric for metric in bench["metrics"] if metric["metric"] == "rate"]

    (records,) = (path for path in base.glob(f"runs/{run}.*/*.data") if path.name.split(".")[0] == name)
    launch = Launch(records, rate)
    ranks = [stamps_of(path, stamps_late=clock.get("late", False)) for path in sorted(tmp_path.glob("stamps.*.txt"))]
    assert len(ranks) == len(rate["totals"])
    achieved = [own.during(**launch.counted(rank)) for rank, own in enumerate(ranks)]
    expected = sum(each.items for each in achieved) / max(each.seconds for each in achieved)
    assert bench["perf"] == pytest.approx(expected, rel=CLOSE)

    for source in json.loads(milabench("plan", "install", "--json", *chosen).out)["sources"]:
        assert differences(source, base, tmp_path) == ""


def differences(source: Mapping[str, str], base: Path, scratch: Path) -> str:
    """What `diff -r` says of a program in the base and its release file, which is unpacked here by Python's own means."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    archive = home / "milabench" / "archives" / source["sha256"]
    assert hashlib.sha256(archive.read_bytes()).hexdigest() == source["sha256"]
    published = scratch / "published"
    is_wheel = source["file"].endswith(".whl")
    shutil.unpack_archive(
        archive, published, "zip" if is_wheel else "gztar", **({} if is_wheel else {"filter": "data"})
    )
    (top,) = [published] if is_wheel else published.iterdir()
    compared = subprocess.run(
        ["diff", "-r", str(top), str(base / "code" / source["folder"])], capture_output=True, text=True, check=False
    )
    shutil.rmtree(published)
    return compared.stdout + compared.stderr
