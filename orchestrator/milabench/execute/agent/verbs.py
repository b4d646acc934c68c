"""The verbs of the agent's command line. Each imports only the modules that it needs."""

from __future__ import annotations

import json
import os
import sys

GRACE_S = 5.0  # from TERM to KILL


def serve(argv: list[str]) -> int:
    """Answer requests on stdin with frames on stdout.

    `--run-id ID`. `--grace SECONDS` from TERM to KILL. `--locks FOLDER` of the device locks. `--lease SECONDS`: leave when
    nothing was heard for this time, and leave a guard. `--first facts`: send the output of `facts` first, in a frame.
    """
    _, options = split_options(argv, "run-id", "grace", "locks", "lease", "first")
    if options.get("first") == "facts":
        from .host_facts import host_facts

        # While the rest is imported here, it is read there.
        payload = json.dumps(host_facts([])) + "\n"
        try:
            print(json.dumps({"k": "facts", "n": len(payload)}) + "\n" + payload, end="", flush=True)
        except BrokenPipeError:  # whoever started us was killed, and has left nothing to end
            os._exit(1)
    from .supervisor import Agent

    lease = options.get("lease")
    grace_s = float(options.get("grace", GRACE_S))
    return Agent(options["run-id"], grace_s, options.get("locks"), None if lease is None else float(lease)).serve()


def facts(argv: list[str]) -> int:
    """Print the facts of this machine."""
    from .host_facts import host_facts

    split_options(argv)
    return print_json(host_facts([]))


def sweep(argv: list[str]) -> int:
    """End leftover processes of the runs with these MARKERs. `--grace SECONDS` from TERM to KILL."""
    from .orphans import sweep_orphans
    from .outcome import MACHINE_KILLS, oom_kills

    markers, options = split_options(argv, "grace")
    swept = sweep_orphans(markers, float(options.get("grace", GRACE_S)))
    return print_json({**swept, "oom_kills": oom_kills(MACHINE_KILLS)})


def left(argv: list[str]) -> int:
    """Print the processes that a sweep of these MARKERs would end."""
    from .orphans import list_orphans

    return print_json(list_orphans(split_options(argv)[0]))


def serve_files(argv: list[str]) -> int:
    """Answer requests about files on stdin."""
    from .file_server import FileServer

    split_options(argv)
    return FileServer(sys.stdin.buffer).serve()


def link(argv: list[str]) -> int:
    """Be an end of a measured connection: with `--to HOST PORT` the near end, for `--seconds`, else the far end."""
    from .netprobe import measure_as_connector, measure_as_listener
    from .protocol import format_oserror

    port, options = split_options(argv, "to", "seconds")
    try:
        if "to" in options:
            return print_json(measure_as_connector(options["to"], int(port[0]), float(options.get("seconds", 0.3))))
        return print_json(measure_as_listener(20.0))
    except OSError as error:
        return print_json({"error": format_oserror(error)})


def empty_folder(argv: list[str]) -> int:
    """Remove the contents of the folder PATH while it has this IDENTITY, and print why something is left."""
    from .step_dir import remove_contents

    path, identity = argv
    sys.stdout.write(remove_contents(path, identity))
    return 0


def feature_answer(argv: list[str]) -> int:
    """Print the result of `answer` of a feature's MODULE for the further arguments."""
    from importlib import import_module

    return print_json(import_module("milabench." + argv[0]).answer(argv[1:]))


def flock(argv: list[str]) -> int:
    """Lock these inherited descriptors, which are the agent's too, however long that takes."""
    import fcntl

    for fd in argv:
        fcntl.flock(int(fd), fcntl.LOCK_EX)
    return 0


_BY_NAME = (serve, facts, sweep, left, link, flock)
VERBS = {
    "files": serve_files,
    "feature": feature_answer,
    "empty-folder": empty_folder,
    **{verb.__name__: verb for verb in _BY_NAME},
}


def split_options(argv: list[str], *names: str) -> tuple[list[str], dict[str, str]]:
    """Return the arguments without a name, and the values of options by name, each given as `--name VALUE`."""
    # argparse takes longer to import than all the rest of a start, getopt a tenth of it.
    arguments: list[str] = []
    options: dict[str, str] = {}
    words = iter(argv)
    for word in words:
        if not word.startswith("--"):
            arguments.append(word)
        elif word[2:] not in names:
            sys.exit("agent: unknown option %s" % word)
        else:
            options[word[2:]] = next(words, "")
    return arguments, options


def print_json(answer: object) -> int:
    """Print a verb's answer. Return the exit code."""
    print(json.dumps(answer))
    return 0


def main() -> None:
    """Carry out a verb."""
    verb, argv = sys.argv[1] if len(sys.argv) > 1 else "", sys.argv[2:]
    if verb not in VERBS:
        sys.exit("agent: unknown verb %r. Known: %s" % (verb, ", ".join(VERBS)))
    code = VERBS[verb](argv)
    sys.stdout.flush()
    os._exit(code)  # at once: Python would first free every object, for 5 ms that whoever waits for us has to wait
