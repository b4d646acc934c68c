"""config/serving.yaml as a user runs it: the curves of two servers, and a server that is 20 % slower compared with itself.

The environment is made in a base of the session, or taken from MILABENCH_TRUTH_BASE.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests import chromium
from tests.commands import ROOT, Said, milabench_in

# One environment of 4 GB, ten launches of servers.
pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(3600)]

SUITE = ("--config", str(ROOT / "config" / "serving.yaml"))
LOADS = (1, 2, 4, 6, 8, 12, 16)
SLOTS = 8  # of the simulated server
TTFT, ITL, OUTPUT = 100.0, 10.0, 32  # milliseconds, milliseconds, tokens
SLOWER = 1.2
FEWER = ("--select", "simulated", "--repeat", "3", "--override", "simulated.serve.concurrency=[1,4,8]")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the environment, the data and the runs are; removed afterwards unless it was given."""
    given = os.environ.get("MILABENCH_TRUTH_BASE")
    folder = Path(given) if given else tmp_path_factory.mktemp("serving")
    yield folder
    if not given:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def milabench(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Said]:
    """The command, with the environment installed and the data prepared."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("MILABENCH_")}
    locks = tmp_path_factory.mktemp("locks")
    command = milabench_in({**kept, "MILABENCH_BASE": str(base), "MILABENCH_LOCK_DIR": str(locks)})
    for verb in ("install", "prepare"):
        said = command(verb, *SUITE)
        assert said.code == 0, said.err
    return command


@pytest.fixture(scope="module")
def both(milabench: Callable[..., Said]) -> str:
    """The name of a run of both servers."""
    name = f"serving-{os.getpid()}"
    said = milabench("run", *SUITE, "--profile", "quick", "--repeat", "1", "--run-name", name)
    assert said.code == 0, said.err
    return name


@pytest.fixture(scope="module")
def curves(milabench: Callable[..., Said], both: str) -> Mapping[str, Any]:
    """What the report says of each of them."""
    return {bench["bench"]: bench for bench in json.loads(milabench("report", both, "--json").out)["benchmarks"]}


def value(bench: Mapping[str, Any], load: int, metric: str) -> float:
    (point,) = (point for point in bench["serving"]["points"] if point["concurrency"] == load)
    return float(point["values"][metric]["value"])


@pytest.mark.parametrize("name", ["serve-llama", "simulated"])
def test_a_server_has_a_curve_with_every_point_of_the_suite(curves: Mapping[str, Any], name: str) -> None:
    bench = curves[name]
    assert bench["outcome"] == "passed", bench["failures"]
    curve = bench["serving"]
    assert [(point["concurrency"], point["state"], point["errors"]) for point in curve["points"]] == [
        (load, "measured", 0) for load in LOADS
    ]
    assert (curve["client"], curve["version"], curve["seed"]) == ("vllm", "0.32.0", 1)
    best = max(value(bench, load, "output_tps") for load in LOADS if value(bench, load, "ttft_p90_ms") <= 2000)
    assert bench["perf"] == pytest.approx(best)


def test_a_server_of_known_times_has_the_curve_that_follows_from_them(curves: Mapping[str, Any]) -> None:
    bench = curves["simulated"]
    assert value(bench, 1, "ttft_p50_ms") == pytest.approx(TTFT, rel=0.05)
    assert value(bench, 1, "tpot_p50_ms") == pytest.approx(ITL, rel=0.02)
    request = (TTFT + (OUTPUT - 1) * ITL) / 1e3
    for load in (1, 2, 4, 8):
        assert value(bench, load, "output_tps") == pytest.approx(load * OUTPUT / request, rel=0.1)
    # Beyond its slots requests wait for their first token, and no more tokens come out.
    assert value(bench, 16, "output_tps") == pytest.approx(value(bench, SLOTS, "output_tps"), rel=0.1)
    assert value(bench, 16, "ttft_p50_ms") > 1e3 * request


def test_both_curves_are_drawn_on_the_page(milabench: Callable[..., Said], both: str, tmp_path: Path) -> None:
    if chromium.program() is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    assert milabench("report", both, "-o", str(tmp_path / "report.html")).code == 0
    with chromium.page(tmp_path / "profile") as page:
        page.open(tmp_path / "report.html")
        drawn = page.run("[...document.querySelectorAll('figure svg')].map((one) => one.textContent)")
        assert page.errors == []
    assert sum("requests in flight" in text for text in drawn) >= 2


def test_a_server_that_is_20_percent_slower_is_found_so_at_every_load(milabench: Callable[..., Said]) -> None:
    names = [f"{kind}-{os.getpid()}" for kind in ("as-it-is", "slower")]
    for name, slow in zip(names, (1.0, SLOWER), strict=True):
        override = f"simulated.server.argv.--slow={slow}"
        said = milabench("run", *SUITE, "--profile", "quick", *FEWER, "--override", override, "--run-name", name)
        assert said.code == 0, said.err
    (found,) = json.loads(milabench("compare", *names, "--json").out)["comparison"]["curves"]
    rows = [row for row in found["ratios"] if row["metric"] == "output_tps"]
    assert len(rows) == 3
    for row in rows:
        low, high = row["contrast"]["ci95"]
        assert low <= 1 / SLOWER <= high, row
