"""Measures the connection between two machines."""

from __future__ import annotations

import contextlib
import json
import socket
import time

ECHOES = 20


def measure_as_listener(seconds: float) -> dict[str, float]:
    """Be the far end of a measured connection: print the port, answer a byte with a byte, then receive data."""
    with socket.create_server(("", 0)) as listener:
        listener.settimeout(seconds)
        print(json.dumps({"port": listener.getsockname()[1]}), flush=True)
        try:
            connection, _ = listener.accept()
        except OSError:
            return {"taken": 0}
        with connection:
            connection.settimeout(seconds)
            # Else the kernel holds a byte back until the one before is acknowledged (Nagle), and that is what is timed.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            taken, echoes = 0, 0
            with contextlib.suppress(OSError):
                for data in iter(lambda: connection.recv(1 << 20), b""):
                    taken += len(data)
                    if echoes < ECHOES:
                        connection.sendall(data)
                        echoes += len(data)
            return {"taken": taken}


def measure_as_connector(host: str, port: int, seconds: float) -> dict[str, float]:
    """Be the near end: return the minimum of a few round trips in seconds, and bytes per second in a single direction."""
    with socket.create_connection((host, port), timeout=5.0) as connection:
        connection.settimeout(10.0)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        trips = []
        for _ in range(ECHOES):
            began = time.monotonic()
            connection.sendall(b"x")
            connection.recv(1)
            trips.append(time.monotonic() - began)
        block, sent, began = bytes(1 << 20), 0, time.monotonic()
        while time.monotonic() - began < seconds:
            connection.sendall(block)
            sent += len(block)
        took = time.monotonic() - began
        return {"round_trip_s": round(min(trips), 7), "bytes_per_s": round(sent / took)}
