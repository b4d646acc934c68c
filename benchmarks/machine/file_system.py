"""How a file system performs, by the site's fio: bandwidth, operations a second and latencies, out of fio's own JSON.

The cases are streams of large blocks and random accesses to small ones, read and write, each to files of its own, in a
folder that is removed afterwards. Direct I/O passes the machine's cache by; a file system that has none is said so by fio.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from command import end, missing, whole, wrong

import benchmate
from benchmate.session import current

CASES = {
    "stream_write": {"rw": "write", "bs": "1M"},
    "stream_read": {"rw": "read", "bs": "1M"},
    "random_write": {"rw": "randwrite", "bs": "4k"},
    "random_read": {"rw": "randread", "bs": "4k"},
}


@dataclass(frozen=True)
class Number:
    """One number of a case, in SI units."""

    name: str
    value: float
    units: str
    direction: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("files"), help="a new one, on the file system")
    parser.add_argument("--bytes", type=whole, default=64 * 2**20, help="of the file of each job")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--depth", type=int, default=16, help="requests under way, of each")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each case")
    parser.add_argument("--cached", action="store_true", help="through the machine's cache instead of direct")
    args = parser.parse_args()
    program = shutil.which("fio")
    if program is None:
        missing("file_system: the program fio is not on the PATH")
    args.folder.mkdir(parents=True)
    try:
        for case in CASES:
            for number in numbers(run([program, *options(case, args)])):
                is_main = number.name == "bandwidth"
                benchmate.metric(number.name, number.value, number.units, number.direction, case=case, main=is_main)
                print(f"{case}: {number.name} {number.value:.6g} {number.units}", flush=True)
    finally:
        shutil.rmtree(args.folder, ignore_errors=True)
    current().finish()


def options(case: str, args: argparse.Namespace) -> Iterator[str]:
    """What fio is told. Files are laid out before they are read, which is in no number."""
    yield from (f"--name={case}", "--output-format=json", f"--directory={args.folder}", "--group_reporting")
    yield from (f"--{name}={value}" for name, value in CASES[case].items())
    yield from (
        f"--size={args.bytes}",
        f"--numjobs={args.jobs}",
        f"--iodepth={args.depth}",
        f"--direct={int(not args.cached)}",
    )
    yield from ("--ioengine=libaio", "--time_based", f"--runtime={args.seconds:g}s", "--end_fsync=1", "--randrepeat=1")


def run(command: list[str]) -> Mapping[str, Any]:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        end("exit", f"file_system: fio ended with {done.returncode}: {last}")
    # It writes warnings in front of the JSON.
    result: Mapping[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    return result


def numbers(result: Mapping[str, Any]) -> Iterator[Number]:
    """The numbers of the one group of fio's result that did something."""
    (job,) = result["jobs"]
    if job["error"]:
        wrong(f"file_system: fio reports error {job['error']} in {job['jobname']}")
    for side in ("read", "write"):
        found = job[side]
        if not found["total_ios"]:
            continue
        yield Number("bandwidth", found["bw_bytes"] / 1e9, "GB/s", "higher")
        yield Number("operations", found["iops"], "operations/s", "higher")
        latency = found["clat_ns"]
        yield Number("latency", latency["mean"] / 1e9, "s", "lower")
        if "percentile" in latency:
            yield Number("latency_p99", latency["percentile"]["99.000000"] / 1e9, "s", "lower")


if __name__ == "__main__":
    main()
