"""Commands that are asked to end at any instant of their life, from the moment at which they take the signals over."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from milabench.errors import RecordError
from milabench.events.rundir import open_run
from tests.process.kill_points import AT_ONCE, ROOT, SUITE, Case
from tests.processes import CEILING_S

PROGRAM = ROOT / "tests" / "programs" / "interrupted_at.py"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LIFE_S = 1.0  # of the command, roughly


def interrupted(seeds: Sequence[int], folder: Path) -> dict[int, object]:
    """What is wrong after a signal at an instant that a seed chooses, by seed; nothing where all is well."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        wrong = pool.map(lambda seed: wrong_after(seed, Case(folder / str(seed))), seeds)
        return {seed: found for seed, found in zip(seeds, wrong, strict=True) if found}


def wrong_after(seed: int, case: Case) -> object:
    """Strikes a run; what is not as it should be then."""
    chance = random.Random(seed)
    number, later_s = chance.choice(SIGNALS), chance.choice((chance.uniform(0, 0.1), chance.uniform(0, LIFE_S)))
    process = case.begun()
    try:
        deadline = time.monotonic() + CEILING_S
        while not catches(process.pid, signal.SIGTERM) and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        time.sleep(later_s)
        process.send_signal(number)
        code = process.wait(CEILING_S)
    except subprocess.TimeoutExpired:
        return "it never ended"
    finally:
        process.kill()
    said = (case.base / "said").read_text()
    # 0: the signal came when the end was decided; the words of a run that was over are there then.
    if code not in (130, 0) or is_noisy(said) or (code == 0 and "4 of 4 steps passed" not in said):
        return f"{signal.Signals(number).name} after {later_s:.3f} s", code, said
    return unreadable(case) or case.left()


def unreadable(case: Case) -> object:
    """What is wrong with the records of a run that was interrupted; no plan may be there yet."""
    if not case.has_plan():
        return None
    try:
        run = open_run(case.run_folder())
    except RecordError as error:
        return str(error)
    events = [event for step in run.files for event in run.events(step)]
    torn = [event for event in events if getattr(event, "event", None) == "format_error"]
    return torn or (None if run.journal else "no journal beside a plan")


def catches(pid: int, number: int) -> bool:
    """Whether a process handles a signal by now."""
    with contextlib.suppress(OSError, IndexError):
        status = Path(f"/proc/{pid}/status").read_text()
        return bool(int(status.split("SigCgt:")[1].split()[0], 16) >> (number - 1) & 1)
    return False


def is_noisy(said: str) -> bool:
    """Whether it says more than a user should see."""
    return any(word in said for word in ("Traceback", "Exception ignored", "Warning"))


def interrupted_in_the_loop(seed: int, count: int, folder: Path) -> dict[str, object]:
    """What is wrong after signals at lines of asyncio, half of them while the loop is made or closed, by strike."""
    done = subprocess.run(
        [sys.executable, PROGRAM, folder, str(seed), str(count), "run", *SUITE],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    strikes = json.loads(done.stdout)
    return {strike: (code, said) for strike, (code, said) in strikes.items() if code != 130 or is_noisy(said)}
