"""Benchmarks of programs that a site has: what their documented output gives, and what is said where they are missing.

The programs print what their documentation shows; the numbers expected are read off those lines by hand.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Said, milabench_in

SUITE = "config/suite/machine.yaml"
SITE = "nccl-tests,stream,hpl,hpcg,osu-bandwidth,osu-latency"

ALL_REDUCE = """\
# nThread 1 nGpus 8 minBytes 8388608 maxBytes 8589934592 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     8388608       2097152     float     sum      -1    120.1   69.85  122.23      0    119.8   70.02  122.54      0
  8589934592    2147483648     float     sum      -1  31544.0  272.32  476.55      0  31530.1  272.44  476.76      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 299.52
#
"""
STREAM = """\
-------------------------------------------------------------
Function    Best Rate MB/s  Avg time     Min time     Max time
Copy:          201345.6     0.012812     0.012715     0.013019
Scale:         198765.4     0.012998     0.012880     0.013101
Add:           210987.6     0.018322     0.018201     0.018455
Triad:         211234.5     0.018301     0.018180     0.018422
-------------------------------------------------------------
Solution Validates: avg error less than 1.000000e-13 on all three arrays
-------------------------------------------------------------
"""
HPL = """\
================================================================================
T/V                N    NB     P     Q               Time                 Gflops
--------------------------------------------------------------------------------
WR11C2R4       20000   192     2     4              30.12             1.7712e+02
HPL_pdgesv() start time Sun Nov 22 12:00:00 2026
--------------------------------------------------------------------------------
||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)=   3.41029382e-03 ...... PASSED
================================================================================
"""
HPCG = """\
Final Summary::HPCG result is VALID with a GFLOP/s rating of=12.3456
Final Summary::HPCG 2.4 rating for historical reasons is=12.5
"""
OSU_BANDWIDTH = """\
# OSU MPI Bandwidth Test v7.3
# Size      Bandwidth (MB/s)
# Datatype: MPI_CHAR.
4194304             24567.89
"""
OSU_LATENCY = """\
# OSU MPI Latency Test v7.3
# Size          Latency (us)
8                       1.23
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder for programs of the site, with an mpirun that runs what it is given once."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program(folder, "mpirun", 'shift 2; exec "$@"')
    return folder


def program(folder: Path, name: str, body: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def prints(folder: Path, name: str, text: str) -> None:
    (folder / f"{name}.txt").write_text(text)
    program(folder, name, f'cat "{folder}/{name}.txt"')


def run(site: Path, tmp_path: Path, select: str, **more: str) -> tuple[Said, Callable[..., Said]]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("MILABENCH_")}
    path = {"PATH": f"{site}:{kept['PATH']}", "MILABENCH_BASE": str(tmp_path / "base")}
    milabench = milabench_in({**kept, **path, "MILABENCH_LOCK_DIR": str(tmp_path / "locks"), **more})
    # The machine of a test has no accelerator, and the program that measures them is a shell script here.
    everywhere = ("--override", "nccl-tests.requires_capabilities=[]")
    chosen = ("--config", SUITE, "--size", "tiny", "--select", select, *everywhere)
    return milabench("run", *chosen, "--profile", "quick", "--repeat", "1"), milabench


def numbers(milabench: Callable[..., Said]) -> Mapping[str, Mapping[str, Any]]:
    benches = json.loads(milabench("report", "--json").out)["benchmarks"]
    return {bench["bench"]: bench for bench in benches}


def values(bench: Mapping[str, Any]) -> dict[str, tuple[float, str]]:
    return {metric["metric"]: (metric["value"], metric["units"]) for metric in bench["metrics"]}


def test_the_numbers_of_the_sites_programs_are_those_that_they_print(site: Path, tmp_path: Path) -> None:
    outputs = {
        "all_reduce_perf": ALL_REDUCE,
        "stream_c": STREAM,
        "xhpl": HPL,
        "osu_bw": OSU_BANDWIDTH,
        "osu_latency": OSU_LATENCY,
    }
    for name, text in outputs.items():
        prints(site, name, text)
    # It prints nothing of interest and writes its result into a file where it is started.
    (site / "result").write_text(HPCG)
    program(site, "xhpcg", f'cp "{site}/result" HPCG-Benchmark_3.1_2026-11-22.txt')
    (tmp_path / "HPL.dat").write_text("HPLinpack benchmark input file\n")
    said, milabench = run(site, tmp_path, SITE, HPL_DAT=str(tmp_path / "HPL.dat"))
    assert said.code == 0, said.err
    found = {name: values(bench) for name, bench in numbers(milabench).items()}
    assert found["nccl-tests"]["bus_bandwidth"] == (299.52, "GB/s")
    assert found["nccl-tests"]["out_of_bounds_values"][0] == 0
    assert {name: found["stream"][name] for name in ("copy", "scale", "add", "triad")} == {
        "copy": (201345.6, "MB/s"),
        "scale": (198765.4, "MB/s"),
        "add": (210987.6, "MB/s"),
        "triad": (211234.5, "MB/s"),
    }
    assert found["hpl"]["gflops"] == (177.12, "Gflop/s")
    assert found["hpl"]["residual"][0] == 3.41029382e-03
    assert found["hpcg"]["gflops"] == (12.3456, "Gflop/s")
    assert found["osu-bandwidth"]["bandwidth"] == (24567.89, "MB/s")
    assert found["osu-latency"]["latency"] == (1.23, "us")


@pytest.mark.parametrize(
    ("bench", "name", "output"),
    [
        ("nccl-tests", "all_reduce_perf", ALL_REDUCE.replace("values : 0 OK", "values : 3 FAILED")),
        ("stream", "stream_c", STREAM.replace("Solution Validates", "Failed Validation")),
        ("hpl", "xhpl", HPL.replace("...... PASSED", "...... FAILED")),
    ],
)
def test_a_result_that_the_program_itself_calls_wrong_is_no_number(
    site: Path, tmp_path: Path, bench: str, name: str, output: str
) -> None:
    prints(site, name, output)
    (tmp_path / "HPL.dat").touch()
    said, milabench = run(site, tmp_path, bench, HPL_DAT=str(tmp_path / "HPL.dat"))
    assert said.code == 1
    (failure,) = numbers(milabench)[bench]["failures"]
    assert failure["why"] == "no-data"


def test_programs_that_the_site_lacks_are_named_and_the_others_run(site: Path, tmp_path: Path) -> None:
    prints(site, "osu_latency", OSU_LATENCY)
    said, milabench = run(site, tmp_path, SITE)
    assert said.code == 0, said.err
    shown = milabench("report").out
    for bench, name in {"nccl-tests": "all_reduce_perf", "stream": "stream_c", "osu-bandwidth": "osu_bw"}.items():
        assert f"{bench}: requires the program {name}, which is not on the PATH" in shown
    assert values(numbers(milabench)["osu-latency"])["latency"] == (1.23, "us")
