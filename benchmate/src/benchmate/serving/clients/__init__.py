"""The clients that a sweep can use: one module each, with the same two functions.

A module imports its client only inside these functions: what a benchmark's environment does not have is one clear line there.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol, cast

from benchmate.errors import BenchmateError
from benchmate.serving.load import LoadPoint, PointResult, Target, Workload
from benchmate.supervisor import ProcessExit, spawn, supervise

CLIENTS: Mapping[str, str] = {
    "vllm": "benchmate.serving.clients.vllm",
    "aiperf": "benchmate.serving.clients.aiperf",
    "loadgen": "benchmate.serving.clients.loadgen",
    "plain": "benchmate.serving.clients.plain",
}
"""The name of a client in a suite -> its module."""


class ClientFailed(BenchmateError):
    """A client that could not measure a point, or is not installed; the text is one line."""


class Client(Protocol):
    """What the module of a client has."""

    def version(self) -> str:
        """Return the version of the client. Raises ClientFailed where it is not installed."""

    def measure(self, target: Target, point: LoadPoint, workload: Workload, folder: Path) -> PointResult:
        """Send the workload and return what was seen; `folder` is an empty one for its files. Raises ClientFailed.

        The server has been warmed up. Requests that fail are results with an error, and no reason to raise.
        """


def load_client(name: str) -> Client:
    """Return the module of a client. Raises ClientFailed."""
    if name not in CLIENTS:
        raise ClientFailed(f"unknown client {name!r}; known: {', '.join(CLIENTS)}")
    return cast("Client", importlib.import_module(CLIENTS[name]))


def run_client(argv: Sequence[str], output: Path, env: Mapping[str, str] = os.environ) -> ProcessExit:
    """Run a client that is a program of its own to its end, its output into a file. Raises ClientFailed.

    Whatever interrupts this (Ctrl-C, TERM) ends the program and all that it has started.
    """
    with output.open("ab", buffering=0) as file:
        try:
            return supervise(lambda _, shown: spawn(argv, output=shown, env=env), file.write)
        except OSError as error:
            raise ClientFailed(f"{argv[0]}: {error.strerror or error}") from None
