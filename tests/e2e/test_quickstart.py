"""The main job on real input: config/quickstart.yaml installed, prepared, run and reported in a new base."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.common_folders import quickstart_base
from tests.processes import CEILING_S, until
from tests.single_records import single_records

# One base, installed and prepared once.
pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
QUICKSTART = ("--config", "config/quickstart.yaml")
UNITS = {
    "sft": "tokens/s",
    "pykeen": "triples/s",
    "flax": "samples/s",
    "ppo": "env steps/s",
    "digits": "images/s",
    "flops": "Tflop/s",
}


@dataclass(frozen=True)
class Place:
    """A base of its own, and the command that works on it."""

    base: Path
    environ: dict[str, str]

    def milabench(self, *argv: str, expect: int = 0) -> subprocess.CompletedProcess[str]:
        """Run the command to its end."""
        done = subprocess.run(
            [sys.executable, "-m", "milabench", *argv],
            env=self.environ,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == expect, f"{argv}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def report(self) -> dict[str, Any]:
        """The latest run, as JSON."""
        return json.loads(self.milabench("report", "--format", "json").stdout)

    def processes(self) -> list[int]:
        """The processes of any run below this base, by the variables they carry."""
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                with contextlib.suppress(OSError):
                    if f"MILABENCH_DIR_DATA={self.base}/data".encode() in (folder / "environ").read_bytes():
                        found.append(int(folder.name))
        return found


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The quickstart suite, installed and prepared in a new base with a new home."""
    base = quickstart_base(tmp_path_factory)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MILABENCH_")}
    environ = {**kept, "MILABENCH_BASE": str(base), "MILABENCH_WAIT": "1"}
    made = Place(base, environ)
    made.milabench("install", *QUICKSTART)
    made.milabench("prepare", *QUICKSTART)
    return made


@pytest.fixture(scope="module")
def run(place: Place) -> dict[str, Any]:
    """One run of the whole suite, and its report."""
    place.milabench("run", *QUICKSTART)
    return place.report()


def test_install_and_prepare_have_nothing_to_do_the_second_time(place: Place) -> None:
    assert "nothing to do" in place.milabench("install", *QUICKSTART).stderr
    assert "nothing to do" in place.milabench("prepare", *QUICKSTART).stderr


def test_every_benchmark_passes_with_a_rate_in_its_unit(run: dict[str, Any]) -> None:
    found = {bench["bench"]: bench for bench in run["benchmarks"]}
    assert {name: bench["outcome"] for name, bench in found.items()} == dict.fromkeys(UNITS, "passed")
    assert {name: bench["units"] for name, bench in found.items()} == UNITS
    for name, bench in found.items():
        assert bench["perf"] > 0, name
        assert bench["memory_peak_MiB"] > 0, name
        assert bench["first_step_s"] > 0, name
        assert set(bench["reasons"]) == {"short"}, name
    assert run["score"]["complete"] == [6, 6]


@pytest.mark.parametrize("name", ["sft", "pykeen", "flax", "digits"])
def test_the_loss_of_what_trains_falls(run: dict[str, Any], name: str) -> None:
    metrics = next(bench["metrics"] for bench in run["benchmarks"] if bench["bench"] == name)
    value = {metric["metric"]: metric["value"] for metric in metrics}
    assert value["loss_last"] < value["loss_first"]


def test_the_digits_are_recognised(run: dict[str, Any]) -> None:
    metrics = next(bench["metrics"] for bench in run["benchmarks"] if bench["bench"] == "digits")
    (accuracy,) = [metric["value"] for metric in metrics if metric["metric"] == "accuracy"]
    assert accuracy > 0.5  # ten classes


def test_the_harness_costs_little_and_says_how_much(place: Place, run: dict[str, Any]) -> None:
    journal = (place.base / "runs" / run["run"] / "journal.jsonl").read_text().splitlines()
    overhead = json.loads(journal[-1])["overhead"]
    assert overhead["share"] > 0


