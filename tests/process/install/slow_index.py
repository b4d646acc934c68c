"""An index on the loopback that tells the sizes of its files, or does not, and holds files back until it is let go."""

from __future__ import annotations

import hashlib
import http.server
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOGIN = b'<!DOCTYPE html><html><body><h1>Please log in</h1><a href="/help">Help</a></body></html>'
JSON = "application/vnd.pypi.simple.v1+json"


class SlowIndex(http.server.ThreadingHTTPServer):
    """Serves the wheels of a folder. Of a file that is `held`, half comes at once, the rest after `go`.

    `instead` answers the question for a page or for a file ("page", "file") in its place, with a status and a web page.
    `tells`: sizes are in its pages. `gives_parts`: a part of a file can be asked for. What was asked is kept.
    """

    daemon_threads = True

    def __init__(self, wheels: Path, *, held: bool = False, tells: bool = True, gives_parts: bool = True) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.wheels, self.held, self.tells, self.gives_parts = wheels, held, tells, gives_parts
        self.instead: dict[str, int] = {}
        self.go = threading.Event()
        self.asked: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}/simple"

    def handle_error(self, *_: object) -> None:
        """Say nothing: clients leave."""

    @property
    def fetched(self) -> list[str]:
        """The files that were asked for whole."""
        return [line.removeprefix("GET ") for line in self.asked if line.startswith("GET /files/")]


class _Answer(http.server.BaseHTTPRequestHandler):
    server: SlowIndex
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        *_, kind, name = self.path.rstrip("/").split("/")
        if status := self.server.instead.get("page" if kind == "simple" else "file"):
            self.answer(LOGIN, "text/html", status=status)
            return
        span = self.headers.get("Range") if self.server.gives_parts else None
        self.server.asked.append(f"{'PART' if span else 'GET'} {self.path}")
        if kind == "simple":
            files = sorted(self.server.wheels.glob(f"{name.replace('-', '_')}-*.whl"))
            self.answer(*self.page(name, files))
        elif name.endswith(".metadata"):
            self.send_error(404)
        else:
            content = (self.server.wheels / name).read_bytes()
            if span is None:
                self.answer(content, "application/zip", is_held=self.server.held)
            else:
                first, last = re.fullmatch(r"bytes=(\d*)-(\d*)", span).groups()  # type: ignore[union-attr]
                start = int(first) if first else max(0, len(content) - int(last))
                stop = int(last) + 1 if first and last else len(content)
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{min(stop, len(content)) - 1}/{len(content)}")
                self.answer(content[start:stop], "application/zip", status=206)

    def do_HEAD(self) -> None:
        if "file" in self.server.instead:
            self.answer(b"", "text/html", status=self.server.instead["file"])
            return
        self.server.asked.append(f"HEAD {self.path}")
        self.send_response(200)
        size = (self.server.wheels / self.path.rpartition("/")[2]).stat().st_size
        self.send_header("Content-Length", str(size))
        if self.server.gives_parts:
            self.send_header("Accept-Ranges", "bytes")
        self.end_headers()

    def page(self, name: str, files: list[Path]) -> tuple[bytes, str]:
        hashes = {file: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
        if not self.server.tells:
            links = (f'<a href="/files/{file.name}#sha256={sha}">{file.name}</a>\n' for file, sha in hashes.items())
            return "".join(links).encode(), "text/html"
        listed = [
            {"filename": f.name, "url": f"/files/{f.name}", "hashes": {"sha256": sha}, "size": f.stat().st_size}
            for f, sha in hashes.items()
        ]
        page = {"meta": {"api-version": "1.1"}, "name": name, "versions": [], "files": listed}
        return json.dumps(page).encode(), JSON

    def answer(self, content: bytes, kind: str, *, is_held: bool = False, status: int = 200) -> None:
        if status != 206:  # which has begun with its range
            self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        half = len(content) // 2 if is_held else len(content)
        self.wfile.write(content[:half])
        self.wfile.flush()
        if is_held:
            self.server.go.wait()
            self.wfile.write(content[half:])


@contextmanager
def slow_index(wheels: Path, **how: bool) -> Iterator[SlowIndex]:
    """Start one, and let it go and stop it at the end."""
    server = SlowIndex(wheels, **how)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.go.set()
        server.shutdown()
        server.server_close()
        thread.join()
