"""The suite of the machine at its tiny size, as a user runs it: numbers against arithmetic by hand, wrong results refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.commands import ROOT, Said, milabench_in
from tests.single_records import single_records

# One environment, and one run of all programs.
pytestmark = [pytest.mark.e2e, pytest.mark.long]

SUITE = "config/suite/machine.yaml"
PROGRAMS = ROOT / "benchmarks" / "machine"
RANKS = 2
# By hand: two matrices of 4096 x 256, and in each of 4 layers q and o 256 x 256, k and v 64 x 256, three of 768 x 256 and two
# norms of 256; a norm of 256. Each in bf16 (2 bytes) and three times in single precision (4 bytes each).
PARAMETERS = 2 * 4096 * 256 + 4 * (2 * 256 * 256 + 2 * 64 * 256 + 3 * 768 * 256 + 2 * 256) + 256
CHECKPOINT = PARAMETERS * (2 + 3 * 4)
# What crosses the bus per rank and byte of a collective's size, with two ranks.
CROSSING = {
    "all_reduce": 1.0,
    "all_gather": 0.5,
    "reduce_scatter": 0.5,
    "all_to_all": 0.5,
    "broadcast": 1.0,
    "send_recv": 1.0,
}


class Place:
    """The base, its environment, and the report of a run."""

    def __init__(self, base: Path, milabench: Callable[..., Said]) -> None:
        self.base, self.milabench = base, milabench
        self.python = str(base / "venv" / "torch" / "bin" / "python")
        self.benches: Mapping[str, Mapping[str, Any]] = {}
        self.runs = base / "runs"

    def metrics(self, bench: str) -> list[Mapping[str, Any]]:
        found = self.benches[bench]
        assert found["outcome"] == "passed", found["failures"]
        return list(found["metrics"])

    def named(self, bench: str, name: str) -> list[Mapping[str, Any]]:
        return [metric for metric in self.metrics(bench) if metric["metric"] == name]

    def records(self, bench: str) -> list[Mapping[str, Any]]:
        """Every measurement, one by one."""
        (path,) = (path for path in self.runs.glob("*.data") if path.name.split(".")[0] == bench)
        return [event["data"] for event in single_records(path.read_bytes()) if event["event"] == "data"]

    def recorded(self, bench: str, name: str) -> list[Mapping[str, Any]]:
        """The metrics of a name, with all that the program says of them."""
        assert self.benches[bench]["outcome"] == "passed", self.benches[bench]["failures"]
        return [record for record in self.records(bench) if record.get("metric") == name]

    def program(self, name: str, *arguments: str, ranks: int = 1, **env: str) -> subprocess.CompletedProcess[str]:
        """What one of the programs answers by itself."""
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"] if ranks > 1 else []
        kept = {key: value for key, value in os.environ.items() if not key.startswith("MILABENCH_")}
        return subprocess.run(
            [self.python, *launcher, name, *arguments],
            env={**kept, "OMP_NUM_THREADS": "1", **env},
            cwd=self.base,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    given = os.environ.get("MILABENCH_MACHINE_BASE")
    base = Path(given) if given else tmp_path_factory.mktemp("machine")
    kept = {key: value for key, value in os.environ.items() if not key.startswith("MILABENCH_")}
    milabench = milabench_in({**kept, "MILABENCH_BASE": str(base), "MILABENCH_LOCK_DIR": str(base / "locks")})
    chosen = ("--config", SUITE, "--size", "tiny")
    installed = milabench("install", *chosen)
    assert installed.code == 0, installed.err
    place = Place(base, milabench)
    run = f"machine-{os.getpid()}"
    milabench("run", *chosen, "--profile", "quick", "--repeat", "1", "--run-name", run)
    place.benches = {
        bench["bench"]: bench for bench in json.loads(milabench("report", run, "--json").out)["benchmarks"]
    }
    (place.runs,) = (base / "runs").glob(f"{run}.*")
    yield place
    if not given:
        shutil.rmtree(base, ignore_errors=True)


def test_everything_that_this_machine_can_run_has_passed(place: Place) -> None:
    outcomes = {name: bench["outcome"] for name, bench in place.benches.items()}
    assert {name: outcome for name, outcome in outcomes.items() if outcome not in ("passed", "skipped")} == {}
    assert len([outcome for outcome in outcomes.values() if outcome == "passed"]) >= 14


def test_a_bandwidth_is_the_bytes_of_the_arrays_by_the_time_of_the_kernel(place: Place) -> None:
    for bench in ("memory-device", "memory-host"):
        arrays = {metric["case"]: metric for metric in place.recorded(bench, "bandwidth")}
        assert arrays.keys() == {"copy", "scale", "add", "triad"}
        for kernel, metric in arrays.items():
            count = 2 if kernel in ("copy", "scale") else 3
            assert metric["value"] == pytest.approx(count * 64 * 2**20 / metric["seconds"] / 1e9)


def test_the_bandwidth_of_the_bus_is_counted_as_nccls_tests_count_it(place: Place) -> None:
    times = {(m["case"], m["params"]["bytes"]): m["value"] for m in place.named("collectives", "time")}
    rates = {(m["case"], m["params"]["bytes"]): m for m in place.named("collectives", "bus_bandwidth")}
    assert {case for case, _ in rates} == CROSSING.keys()
    assert {size for _, size in rates} == {1024, 32 * 1024, 1024 * 1024}
    for (case, size), metric in rates.items():
        assert metric["params"]["ranks"] == RANKS
        assert metric["value"] == pytest.approx(CROSSING[case] * size / times[case, size] / 1e9)


def test_every_pair_of_four_ranks_is_a_link(place: Place) -> None:
    for bench in ("links", "links-at-once"):
        assert {m["case"] for m in place.named(bench, "link_bandwidth")} == {"0-1", "0-2", "0-3", "1-2", "1-3", "2-3"}
        assert len(place.named(bench, "bad_links")) == 1


def test_the_overlap_is_what_both_at_once_save_of_the_shorter(place: Place) -> None:
    times = {metric["case"]: metric["value"] for metric in place.named("overlap", "time")}
    (share,) = place.named("overlap", "overlap")
    alone = times["computation"], times["communication"]
    assert share["value"] == pytest.approx((sum(alone) - times["both"]) / min(alone))


def test_a_checkpoint_has_fourteen_bytes_a_parameter(place: Place) -> None:
    times = {metric["case"]: metric["value"] for metric in place.named("checkpoint", "time")}
    rates = {metric["case"]: metric for metric in place.named("checkpoint", "bandwidth")}
    assert rates.keys() == times.keys() == {"write", "restore"}
    for case, metric in rates.items():
        assert metric["params"]["parameters"] == PARAMETERS
        assert metric["value"] == pytest.approx(CHECKPOINT / times[case] / 1e9)


@pytest.mark.parametrize(
    ("bench", "items"), [("sample-reads", 16 * 65536 / 1e6), ("sample-reads-npz", 2 * 2.0), ("data-loading", 32)]
)
def test_a_step_has_the_items_of_its_batch(place: Place, bench: str, items: float) -> None:
    (rate,) = place.named(bench, "rate")
    assert rate["value"] > 0
    steps = [record for record in place.records(bench) if "t0_ns" in record]
    assert steps
    for step in steps:
        assert step["n"] == pytest.approx(items * step.get("steps", 1), abs=1e-3)


def test_a_cold_compilation_takes_longer_than_a_warm_one(place: Place) -> None:
    if place.benches["compile-time"]["outcome"] == "skipped":
        pytest.skip("there is no C++ compiler on this machine")
    times = {metric["case"]: metric["value"] for metric in place.named("compile-time", "compile_time")}
    assert times["cold"] > times["warm"]


def test_products_of_eight_bits_are_measured_beside_the_others(place: Place) -> None:
    cases = {metric["case"]: metric for metric in place.recorded("flops", "tflops")}
    assert cases.keys() >= {"fp64", "fp32", "bf16", "int8"}
    for case, metric in cases.items():
        n, count = metric["params"]["n"], metric["products"]
        assert metric["value"] == pytest.approx(count * 2 * n**3 / metric["seconds"] / 1e12)
        assert metric["units"] == ("Top/s" if case == "int8" else "Tflop/s")


def test_a_slow_link_is_found_and_named_and_fails_where_that_is_wanted(place: Place) -> None:
    slow = str(ROOT / "tests" / "programs" / "slow_link.py")
    done = place.program(slow, "1-3", "0.05", "--bytes", "64K", "--seconds", "0.2", "--fail", ranks=4)
    assert done.returncode != 0
    assert "bad link: ranks 1-3 " in done.stderr


@pytest.mark.parametrize(
    ("name", "arguments", "line"),
    [
        ("collectives.py", (), "a collective needs 2 ranks, and here is 1"),
        ("links.py", (), "a link needs 2 ranks, and here is 1"),
        ("memory.py", ("--where", "copies"), "memory: --where copies needs an accelerator"),
        ("checkpoint.py", ("--shape", "405b"), "bytes are to be written"),
        ("data_loading.py", ("--crop", "300"), "--crop 300: it must be between 1 and --side 256"),
        ("burn.py", ("--size", "999"), "--size 999: operations are recorded in 1e9"),
        ("collectives.py", ("--operations", "all_sum"), "unknown operation 'all_sum'"),
    ],
)
def test_what_cannot_run_here_is_one_line(place: Place, name: str, arguments: tuple[str, ...], line: str) -> None:
    done = place.program(str(PROGRAMS / name), *arguments, CUDA_VISIBLE_DEVICES="")
    assert done.returncode in (1, 2)
    assert line in done.stderr and "Traceback" not in done.stderr


def test_a_file_that_changed_after_it_was_prepared_is_found(place: Place, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    samples = {"files": 8, "bytes": 4096, "format": "raw"}
    config.write_text(json.dumps({"options": {"program": "sample_reads", "samples": samples}}))
    env = {"MILABENCH_BENCH_CONFIG": str(config), "MILABENCH_DIR_DATA": str(tmp_path)}
    assert place.program(str(PROGRAMS / "prepare.py"), **env).returncode == 0
    reads = (str(PROGRAMS / "sample_reads.py"), "--batch-size", "1", "--workers", "0", "--epochs", "1")
    assert place.program(*reads, **env).returncode == 0
    changed = next((tmp_path / "samples-8x4096-raw").rglob("0000003.raw"))
    changed.write_bytes(bytes(4096))
    done = place.program(*reads, **env)
    assert done.returncode == 1
    assert f"{changed} does not hold what it was made from" in done.stderr


def test_a_bit_that_is_stuck_in_every_product_fails_the_run_and_is_named(place: Place, tmp_path: Path) -> None:
    for folder in (PROGRAMS, PROGRAMS.parent / "_environments"):
        shutil.copytree(folder, tmp_path / folder.name)
    program = tmp_path / "machine" / "burn.py"
    faulty = f"""import sys
