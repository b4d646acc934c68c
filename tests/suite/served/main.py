"""Answers each completion with as many tokens as it is asked for; ends at the request whose number is given.

With a key as third argument it refuses every request, and repeats the key.
"""

import http.server
import json
import os
import sys


class Handler(http.server.BaseHTTPRequestHandler):
    """Loads its model while it is asked for its health for the first time."""

    looked = 0
    answered = 0

    def do_GET(self) -> None:
        Handler.looked += 1
        self.send_response(503 if Handler.looked == 1 else 200 if self.path == "/health" else 404)
        self.end_headers()

    def do_POST(self) -> None:
        Handler.answered += 1
        if Handler.answered == int(sys.argv[2]):
            os._exit(0)
        tokens = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["max_tokens"]
        if sys.argv[3:]:
            self.send_error(401, f"not the key {sys.argv[-1]}")
            return
        self.send_response(200)
        self.end_headers()
        for _ in range(tokens):
            self.wfile.write(b'data: {"choices": [{"text": "a"}]}\n\n')
        usage = {"completion_tokens": tokens, "prompt_tokens": 1}
        self.wfile.write(b"data: %s\n\ndata: [DONE]\n\n" % json.dumps({"choices": [], "usage": usage}).encode())

    def log_message(self, *_: object) -> None:
        """Says nothing."""


http.server.ThreadingHTTPServer((os.environ.get("HOST", "127.0.0.1"), int(sys.argv[1])), Handler).serve_forever()
