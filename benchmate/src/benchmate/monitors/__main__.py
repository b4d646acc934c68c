"""`python -m benchmate.monitors`: watch the steps that standard input describes until they end."""

from __future__ import annotations

import argparse
import os
import sys

from benchmate.devices.detect import open_vendor
from benchmate.monitors.monitor import HOST_S, Monitor
from benchmate.monitors.watched_steps import parse_steps


def main(argv: list[str]) -> int:
    """Watch the steps. Return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmate.monitors",
        description="Sample devices and host while a group of steps runs, which standard input describes as JSON: "
        '{"steps": [{"step", "sink": "unix:PATH", "pid", "devices": [...], "uuids": [...], "container": BOOL}]}.',
    )
    parser.add_argument("--arch", default="auto", help="cuda, rocm, xpu, hpu, cpu, or auto (the first that answers)")
    parser.add_argument("--simulated", default="", metavar="FILE", help="scripted devices instead of real ones")
    parser.add_argument("--packages", action="store_true", help="record the packages of this environment")
    parser.add_argument(
        "--host-period", type=float, default=HOST_S, metavar="SECONDS", help="between two samples of processes and host"
    )
    options = parser.parse_args(argv)
    try:
        steps = parse_steps(sys.stdin.read())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        print(f"benchmate.monitors: standard input does not describe steps: {error}", file=sys.stderr)
        return 2
    vendor, trouble = open_vendor(options.arch, os.environ, options.simulated)
    monitor = Monitor(steps, vendor, trouble, options.host_period)
    if options.packages:
        monitor.record_packages()
    try:
        monitor.run()
    finally:
        vendor.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
