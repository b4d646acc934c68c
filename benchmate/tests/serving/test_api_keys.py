"""The key of a server that asks for one: it is in each request, and in nothing that is recorded."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator

import pytest
from sweeps import sweep

KEY = "sk-a-key-of-nobody-0123456789"


class Guarded(http.server.BaseHTTPRequestHandler):
    """Answers with a token for each that is asked for, if the key is right."""

    def do_POST(self) -> None:
        tokens = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["max_tokens"]
        is_known = self.headers["Authorization"] == f"Bearer {KEY}"
        self.send_response(200 if is_known else 401)
        self.end_headers()
        if not is_known:
            self.wfile.write(b'{"error": {"message": "Invalid API Key"}}')
            return
        for number in range(tokens):
            usage = {"completion_tokens": number + 1, "prompt_tokens": 8}
            self.wfile.write(b"data: %s\n\n" % json.dumps({"choices": [{"text": "a "}], "usage": usage}).encode())
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Guarded) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_the_key_of_the_environment_is_in_each_request_and_in_no_record(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", f"{KEY}\n")
    swept = sweep(url, {"concurrency": [2], "warmup": 2})
    assert swept.points["concurrency=2"]["state"] == "measured"
    assert [request["error"] for request in swept.requests("concurrency=2")] == [""] * 8
    assert KEY not in json.dumps(swept.records) + swept.ran.stderr


def test_without_a_key_the_server_says_so(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    swept = sweep(url, {"concurrency": [2]})
    assert swept.points["concurrency=2"]["why"] == "HTTP 401: Invalid API Key"
