"""Commands over whose pipes an agent elsewhere is talked to."""

from __future__ import annotations

import asyncio
import gc

import pytest

from milabench.execute.command_channel import end_of, start_command


@pytest.mark.parametrize("command", ["exec sleep 60", "yes", "yes & exec sleep 60"])
def test_a_command_that_is_ended_leaves_no_pipe_open(command: str) -> None:
    async def ended() -> bool:
        child = await start_command(["sh", "-c", command])
        while "yes" in command and not child.stdout._paused:  # type: ignore[union-attr]  # it sends more than the reader takes
            await asyncio.sleep(0.01)
        child.kill()
        return await end_of(child, 5.0)

    assert asyncio.run(ended())
    gc.collect()  # a pipe that is still open is a warning here, and an error of the test
