"""The clients that a sweep can use: a module each, whose `CLIENT` has two functions.

A module imports its client only inside these functions: missing packages of a benchmark's environment are reported in a
clear line there.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmate.errors import BenchmateError
from benchmate.serving.load import LoadPoint, PointResult, Target, Workload
from benchmate.supervisor import ProcessExit, spawn, supervise

CLIENTS = ("vllm", "aiperf", "loadgen", "plain")
"""The clients that a suite may name, each a module here."""


class ClientFailed(BenchmateError):
    """A client that could not measure a point, or is not installed. The text is a single line."""


@dataclass(frozen=True)
class Client:
    """A client: `version` returns its version, and raises ClientFailed if it is not installed.

    `measure` sends the workload and returns the results. Its files go to the empty folder. It raises ClientFailed. The server has
    been warmed up. A failed request is a result with an error.
    """

    version: Callable[[], str]
    measure: Callable[[Target, LoadPoint, Workload, Path], PointResult]


def installed_version(name: str) -> str:
    """Return the version of a client's distribution. Raises ClientFailed where it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        raise ClientFailed(f"{name} is not installed in the benchmark's environment") from None


def load_client(name: str) -> Client:
    """Return a client. Raises ClientFailed for an unknown client."""
    if name not in CLIENTS:
        raise ClientFailed(f"unknown client {name!r}. Known: {', '.join(CLIENTS)}")
    client = importlib.import_module(f"{__name__}.{name}").CLIENT
    assert isinstance(client, Client)
    return client


def run_client(argv: Sequence[str], output: Path, env: Mapping[str, str] = os.environ) -> ProcessExit:
    """Run a client that is a program of its own to its end, its output into a file. Raises ClientFailed.

    Whatever interrupts this (Ctrl-C, TERM) ends the program and all that it has started.
    """
    with output.open("ab", buffering=0) as file:
        try:
            return supervise(lambda _, shown: spawn(argv, output=shown, env=env), file.write)
        except OSError as error:
            raise ClientFailed(f"{argv[0]}: {error.strerror or error}") from None
