"""Runs a milabench command again and again, each time signalled at another line that asyncio executes in its main thread.

    python interrupted_at.py FOLDER SEED COUNT ARGUMENT...

Half of the strikes are at the first lines, with which the loop is made, a quarter at those with which it is closed. Each has
a base of its own below FOLDER. Prints JSON: the exit code and what was said, for each strike.
"""

import importlib, json, os, random, signal, sys
from pathlib import Path

MADE_IN = 400  # lines of asyncio, roughly
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
AT_ONCE = 3


def forked(base, argv, is_closing, at, number):
    """The pid of a process that carries the command out; it tells how many lines there were, and what it imported."""
    pid = os.fork()
    if pid:
        return pid
    base.mkdir(parents=True)
    os.environ["MILABENCH_BASE"] = os.environ["HOME"] = os.environ["MILABENCH_LOCK_DIR"] = str(base)
    said = os.open(base / "said", os.O_WRONLY | os.O_CREAT, 0o644)
    os.dup2(said, 1)
    os.dup2(said, 2)
    sys.argv = ["milabench", *argv]
    lines = {False: 0, True: 0}  # before the runner closes its loop, and from then on
    closing = False

    def local(frame, event, arg):
        if event == "line":
            lines[closing] += 1
            if (closing, lines[closing]) == (is_closing, at):
                sys.settrace(None)
                os.kill(os.getpid(), number)
        return local

    def trace(frame, event, arg):
        nonlocal closing
        path = frame.f_code.co_filename
        closing = closing or (frame.f_code.co_name == "close" and path.endswith("/asyncio/runners.py"))
        return local if "/asyncio/" in path else None

    from milabench.cli import main

    sys.settrace(trace)
    try:
        main()
    except SystemExit as end:
        (base / "told").write_text(json.dumps([lines[False], lines[True], list(sys.modules)]))
        sys.exit(end.code)  # through all of the interpreter's end


def main(folder, seed, count, *argv):
    folder, chance = Path(folder), random.Random(int(seed))
    os.waitpid(forked(folder / "undisturbed", argv, False, -1, signal.SIGTERM), 0)
    lines, closed_in, modules = json.loads((folder / "undisturbed" / "told").read_text())
    for name in modules:
        if name.startswith(("milabench", "asyncio", "click", "rich", "omegaconf", "yaml")):
            importlib.import_module(name)
    places = [(False, 0, MADE_IN), (False, 0, MADE_IN), (True, 0, closed_in // 2), (False, MADE_IN, lines // 2)]
    strikes = sorted({(where[0], chance.randrange(*where[1:]) + 1) for _ in range(int(count) // 4) for where in places})
    running, ended = {}, {}
    for index, strike in enumerate(strikes):
        if len(running) == AT_ONCE:
            pid, status = os.wait()
            ended[running.pop(pid)] = status
        running[forked(folder / str(index), argv, *strike, SIGNALS[index % 3])] = index
    while running:
        pid, status = os.wait()
        ended[running.pop(pid)] = status
    said = {
        f"{SIGNALS[index % 3].name} {at} lines into {'closing' if is_closing else 'the loop'}": (
            os.waitstatus_to_exitcode(ended[index]),
            (folder / str(index) / "said").read_text(),
        )
        for index, (is_closing, at) in enumerate(strikes)
    }
    print(json.dumps(said))


main(*sys.argv[1:])
