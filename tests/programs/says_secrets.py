"""Says every secret that it was given, in every way in which programs do, and looks for them in everybody's arguments.

The names of its variables and the words of its command line that hold secrets are in SECRET_NAMES and behind `--say`.
"""

import base64, json, os, socket, sys, time, urllib.parse
from pathlib import Path

values = [os.environ[name] for name in os.environ["SECRET_NAMES"].split(",")] + [
    word for word in sys.argv[sys.argv.index("--say") + 1 :] if word != "--access-token"
]
plain = os.environ["MODE"]
values = [urllib.parse.unquote(urllib.parse.urlsplit(v).password) if v.startswith("https://") else v for v in values]

seen = []
for path in Path("/proc").glob("[0-9]*/cmdline"):
    try:
        command = path.read_bytes()
    except OSError:
        continue
    # The command of a step has the secrets that its suite writes into it.
    if __file__.encode() not in command:
        seen += [value for value in [*values, plain] if value.encode() in command]
with open(os.environ["SEEN_IN_PS"], "a") as file:
    json.dump({"said": values, "seen": seen}, file)
    file.write("\n")

sink = socket.socket(socket.AF_UNIX)
sink.connect(os.environ["MILABENCH_SINK"][5:])
for value in [*values, plain]:
    said = [value, json.dumps([value]), repr([value]), urllib.parse.quote(value, safe="")]
    said += [
        base64.b64encode(f"user:{value}".encode()).decode(),
        f"https://user:{urllib.parse.quote(value, safe='')}@host/",
    ]
    for text in said:
        print(text, flush=True)
        print("said", text, file=sys.stderr)
        for event in ("message", "note"):
            sink.sendall(json.dumps({"event": event, "data": {"message": text}, "pipe": "data"}).encode() + b"\n")
for value in values:
    sys.stdout.write(value[: len(value) // 2])
    sys.stdout.flush()
time.sleep(1.2)  # as long as a line without end is kept
for value in values:
    sys.stdout.write(value + "\r" + value)
    sys.stdout.flush()
print()
sink.close()
if "--fail" in sys.argv:
    raise RuntimeError(" ".join([*values, plain]))
