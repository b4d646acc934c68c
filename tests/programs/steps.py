"""A measured loop without anything in it: writes so many observations a second, for so many seconds, into a ring."""

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
memory[:8] = b"MBRING01"
sink.sendall(
    json.dumps({"hello": {"pid": os.getpid(), "role": "rank", "rank": 0, "local_rank": 0, "world_size": 1}}).encode()
    + b"\n"
)
sink.sendall(json.dumps({"ring": {"path": ring}}).encode() + b"\n")
start = time.monotonic()
for number in range(int(RATE * SECONDS)):
    now = time.monotonic_ns()
    struct.pack_into("<8q", memory, 4096 + number % CAPACITY * 64, number, now, 900_000, 32, -1, 1, 0, 1000)
    struct.pack_into("<q", memory, 16, number + 1)
    if number % 10 == 9:
        time.sleep(max(0.0, start + number / RATE - time.monotonic()))
struct.pack_into("<q", memory, 40, 1)
