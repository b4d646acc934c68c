"""Leaves its terminal, and goes on by itself once the folder that it is given holds a file `go`."""

import os, subprocess, sys, threading, time
from pathlib import Path

from milabench.errors import MilabenchError
from milabench.execute.detach import DetachedProcess, fork_detached
from milabench.execute.interrupts import InterruptRequested, Interrupts

folder = Path(sys.argv[1])
Interrupts().take_over()
if "threads" in sys.argv:
    threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
try:
    side = fork_detached()
except MilabenchError as error:
    sys.exit(str(error))
if isinstance(side, DetachedProcess):
    print(side.run, side.code)
    sys.exit(0)
try:
    print("said while tied", file=sys.stderr)
    (folder / "pid").write_text(str(os.getpid()))
    while not (folder / "go").exists():
        time.sleep(0.01)
    side.hold(folder)
    print("said while held", file=sys.stderr)
    side.let_go(folder)
    print("said alone", file=sys.stderr)
    subprocess.run(["sh", "-c", "echo said by another >&2"], check=True)
    (folder / "done").touch()
except InterruptRequested:
    sys.exit(130)
