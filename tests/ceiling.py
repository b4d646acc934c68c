"""Every test has a ceiling: past it, what it waits for shows its stacks and is ended, and the test fails.

pytest-timeout counts the seconds (`timeout` in pyproject.toml, the mark `timeout(SECONDS)`); this says what happens then. Its
own way, an exception in the main thread, is not enough here: whatever the exception passes on its way out, such as the end of
a `with Popen`, waits for the child again, and the child's stack, which says what it waits for, is never seen.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Generator
from pathlib import Path
from types import FrameType
from typing import NoReturn

import pytest

# Between SIGABRT, with which a Python child writes its stacks (PYTHONFAULTHANDLER), and SIGKILL with an exception here.
GRACE_S = 10.0
E2E_S = 1800.0  # real suites in real environments, which are downloaded first
_EXCEEDED = pytest.StashKey[bool]()
_RUNNERS = ("/_pytest/", "/pluggy/", "/xdist/", "/execnet/", __file__)


def stacks() -> str:
    """Where every thread of this process is, without the frames of what runs the tests."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    text = ""
    for ident, frame in sys._current_frames().items():
        lines = [line for line in traceback.extract_stack(frame) if not any(part in line.filename for part in _RUNNERS)]
        if lines[1:]:
            text += f"thread {names.get(ident, ident)}, most recent call last:\n" + "".join(
                traceback.format_list(lines)
            )
    return text


def descendants() -> list[int]:
    """The processes that this one started, and those that these started, parents first."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_bytes().rpartition(b")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(stat.parent.name))
    found = [os.getpid()]
    for pid in found:
        found += children.get(pid, [])
    return found[1:]


def describe(pid: int) -> str:
    """The process's number, state, place in the kernel and command line."""
    try:
        folder = Path("/proc", str(pid))
        state = (folder / "stat").read_bytes().rpartition(b")")[2].split()[0].decode()
        command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        return f"{pid} {state} {(folder / 'wchan').read_text()}: {command[:300]}"
    except OSError:
        return f"{pid}: ended"


def writes_its_stacks(pid: int) -> bool:
    """Whether the process catches SIGABRT, as Python does with PYTHONFAULTHANDLER."""
    try:
        caught = int(Path("/proc", str(pid), "status").read_text().split("SigCgt:")[1].split()[0], 16)
    except (OSError, IndexError):
        return False
    return bool(caught >> (signal.SIGABRT - 1) & 1)


def send(pids: list[int], number: int) -> None:
    """Signal the processes that are still there."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


class Ceiling:
    """What SIGALRM does during one test: first stacks everywhere, then, when that ended nothing, an exception."""

    def __init__(self, item: pytest.Item, seconds: float) -> None:
        self.item = item
        self.seconds = seconds

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Show what is waited for and end it, deepest first, so that each reports before its parent notices."""
        pids = descendants()[::-1]
        if _EXCEEDED in self.item.stash:
            send(pids, signal.SIGKILL)
            self.fail()
        self.item.stash[_EXCEEDED] = True
        print(f"\nthe test has run for {self.seconds:g} s and is here:\n{stacks()}", file=sys.stderr, flush=True)
        for pid in pids:
            print(f"child {describe(pid)}", file=sys.stderr, flush=True)
        send([pid for pid in pids if writes_its_stacks(pid)], signal.SIGABRT)

    def fail(self) -> NoReturn:
        """Fail the test."""
        pytest.fail(f"took longer than {self.seconds:g} s; the stacks of what it waited for are on stderr")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the end-to-end tests a ceiling of their own."""
    for item in items:
        if item.get_closest_marker("e2e") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(E2E_S))


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: object) -> bool:
    """Count the test's seconds."""
    seconds = float(settings.timeout)  # type: ignore[attr-defined]
    signal.signal(signal.SIGALRM, Ceiling(item, seconds))
    # Again and again: one signal alone may come in the instant before the main thread sleeps, and be noticed only after.
    signal.setitimer(signal.ITIMER_REAL, seconds, GRACE_S)
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_cancel_timer(item: pytest.Item) -> bool:
    """Stop counting."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Fail a test that got past its ceiling, also when what was ended by then looked right to it."""
    yield
    if _EXCEEDED in item.stash:
        pytest.fail("passed only after what it waited for was ended; the stacks are on stderr")
