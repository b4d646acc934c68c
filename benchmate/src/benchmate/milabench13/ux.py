"""A line now and then while something takes long."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator


@contextlib.contextmanager
def long_action(msg: str, interval: float = 1) -> Iterator[None]:
    """Print `msg` and the seconds so far every `interval` seconds until the `with` ends, however it ends."""
    is_over = threading.Event()

    def report() -> None:
        began = time.monotonic()
        while not is_over.wait(interval):
            print(f"{msg} ({time.monotonic() - began:.0f} s)", flush=True)

    thread = threading.Thread(target=report, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
