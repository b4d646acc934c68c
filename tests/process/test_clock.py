"""A wall clock that jumps: the agent's stamps follow it, its deadlines do not."""

from __future__ import annotations

import shlex
from pathlib import Path

from tests.process.conftest import Agent


def test_a_clock_that_jumps_moves_no_deadline(python: str, tmp_path: Path) -> None:
    """The wall clock goes back a day in the middle: what is limited to half a second is ended all the same."""
    jumping = (
        "import os, runpy, sys, time; real = time.time; sys.argv = sys.argv[1:]; "
        f"time.time = lambda: real() - 86400 * os.path.exists({str(tmp_path / 'jump')!r}); "
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\nshift 2\nexec {shlex.quote(python)} -u -I -c {shlex.quote(jumping)} "$@"\n')
    wrapper.chmod(0o755)
    agent = Agent(str(wrapper), tmp_path / "locks")
    try:
        ended = agent.run("sh", "-c", f"touch {tmp_path}/jump; sleep 3600", timeout_s=0.5)
        assert (ended["outcome"], ended["why"]) == ("failed", "timeout")
        began, over = agent.events()[0], agent.events()[-1]
        assert over["t"] < began["t"] - 80_000
        agent.let_go()
    finally:
        agent.process.kill()
        agent.process.wait()
        for stream in (agent.process.stdin, agent.process.stdout):
            assert stream is not None
            stream.close()
