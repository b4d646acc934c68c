"""An `ssh` whose every host is this machine, for tests on a PATH of their own: a master connection, and commands over it."""

import os
import socket
import sys

words = sys.argv[1:]
control = next((word.partition("=")[2] for word in words if word.startswith("ControlPath=")), "")

if "-N" in words:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(control)
    listener.listen(64)
    listener.settimeout(1.0)
    if os.fork():
        os._exit(0)
    os.setsid()
    for descriptor in range(3):
        os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
    while os.path.exists(control):
        try:
            caller, _ = listener.accept()
        except TimeoutError:
            continue
        if caller.recv(16) == b"exit":
            break
elif "-O" in words:
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(control)
        caller.sendall(b"exit")
else:
    os.execv("/bin/sh", ["sh", "-c", words[-1]])
