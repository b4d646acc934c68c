"""A server in a thread that answers each POST with the pieces that a test gives it, and closes the connection."""

from __future__ import annotations

import itertools
import json
import re
import socketserver
import threading
import time
from collections.abc import Sequence
from typing import Any

OK = b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
DONE = b"data: [DONE]\n\n"
Piece = bytes | float


class OddServer(socketserver.ThreadingTCPServer):
    """Use as a context manager; a piece that is a number is so many seconds of waiting.

    Those of `endless` follow the others again and again until the client closes. GET has answers only with `is_read`.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, pieces: Sequence[Piece], endless: Sequence[Piece] = (), *, is_read: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.pieces, self.endless, self.is_read = pieces, endless, is_read
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self) -> OddServer:
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.shutdown()
        self.server_close()


class _Answers(socketserver.StreamRequestHandler):
    server: OddServer

    def handle(self) -> None:
        head = b""
        while line := self.rfile.readline().strip():
            head += line + b"\n"
        length = re.search(rb"(?i)content-length: *(\d+)", head)
        self.rfile.read(int(length[1]) if length else 0)
        if not head.startswith(b"POST") and not self.server.is_read:
            return
        try:
            for piece in itertools.chain(self.server.pieces, itertools.cycle(self.server.endless)):
                if isinstance(piece, float):
                    time.sleep(piece)
                else:
                    self.wfile.write(piece)
        except OSError:
            pass  # the client has given up


def event(text: str | None = "a ", ends: str | None = None, **more: Any) -> bytes:
    """An event of a completion; without a text one that has no choice."""
    choices = [] if text is None else [{"index": 0, "text": text, "finish_reason": ends}]
    return b"data: " + json.dumps({"choices": choices, **more}).encode() + b"\n\n"


def usage(tokens: object) -> dict[str, object]:
    """The usage of an event."""
    return {"usage": {"prompt_tokens": 8, "completion_tokens": tokens}}
