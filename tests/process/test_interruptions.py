"""Ctrl-C, TERM and HUP at any instant of a command's life: exit code 130, one line, whole records, no process."""

from __future__ import annotations

import ast
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples import thinned
from tests.process.interruptions import interrupted, interrupted_in_the_loop
from tests.process.kill_points import ROOT


@pytest.mark.slow
def test_a_command_that_is_interrupted_at_any_instant_ends_in_order(tmp_path: Path) -> None:
    assert interrupted(thinned(range(16), 3), tmp_path) == {}


@pytest.mark.slow
def test_a_signal_while_an_event_loop_is_made_or_closed_ends_in_order(tmp_path: Path) -> None:
    assert interrupted_in_the_loop(0, len(thinned(range(16), 2)), tmp_path) == {}


def test_an_event_loop_is_run_only_where_signals_are_held() -> None:
    found = {
        path.name
        for path in (ROOT / "orchestrator" / "milabench").rglob("*.py")
        if "asyncio" in (source := path.read_text())
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute) and node.attr in ("run", "Runner", "new_event_loop", "run_until_complete")
        if isinstance(node.value, ast.Name) and node.value.id == "asyncio"
    }
    # The child of compat13/ is a program of its own, which runs what others wrote.
    assert found == {"interrupts.py", "child.py"}


BEGIN = "import os, signal, sys, time\nfrom milabench.execute.interrupts import Interrupts, interrupts, run_deferring_signals\n"


def ran(code: str) -> tuple[int, str, str]:
    """A program that has taken the signals over: its exit code and what it says."""
    program = BEGIN + "Interrupts().take_over()\n" + code
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_raises_once(number: int) -> None:
    code = (
        f"try:\n    os.kill(os.getpid(), {int(number)})\n"
        f"except KeyboardInterrupt:\n    os.kill(os.getpid(), {int(number)})\n    print('tidied up')\n"
    )
    assert ran(code) == (0, "tidied up\n", "")


def test_one_that_a_finaliser_swallows_is_raised_again_and_not_shown() -> None:
    code = (
        "class Swallows:\n    def __del__(self):\n        os.kill(os.getpid(), signal.SIGTERM)\n"
        "try:\n    Swallows()\n    signal.pause()\n"
        "except KeyboardInterrupt:\n    print('raised')\n"
    )
    assert ran(code) == (0, "raised\n", "")


def test_one_that_is_held_is_told_to_whoever_listens_next() -> None:
    code = (
        "with interrupts().deferred():\n    os.kill(os.getpid(), signal.SIGHUP)\n"
        "    with interrupts().routed_to(lambda: print('heard')):\n        print('listening')\n"
    )
    assert ran(code) == (0, "heard\nlistening\n", "")


def test_one_that_nobody_heard_is_raised_when_the_holding_ends() -> None:
    code = (
        "try:\n    with interrupts().deferred():\n        os.kill(os.getpid(), signal.SIGHUP)\n        print('held')\n"
        "except KeyboardInterrupt:\n    print('raised')\n"
    )
    assert ran(code) == (0, "held\nraised\n", "")


def test_one_in_a_context_that_raises_is_raised_there_once_and_is_then_routed_again() -> None:
    code = (
        "kill = lambda: os.kill(os.getpid(), signal.SIGTERM)\n"
        "with interrupts().deferred(), interrupts().routed_to(lambda: print('heard')):\n"
        "    try:\n        with interrupts().raising():\n            kill()\n"
        "    except KeyboardInterrupt:\n        print('raised')\n"
        "    kill()\n"
    )
    assert ran(code) == (0, "raised\nheard\n", "")


def test_none_matters_once_the_end_is_decided() -> None:
    code = "interrupts().ignore_all()\nos.kill(os.getpid(), signal.SIGTERM)\nprint('ended as decided')\n"
    assert ran(code) == (0, "ended as decided\n", "")


def test_asking_for_long_leaves_a_tidying_up_that_hangs() -> None:
    code = (
        "import milabench.execute.interrupts as module\nmodule.PATIENCE_S = 0.0\n"
        "try:\n    os.kill(os.getpid(), signal.SIGTERM)\n"
        "except KeyboardInterrupt:\n    os.kill(os.getpid(), signal.SIGTERM)\n    print('hung')\n"
    )
    assert ran(code) == (130, "", "interrupted\n")


