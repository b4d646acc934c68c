"""Speaks the protocol of the sink; what to say is a list of words, done in order.

say JSON | records COUNT BYTES | children COUNT COUNT BYTES | ring SPEC | await | die SIGNAL | exit CODE | sleep SECONDS | word OFFSET | print TEXT | mark PATH
"""

import json, os, signal, socket, struct, subprocess, sys, time

HEADER, SLOT = 4096, 64


def connect():
    sink = socket.socket(socket.AF_UNIX)
    sink.connect(
        os.environ["MILABENCH_SINK"].removeprefix("unix:")
        if hasattr(str, "removeprefix")
        else os.environ["MILABENCH_SINK"][5:]
    )
    hello = {
        "pid": os.getpid(),
        "role": "rank",
        "rank": 0,
        "local_rank": 0,
        "world_size": int(os.environ.get("WORLD_SIZE", "1")),
    }
    sink.sendall(json.dumps({"hello": hello}).encode() + b"\n")
    return sink


def ring(spec):
    """{"entries": [[8 ints]...], "capacity", "meta", "head", "closed", "lost", "announce"}"""
    path = os.path.join(os.path.dirname(os.environ["MILABENCH_SINK"][5:]), spec.get("name", "x.ring"))
    capacity = spec.get("capacity", 64)
    meta = json.dumps(
        spec.get("meta", {"task": "train", "units": "items/s", "rank": 0, "clock": "host", "kind": "rate"})
    ).encode()
    entries = spec["entries"]
    header = bytearray(HEADER)
    header[:8] = b"MBRING01"
    struct.pack_into(
        "<11q",
        header,
        8,
        capacity,
        spec.get("head", len(entries)),
        0,
        spec.get("lost", 0),
        spec.get("closed", 0),
        0,
        spec.get("wanted", 0),
        0,
        0,
        spec.get("observed", 0),
        len(meta),
    )
    header[512 : 512 + len(meta)] = meta
    with open(path, "wb") as file:
        file.write(header)
        file.write(b"".join(struct.pack("<8q", *entry) for entry in entries).ljust(capacity * SLOT, b"\0"))
    return path


def main(words):
    sink = None if words[:1] == ["silent"] else connect()
    while words:
        word = words.pop(0)
        if word == "say":
            sink.sendall(words.pop(0).encode() + b"\n")
        elif word == "records":
            count, size = int(words.pop(0)), int(words.pop(0))
            for number in range(count):
                data = {"pid": os.getpid(), "number": number, "text": "x" * size}
                sink.sendall(json.dumps({"event": "data", "data": data, "pipe": "data"}).encode() + b"\n")
        elif word == "children":
            children = int(words.pop(0))
            rest = ["records", words.pop(0), words.pop(0)]
            running = [subprocess.Popen([sys.executable, "-S", __file__, *rest]) for _ in range(children)]
            assert [child.wait() for child in running] == [0] * children
        elif word == "ring":
            spec = json.loads(words.pop(0))
            path = ring(spec)
            if spec.get("announce", True):
                sink.sendall(json.dumps({"ring": {"path": path}}).encode() + b"\n")
        elif word == "await":
            print(sink.makefile().readline(), end="", flush=True)
        elif word == "word":
            with open(path, "rb") as file:
                file.seek(int(words.pop(0)))
                print(struct.unpack("<q", file.read(8))[0], flush=True)
        elif word == "die":
            os.kill(os.getpid(), getattr(signal, "SIG" + words.pop(0)))
        elif word == "exit":
            os._exit(int(words.pop(0)))
        elif word == "sleep":
            time.sleep(float(words.pop(0)))
        elif word == "print":
            print(words.pop(0), flush=True)
        elif word == "mark":
            open(words.pop(0), "w").close()


main(sys.argv[1:])
