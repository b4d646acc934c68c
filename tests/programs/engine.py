"""Stands in for a container engine: `serve` is the service that owns the containers, everything else its client.

As with the real ones, a container is a child of the service and not of its client: killing the client leaves it running,
TERM to the client is handed on, `rm --force NAME` ends it, `ps --filter label=KEY=VALUE` names those that run. Nothing of the
client's environment comes in but what `--env` names. The containers see the machine's own files.
"""

import array
import json
import os
import signal
import socket
import subprocess
import sys
import threading

FOLDER = sys.argv[1]
PATH = os.path.join(FOLDER, "engine.sock")


def serve():
    """Runs containers until it is killed, and ends them then."""
    containers = {}
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(PATH)
    listener.listen()
    signal.signal(signal.SIGTERM, lambda *_: (
        [os.killpg(one["process"].pid, signal.SIGKILL) for one in containers.values() if one["process"].poll() is None],
        os._exit(0),
    ))  # fmt: skip
    print("serving", flush=True)
    while True:
        client, _ = listener.accept()
        threading.Thread(target=answer, args=(client, containers), daemon=True).start()


def answer(client, containers):
    """One client."""
    data, control, _, _ = client.recvmsg(1 << 20, socket.CMSG_SPACE(8))
    request = json.loads(data)
    live = {name: one for name, one in containers.items() if one["process"].poll() is None}
    if request["do"] == "ps":
        found = [name for name, one in live.items() if request["label"] in one["labels"]]
        client.sendall(json.dumps({"code": 0, "say": "".join(name + "\n" for name in found)}).encode() + b"\n")
    elif request["do"] == "rm":
        found = live.get(request["name"])
        if found is not None:
            os.killpg(found["process"].pid, signal.SIGKILL)
            found["process"].wait()
        say = request["name"] + "\n" if found else ""
        client.sendall(json.dumps({"code": 0, "say": say}).encode() + b"\n")
    else:
        out, err = array.array("i", control[0][2])
        process = subprocess.Popen(
            request["argv"], env=request["env"], cwd=request["cwd"], stdout=out, stderr=err, start_new_session=True
        )
        os.close(out)
        os.close(err)
        containers[request["name"]] = {"process": process, "labels": request["labels"]}
        threading.Thread(target=hand_signals_on, args=(client, process), daemon=True).start()
        code = process.wait()
        try:
            client.sendall(json.dumps({"code": code if code >= 0 else 128 - code, "say": ""}).encode() + b"\n")
        except OSError:
            pass  # the client was killed


def hand_signals_on(client, process):
    """What the client got, to the container."""
    while client.recv(1):
        process.terminate()


def run(words):
    """The request that the options of `run` make."""
    request = {"do": "run", "env": {}, "labels": [], "cwd": "/", "name": ""}
    while words and words[0].startswith("-"):
        option, _, value = words.pop(0).partition("=")
        if option == "--env":
            name, equals, given = value.partition("=")
            if equals or name in os.environ:
                request["env"][name] = given if equals else os.environ[name]
        elif option == "--label":
            request["labels"].append(value)
        elif option == "--name":
            request["name"] = value
        elif option == "--workdir":
            request["cwd"] = value
    return {**request, "argv": words[1:]}  # the first is the image


def main():
    """A client."""
    if sys.argv[2] == "serve":
        serve()
    verb, *words = sys.argv[2:]
    with open(os.path.join(FOLDER, "calls"), "a") as calls:
        calls.write(json.dumps([verb, *words]) + "\n")
    if verb == "ps":
        request = {"do": "ps", "label": words[words.index("--filter") + 1].partition("=")[2]}
    else:
        request = run(words) if verb == "run" else {"do": "rm", "name": words[-1]}
    service = socket.socket(socket.AF_UNIX)
    service.connect(PATH)
    descriptors = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [1, 2]))] if verb == "run" else []
    service.sendmsg([json.dumps(request).encode()], descriptors)
    if verb == "run":
        signal.signal(signal.SIGTERM, lambda *_: service.sendall(b"t"))
    reply = json.loads(service.makefile().readline())
    sys.stdout.write(reply["say"])
    sys.exit(reply["code"])


main()