def test_instances_on_two_simulated_devices_measure_at_the_same_time(place: Place, tmp_path: Path) -> None:
    reading = {"t": 0, "memory_MiB": [40960, 81920], "load": 0.95, "power_W": 500}
    devices = [{"uuid": f"SIM-{number}", "readings": [reading]} for number in range(2)]
    (tmp_path / "two.json").write_text(json.dumps({"devices": devices}))
    with_two = Place(place.base, {**place.environ, "MILABENCH_SIMULATED_DEVICES": str(tmp_path / "two.json")})
    with_two.milabench("run", *QUICKSTART, "--select", "digits,flops", "-s", "system.gpu.count=2")
    report = with_two.report()
    assert {bench["bench"] for bench in report["benchmarks"]} == {"digits", "flops"}
    for bench in report["benchmarks"]:
        assert bench["overlap"] >= 0.95, bench["bench"]
        judged = {(one["step"], one["check"]) for one in bench["validations"]}
        for step in (f"{bench['bench']}.D0", f"{bench['bench']}.D1"):
            assert {(step, check) for check in ("rate", "placement", "throttle", "energy")} <= judged
            records = single_records((place.base / "runs" / report["run"] / f"{step}.data").read_bytes())
            data = [record["data"] for record in records if record["event"] == "data"]
            (window,) = [one["window"] for one in data if "window" in one and one.get("task") != "validation"]
            rates = [one for one in data if "rate" in one and one.get("task") == "train"]
            assert all(one.get("warmup", False) == (one["t0_ns"] < window["start_ns"]) for one in rates), step


def test_the_fetched_programs_are_what_was_published(place: Place, run: dict[str, Any], tmp_path: Path) -> None:
    plan = json.loads(place.milabench("plan", "install", *QUICKSTART, "--json").stdout)
    cache = Path(place.environ.get("XDG_CACHE_HOME") or Path(place.environ["HOME"], ".cache"), "milabench", "archives")
    assert len(plan["sources"]) >= 3
    for source in plan["sources"]:
        archive = cache / source["sha256"]
        archive = next(archive.iterdir()) if archive.is_dir() else archive
        published = tmp_path / source["folder"]
        if source["file"].endswith(".whl"):
            zipfile.ZipFile(archive).extractall(published)
        else:
            (tmp_path / "sdist").mkdir(exist_ok=True)
            subprocess.run(["tar", "-xf", archive, "-C", tmp_path / "sdist"], check=True)
            published = tmp_path / "sdist" / source["file"].removesuffix(".tar.gz")
        fetched = place.base / "code" / source["folder"]
        differences = subprocess.run(["diff", "-r", published, fetched], capture_output=True, text=True, check=False)
        assert differences.stdout == "", source["folder"]


def test_dev_runs_a_command_in_the_environment_and_returns_its_exit_code(place: Place) -> None:
    place.milabench("dev", "digits", "--", "python", "-c", "import torch, sklearn, benchmate")
    said = place.milabench("dev", "digits", "--", "python", "-c", "import sys; sys.exit(9)", expect=9)
    assert "-m benchmate.run" in said.stderr


def test_the_environment_can_be_activated_by_name(place: Place) -> None:
    activate = f"source {place.base}/venv/torch/bin/activate && python -c 'import torch, sys; print(sys.prefix)'"
    said = subprocess.run(["bash", "-c", activate], capture_output=True, text=True, check=True)
    assert "torch" in said.stdout


@pytest.mark.long
def test_repeats_make_an_interval(place: Place, run: dict[str, Any]) -> None:
    place.milabench("run", *QUICKSTART, "--select", "digits", "--repeat", "3")
    (bench,) = place.report()["benchmarks"]
    assert bench["processes"] == 3
    low, high = bench["ci95"]
    assert low < bench["perf"] < high


@contextlib.contextmanager
def running(place: Place) -> Iterator[subprocess.Popen[bytes]]:
    """A run of digits that would take long."""
    argv = ("run", *QUICKSTART, "--select", "digits", "--override", "digits.voir.options.stop=1000000")
    process = subprocess.Popen(
        [sys.executable, "-m", "milabench", *argv], env=place.environ, cwd=ROOT, stderr=subprocess.DEVNULL
    )
    try:
        until(lambda: len(place.processes()) > 0, "the benchmark's process")
        yield process
    finally:
        process.kill()
        process.wait()


def test_ctrl_c_leaves_no_process_and_a_report(place: Place, run: dict[str, Any]) -> None:
    with running(place) as process:
        process.send_signal(signal.SIGINT)
        assert process.wait(CEILING_S) == 130
    assert place.processes() == []
    assert place.report()["benchmarks"][0]["outcome"] == "cancelled"


def test_a_killed_orchestrator_leaves_no_process_and_a_report(place: Place, run: dict[str, Any]) -> None:
    with running(place) as process:
        process.kill()
        process.wait()
    until(lambda: place.processes() == [], "the end of what the run started")
    assert place.report()["benchmarks"][0]["outcome"] == "missing"
