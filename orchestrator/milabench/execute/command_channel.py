"""A command of this machine, such as ssh or srun, over whose pipes an agent elsewhere is talked to."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from milabench.execute.ssh import TAIL_BYTES, WORDS_S, last_words

LOOK_EVERY_S = 0.02
LINE_BYTES = 1 << 16  # twice as much, and a piece that was read, may be unread


class CommandChannel:
    """The command `program`, started by `start_command`."""

    program = ""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.reader = process.stdout
        self.writer = process.stdin
        self._process = process
        self._words = b""
        self._listening = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        """Keep the end of its standard error: a file would grow with the node's output without limit."""
        assert self._process.stderr is not None
        while piece := await self._process.stderr.read(TAIL_BYTES):
            self._words = (self._words + piece)[-TAIL_BYTES:]

    async def describe_end(self) -> str:
        """Return how the command ended."""
        code = await self._process.wait()
        await asyncio.wait({self._listening}, timeout=WORDS_S)  # what it has started may keep its standard error open
        killed = f"the connection was lost: {self.program} was killed"
        return f"the agent ended with exit code {code}" if code >= 0 else killed

    def last_stderr_line(self) -> str:
        """Return the last line on its standard error."""
        return last_words(self._words)


async def start_command(words: Sequence[str], environ: Mapping[str, str] | None = None) -> asyncio.subprocess.Process:
    """Start a command with pipes, in a session of its own: Ctrl-C is for us, who end the steps in order."""
    return await asyncio.create_subprocess_exec(
        *words,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environ,
        start_new_session=True,
        limit=LINE_BYTES,
    )


async def end_of(child: asyncio.subprocess.Process, within_s: float) -> bool:
    """Return whether a command has ended in time, and close its pipes. What was not read from them is lost."""
    by = asyncio.get_running_loop().time() + within_s
    # Process.wait() waits for the pipes too.
    while child.returncode is None and asyncio.get_running_loop().time() < by:
        await asyncio.sleep(LOOK_EVERY_S)
    if child.returncode is None:
        return False
    # A node that sent without end is read no further, so its pipe would stay open. Process has no public way to close it.
    child._transport.close()  # type: ignore[attr-defined]
    return True