sys.path.insert(0, {str(ROOT)!r})
import torch
from tests.truth.faulty_device import spoiled, stuck
torch.matmul = spoiled(torch.matmul, stuck, -1)
"""
    future = "from __future__ import annotations\n"
    program.write_text(program.read_text().replace(future, future + faulty))
    suite = tmp_path / "faulty.yaml"
    suite.write_text(f"include: {ROOT}/{SUITE}\nburn: {{definition: {tmp_path}/machine}}\n")
    options = ("--select", "burn", "--size", "tiny", "--profile", "quick", "--repeat", "1", "--run-name", "faulty")
    said = place.milabench("run", "--config", str(suite), *options)
    assert said.code == 1, said.err
    [bench] = json.loads(place.milabench("report", "faulty", "--json").out)["benchmarks"]
    [failure] = bench["failures"]
    assert failure["why"] == "wrong"
    assert "the processor of " in failure["detail"] and "bit 52 (exponent)" in failure["detail"], failure


def test_what_one_rank_of_a_collective_got_wrong_is_named(place: Place) -> None:
    faulty = str(ROOT / "tests" / "truth" / "faulty_device.py")
    words = (str(PROGRAMS / "collectives.py"), "--operations", "all_gather", "--largest", "1K", "--seconds", "0.1")
    done = place.program(faulty, "exchange=1", *words, ranks=RANKS, PYTHONPATH=str(ROOT))
    assert done.returncode != 0
    assert "rows are the ranks that sent is wrong at 1 of 2 ranks: rank 1 on the processor of" in done.stderr
