"""Watches a server during a point: its own metrics, once a second, and whether it is there at all."""

from __future__ import annotations

import contextlib
import http.client
import re
import signal
import socket
import statistics
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

PERIOD_S = 1.0
ANSWER_S = 5.0
"""The whole of an answer has to come within this time, and within MOST_BYTES."""
MOST_BYTES = 4 << 20

SERVER_METRICS: Mapping[str, str] = {
    "vllm:kv_cache_usage_perc": "kv_cache",
    "vllm:gpu_cache_usage_perc": "kv_cache",
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "waiting",
    "sglang:token_usage": "kv_cache",
    "sglang:num_running_reqs": "running",
    "sglang:num_queue_reqs": "waiting",
    "tgi_batch_current_size": "running",
    "tgi_queue_size": "waiting",
    "llamacpp:kv_cache_usage_ratio": "kv_cache",
    "llamacpp:requests_processing": "running",
    "llamacpp:requests_deferred": "waiting",
}
"""A server's name of a reading in its metrics -> our name. `kv_cache` is a share, the others are numbers of requests."""
_SAMPLE = re.compile(
    r"([a-zA-Z_:][\w:]*)(?:\{.*\})? ([-+]?(?:\d{1,30}\.?\d{0,30}|\.\d{1,30})(?:[eE][-+]?\d{1,2})?)(?!\S)"
)
_REFUSED = re.compile(r"refused|cannot connect|connect call failed", re.IGNORECASE)


@dataclass
class ServerWatch:
    """Use as a context manager around a point. `is_gone` is whether a connection was refused.

    `readings` are unix time and values of each sample.
    """

    url: str
    readings: list[tuple[float, dict[str, float]]] = field(default_factory=list)
    is_gone: bool = False

    def __enter__(self) -> ServerWatch:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join(PERIOD_S)

    def averages(self, start: float, stop: float) -> dict[str, float]:
        """Return the mean of each reading between two unix times: a client may take long before and after its requests."""
        found: dict[str, list[float]] = {}
        for at, values in self.readings:
            if start <= at <= stop:
                for name, value in values.items():
                    found.setdefault(name, []).append(value)
        return {name: statistics.fmean(values) for name, values in found.items()}

    def _watch(self) -> None:
        # Signals are the main thread's, whose wait they have to end.
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGALRM))
        has_metrics = True
        # Half a period later than the load: what is read first is not the idle server.
        wait_s = PERIOD_S / 2
        while not self._ended.wait(wait_s):
            wait_s = PERIOD_S
            if not has_metrics:
                self.is_gone = self.is_gone or is_refused(self.url)
                continue
            at = time.time()
            try:
                status, text = get(self.url, "/metrics")
            except ConnectionRefusedError:
                self.is_gone = True
            except ValueError as error:
                has_metrics = False
                print(f"{error}: the metrics of the server are not read", file=sys.stderr, flush=True)
            except (OSError, http.client.HTTPException):
                pass  # slow, or in the midst of its end: the next look says
            else:
                has_metrics = status == 200
                if has_metrics:
                    self.readings.append((at, parse_metrics(text)))


def parse_metrics(text: str) -> dict[str, float]:
    """Return the readings that are known of a page in Prometheus' text format. Of several engines shares are averaged."""
    values: dict[str, list[float]] = {}
    for line in text.splitlines():
        sample = _SAMPLE.match(line)
        if sample is not None and sample[1] in SERVER_METRICS:
            values.setdefault(SERVER_METRICS[sample[1]], []).append(float(sample[2]))
    return {name: statistics.fmean(found) if name == "kv_cache" else sum(found) for name, found in values.items()}


def get(url: str, path: str) -> tuple[int, str]:
    """Return the status and text of an answer. Raises OSError, HTTPException, ValueError for an answer that is too long."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    with contextlib.closing(kind(parts.hostname or "", parts.port, timeout=ANSWER_S)) as connection:
        connection.connect()
        deadline = time.monotonic() + ANSWER_S
        # The timeout of its socket limits each read only, and an answer may come byte by byte.
        limit = threading.Timer(ANSWER_S, connection.sock.shutdown, [socket.SHUT_RDWR])
        limit.daemon = True
        limit.start()
        try:
            connection.request("GET", parts.path.rstrip("/") + path)
            response = connection.getresponse()
            body = response.read(MOST_BYTES + 1)
        finally:
            limit.cancel()
            if time.monotonic() >= deadline:
                raise TimeoutError(f"no whole answer within {ANSWER_S:g} s")
    if len(body) > MOST_BYTES:
        raise ValueError(f"{path}: an answer of more than {MOST_BYTES >> 20} MiB")
    return response.status, body.decode("utf-8", "replace")


def is_refused(url: str) -> bool:
    """Return whether nothing listens any more where a server did."""
    parts = urlsplit(url)
    try:
        socket.create_connection(
            (parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)), ANSWER_S
        ).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False  # slow is not gone
    return False


def says_refused(error: str) -> bool:
    """Return whether the error of a request means that nothing listened."""
    return _REFUSED.search(error) is not None


def wait_until_ready(url: str, path: str, timeout_s: float) -> bool:
    """Return whether a server answers again in time: with 200 where it has a path for that, else at all."""
    deadline = time.monotonic() + timeout_s
    while not (is_ready := _is_ready(url, path)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return is_ready


def _is_ready(url: str, path: str) -> bool:
    with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
        return get(url, path or "/v1/models")[0] == 200 or not path
    return False
