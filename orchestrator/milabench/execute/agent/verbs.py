"""The verbs of the agent's command line."""

from __future__ import annotations

import argparse
import json
import sys
from typing import NoReturn

GRACE_S = 5.0


def main() -> NoReturn:
    """One verb, one exit code."""
    parser = argparse.ArgumentParser(prog="agent", description="supervises commands on one node")
    verbs = parser.add_subparsers(dest="verb", required=True)
    serve = verbs.add_parser("serve", help="requests on stdin, frames on stdout")
    serve.add_argument("--run-id", required=True)
    serve.add_argument("--grace", type=float, default=GRACE_S, help="seconds from TERM to KILL")
    serve.add_argument("--locks", help="folder of the device locks")
    serve.add_argument(
        "--lease", type=float, help="leave after so many seconds in which nothing was heard; leave a guard"
    )
    ask = verbs.add_parser("facts", help="what this machine is, as JSON")
    ask.add_argument("--disk", action="append", default=[])
    clean = verbs.add_parser("sweep", help="end what a run left behind")
    clean.add_argument("markers", nargs="+")
    clean.add_argument("--grace", type=float, default=GRACE_S)
    look = verbs.add_parser("left", help="what a sweep would end")
    look.add_argument("markers", nargs="+")
    verbs.add_parser("files", help="requests about files on stdin")
    link = verbs.add_parser("link", help="one end of a connection that is measured")
    link.add_argument("--to", nargs=2, metavar=("HOST", "PORT"), help="the near end; without it, the far one")
    link.add_argument("--seconds", type=float, default=0.3)
    lock = verbs.add_parser("flock", help="wait for inherited lock descriptors")
    lock.add_argument("descriptors", nargs="+", type=int)
    arguments = parser.parse_args()
    if arguments.verb == "serve":
        from .supervisor import Agent

        sys.exit(Agent(arguments.run_id, arguments.grace, arguments.locks, arguments.lease).serve())
    if arguments.verb == "files":
        from .file_server import FileServer

        sys.exit(FileServer(sys.stdin.buffer, 1).serve())
    if arguments.verb == "flock":
        from .device_locks import wait_for_locks

        sys.exit(wait_for_locks(arguments.descriptors))
    if arguments.verb == "facts":
        from .host_facts import facts

        answer = facts(arguments.disk)
    elif arguments.verb == "left":
        from .orphans import list_orphans

        answer = list_orphans(arguments.markers)
    elif arguments.verb == "link":
        from .netprobe import measure_as_connector, measure_as_listener
        from .protocol import format_oserror

        try:
            to = arguments.to
            answer = measure_as_connector(to[0], int(to[1]), arguments.seconds) if to else measure_as_listener(20.0)
        except OSError as error:
            answer = {"error": format_oserror(error)}
    else:
        from .orphans import sweep

        answer = sweep(arguments.markers, arguments.grace)
    print(json.dumps(answer))
    sys.exit(0)
