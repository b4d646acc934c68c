"""A measured loop without anything in it: writes so many observations a second, for so many seconds, into a ring.

As the loops of benchmate do: the first is written out, each of the others continues the one before it.
"""

import json, mmap, os, socket, struct, sys, time

RATE, SECONDS, CAPACITY = float(sys.argv[1]), float(sys.argv[2]), 32768
sink = socket.socket(socket.AF_UNIX)
path = os.environ["MILABENCH_SINK"][5:]
sink.connect(path)
ring = os.path.join(os.path.dirname(path), "steps.ring")
meta = json.dumps({"task": "train", "units": "items/s", "rank": 0, "clock": "host", "kind": "rate"}).encode()
with open(ring, "w+b") as file:
    file.truncate(4096 + 64 * CAPACITY)
    memory = mmap.mmap(file.fileno(), 0)
struct.pack_into("<11q", memory, 8, CAPACITY, 0, 0, 0, 0, time.time_ns() - time.monotonic_ns(), 0, 0, 0, 0, len(meta))
memory[512 : 512 + len(meta)] = meta
memory[:8] = b"MBRING02"
sink.sendall(
    json.dumps({"hello": {"pid": os.getpid(), "role": "rank", "rank": 0, "local_rank": 0, "world_size": 1}}).encode()
    + b"\n"
)
sink.sendall(json.dumps({"ring": {"path": ring}}).encode() + b"\n")
start = time.monotonic()
began = ended = time.monotonic_ns()
for number in range(int(RATE * SECONDS)):
    ended = max(ended + 1000, time.monotonic_ns())
    entry = (
        (0, began, ended - began, 32, -1, 1, 0, 1000) if number == 0 else (-1, -1, ended, 32, -1, 1, 0, began + 1000)
    )
    struct.pack_into("<8q", memory, 4096 + number % CAPACITY * 64, *entry)
    struct.pack_into("<q", memory, 16, number + 1)
    began = ended
    if number % 10 == 9:
        time.sleep(max(0.0, start + number / RATE - time.monotonic()))
struct.pack_into("<q", memory, 40, 1)
