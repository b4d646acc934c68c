#!/usr/bin/env python
"""A server, which this program starts, and the client that asks it: their options stand before and after `--`."""

import argparse
import http.client
import http.server
import sys
import threading
import time

from benchmate.monitor import bench_monitor
from benchmate.observer import BenchObserver


class Answers(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        time.sleep(self.server.latency)
        body = b"token " * self.server.tokens
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass


def serve(argv):
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, default=10)
    parser.add_argument("--latency", type=float, default=0.05)
    args = parser.parse_args(argv)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.tokens, server.latency = args.tokens, args.latency
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def ask(address, argv, push):
    parser = argparse.ArgumentParser()
    parser.add_argument("--num-prompts", type=int, default=100)
    args = parser.parse_args(argv)
    connection = http.client.HTTPConnection(*address)
    for _ in range(args.num_prompts):
        begin = time.perf_counter()
        connection.request("GET", "/")
        tokens = connection.getresponse().read().split()
        seconds = time.perf_counter() - begin
        push(rate=len(tokens) / seconds, units="tok/s", task="train", ttft=seconds)


def main():
    split = sys.argv.index("--")
    observer = BenchObserver(earlystop=65, batch_size_fn=lambda x: 1, raise_stop_program=False, stdout=True)
    server = serve(sys.argv[1:split])
    with bench_monitor():
        ask(server.server_address, sys.argv[split + 1 :], observer.record_metric)


if __name__ == "__main__":
    main()
