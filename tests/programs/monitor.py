"""Watches as the real monitor does, but deterministically: tells each step one sample, then waits until it is told to stop.

`die`: fails at once. `deaf`: goes on after it was told. `chatty`: tells a sample ten times a second.
"""

import json, os, select, socket, sys, time

mode = sys.argv[1] if len(sys.argv) > 1 else ""
steps = json.load(sys.stdin)["steps"]
if mode == "die":
    sys.exit("no library")
sinks = {}
for about in steps:
    sink = socket.socket(socket.AF_UNIX)
    sink.connect(about["sink"][5:])
    sink.sendall(json.dumps({"hello": {"pid": os.getpid(), "role": "monitor"}}).encode() + b"\n")
    sinks[sink] = about


def tell(sink, data):
    try:
        sink.sendall(json.dumps({"event": "data", "data": data, "pipe": "data"}).encode() + b"\n")
    except OSError:
        pass


for sink, about in sinks.items():
    tell(sink, {"metric": "watched", "value": len(steps), "devices": about["devices"], "pid": about["pid"]})
    tell(sink, {"monitor_pid": os.getpid()})
while sinks:
    for sink in select.select(list(sinks), [], [], 0.1)[0] if mode != "deaf" else (time.sleep(0.1), [])[1]:
        tell(sink, {"last": True})
        sink.close()
        del sinks[sink]
    if mode == "chatty":
        for sink in sinks:
            tell(sink, {"gpudata": {}})
