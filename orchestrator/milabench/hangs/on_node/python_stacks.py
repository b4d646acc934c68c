"""Stacks of a Python process, as py-spy or its own faulthandler writes them -> functions, files and lines, and nothing else."""

from __future__ import annotations

import json
import re

TYPE_CHECKING = False  # see execute/agent/unpack.py
if TYPE_CHECKING:
    from typing import Any

    Frame = tuple[str, str, int]
    """Function, file, line."""
    Thread = dict[str, Any]
    """`name`, `holds_gil` where that is known, and `frames`, the innermost first."""

DUMP_SIGNAL = 59
"""The real-time signal on which a process that our runner has started writes its stacks (benchmate.stack_dump)."""
MOST_FRAMES = 48
MOST_CHARACTERS = 200
_THREAD = re.compile(
    r"(?P<current>Current thread|Thread) 0x[0-9a-f]+(?: \[(?P<name>.*)\])? \(most recent call first\):$"
)
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)$')
_LIBRARY = re.compile(r"(?:.*/)?(?P<path>(?:site-packages|dist-packages)/.*|python3\.\d+/.*)$")
_USER_PARTS = 3  # of a path that is no library's


def read_py_spy(text: bytes, pid: int) -> list[Thread]:
    """Return the threads of `py-spy dump --json`, the main thread first. Empty for other texts."""
    try:
        threads = [
            {
                "name": str(thread.get("thread_name") or ""),
                "holds_gil": bool(thread.get("owns_gil")),
                "frames": [
                    _frame(each["name"], each["filename"], each["line"]) for each in thread["frames"][:MOST_FRAMES]
                ],
                "is_main": thread.get("os_thread_id") == pid or thread.get("thread_name") == "MainThread",
            }
            for thread in json.loads(text)
        ]
    except (ValueError, TypeError, KeyError, AttributeError):
        return []
    return _main_first(threads)


def read_faulthandler(text: str) -> list[Thread]:
    """Return the threads that `faulthandler` wrote. The thread that got the signal is the main thread."""
    threads: list[Thread] = []
    for line in text.splitlines():
        thread, frame = _THREAD.match(line), _FRAME.match(line)
        if thread:
            is_main = thread["current"] != "Thread"
            threads.append({"name": thread["name"] or "", "holds_gil": False, "frames": [], "is_main": is_main})
        elif frame and threads and len(threads[-1]["frames"]) < MOST_FRAMES:
            threads[-1]["frames"].append(_frame(frame["function"], frame["file"], int(frame["line"])))
    return _main_first(threads)


def _main_first(threads: list[Thread]) -> list[Thread]:
    ordered = sorted(threads, key=lambda thread: not thread["is_main"])
    return [{name: value for name, value in thread.items() if name != "is_main"} for thread in ordered]


def _frame(function: str, file: str, line: int) -> Frame:
    library = _LIBRARY.match(file)
    path = library["path"] if library else "/".join(file.split("/")[-_USER_PARTS:])
    # faulthandler knows no class: a rank that py-spy has read is where the others are.
    return function.rpartition(".")[2][:MOST_CHARACTERS], path[-MOST_CHARACTERS:], line
