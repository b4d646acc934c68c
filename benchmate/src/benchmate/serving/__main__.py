"""The client step of a benchmark with `serve`: `python -m benchmate.serving --url http://HOST:PORT [arguments of its client]`."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any

from benchmate.errors import BenchmateError
from benchmate.serving.server_watch import is_refused
from benchmate.serving.sweep import Interrupted, Sweep, plan_sweep
from benchmate.session import current

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the sweep of MILABENCH_BENCH_CONFIG.

    Return 0 when a point was measured, 1 when none was or the server ended, 2 for a configuration or client that cannot be
    used, 128 and the number of the signal that ended it.
    """
    parser = argparse.ArgumentParser(
        prog="python -m benchmate.serving",
        description="Sweep a server as `serve` of MILABENCH_BENCH_CONFIG says. Arguments after --url go to its client.",
        allow_abbrev=False,
    )
    parser.add_argument("--url", required=True, help="of the server, without a path")
    args, arguments = parser.parse_known_args(argv)
    for number in SIGNALS:
        signal.signal(number, _interrupt)
    code = 2
    try:
        session = current()
        sweep = Sweep(plan_sweep(session.config.values, args.url, arguments), session)
        _require_server(session.config.values)
        code = 1
        if sweep.run():
            return 0
        print("error: no point was measured", file=sys.stderr)
    except Interrupted as interrupted:
        print(f"error: {interrupted}", file=sys.stderr)
        return 128 + interrupted.number
    except BenchmateError as error:
        print(f"error: {error}", file=sys.stderr)
    return code


def _require_server(config: Mapping[str, Any]) -> None:
    """Raise BenchmateError where nothing listens at the address of a server that the suite did not start, only named."""
    url = (config.get("server") or {}).get("url")
    if url and is_refused(url):
        raise BenchmateError(f"{url}: nothing listens there")


def _interrupt(number: int, frame: FrameType | None) -> None:
    # What is under way is recorded; a second signal would interrupt that.
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise Interrupted(signal.Signals(number).name, number)


if __name__ == "__main__":
    sys.exit(main())