# A signal that another thread receives leaves a main thread asleep that waits for a lock or in epoll: so does one that comes
# between the last byte code and that wait. The first can be made to happen every time.
LOST = """
import asyncio, threading
from milabench.execute.interrupts import thread_map

def interrupted_elsewhere(is_over):
    # Signals this thread once the main thread sleeps, and goes on when that had an effect, or after a while.
    main = threading.main_thread()
    while open(f"/proc/self/task/{main.native_id}/stat").read().rpartition(")")[2].split()[0] != "S":
        time.sleep(0.01)
    time.sleep(0.05)
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)
    print("in time" if is_over.wait(20) else "too late")

is_over = threading.Event()
"""


@pytest.mark.parametrize("module", ["milabench.cli", "milabench.errors", "click"])
def test_an_interrupt_while_the_program_is_imported_is_one_line(module: str) -> None:
    code = (
        "class Interrupting:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}:\n            os.kill(os.getpid(), signal.SIGINT)\n"
        "import os, signal, sys\nfrom milabench.__main__ import run_program\n"
        "sys.argv = ['milabench', 'list']\nsys.meta_path.insert(0, Interrupting())\nrun_program()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_a_signal_that_another_thread_receives_interrupts_what_is_mapped_over_threads() -> None:
    code = LOST + (
        "try:\n    thread_map(interrupted_elsewhere, [is_over], jobs=1, stop=is_over.set)\n"
        "except KeyboardInterrupt:\n    print('raised')\n"
    )
    assert ran(code) == (0, "in time\nraised\n", "")


def test_a_signal_that_another_thread_receives_wakes_an_event_loop() -> None:
    code = LOST + (
        "threading.Thread(target=interrupted_elsewhere, args=[is_over]).start()\n"
        "async def main():\n    loop, asked = asyncio.get_running_loop(), asyncio.Event()\n"
        "    with interrupts().routed_to(lambda: loop.call_soon_threadsafe(asked.set)):\n"
        "        await asked.wait()\n    is_over.set()\n"
        "run_deferring_signals(main)\n"
    )
    assert ran(code) == (0, "in time\n", "")


ASKED = """
import asyncio
import milabench.execute.interrupts as module
from milabench.execute.remote_host import HostPool

module.PATIENCE_S = 0.0

def interrupt():
    os.kill(os.getpid(), signal.SIGTERM)

async def asks():
    loop = asyncio.get_running_loop()
    loop.call_later(0.05, interrupt)
    try:
        await asyncio.sleep(600)
    finally:
        print("tidies up")
        loop.call_later(0.05, interrupt)
        await asyncio.sleep(600)

pool = HostPool()
"""


def test_what_is_asked_of_nodes_is_cancelled_and_its_tidying_up_too() -> None:
    code = ASKED + "try:\n    pool.run(asks)\nexcept KeyboardInterrupt:\n    print('raised')\n    pool.close()\n"
    assert ran(code) == (0, "tidies up\nraised\n", "")


def test_one_that_was_deferred_before_nodes_are_asked_cancels_that() -> None:
    code = ASKED + (
        "try:\n    with interrupts().deferred():\n        interrupt()\n        pool.run(lambda: asyncio.sleep(600))\n"
        "except KeyboardInterrupt:\n    print('raised')\n"
    )
    assert ran(code) == (0, "raised\n", "")


def test_the_first_failure_stops_what_is_mapped_over_threads_and_cancels_the_rest() -> None:
    code = LOST + (
        "begun = []\n"
        "def fails(item):\n    begun.append(item)\n    if item == 1:\n        raise OSError('no space')\n"
        "    assert is_over.wait(20)\n"
        "try:\n    thread_map(fails, range(9), jobs=2, stop=is_over.set)\n"
        "except OSError as error:\n    print(error, len(begun) <= 3)\n"  # one more may begin meanwhile
    )
    assert ran(code) == (0, "no space True\n", "")


def test_what_was_ignored_stays_ignored() -> None:
    program = (
        "import signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n" + BEGIN + "Interrupts().take_over()\n"
        "os.kill(os.getpid(), signal.SIGHUP)\nprint('goes on')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "goes on\n")
