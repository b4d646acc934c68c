"""A web server, well or in one of several ways not, and a client that measures its answers."""

import http.server
import os
import sys
import threading
import time
import urllib.request

import benchmate


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers every request; the hundredth is the last thing that a server that `dies` sees."""

    answered = 0

    def do_GET(self) -> None:
        Handler.answered += 1
        if "dies" in sys.argv and Handler.answered > 100:
            os._exit(0)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"x" * 1000)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def serve(host: str, port: int) -> None:
    """Answers until it is ended."""
    if "never" in sys.argv:
        print("cannot find the model", file=sys.stderr)
        threading.Event().wait()
    time.sleep(0.3)  # as a model is loaded: a client that does not wait would fail
    server = http.server.HTTPServer((host, port), Handler)
    print("now listening", flush=True)
    server.serve_forever()


def load(host: str, port: int) -> None:
    """Measures so many requests; proxies are for others."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for _ in benchmate.observed(range(1000), units="requests/s", batch_size=1):
        with opener.open(f"http://{host}:{port}/", timeout=30) as reply:
            assert len(reply.read()) == 1000


if __name__ == "__main__":
    {"serve": serve, "load": load}[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
