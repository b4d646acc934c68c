"""A command of this machine, such as ssh or srun, over whose pipes an agent elsewhere is talked to."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from milabench.execute.ssh import last_line

LINE_BYTES = 1 << 20


class CommandChannel:
    """The command `program`, started by `start_command`; `stderr` is the file with its standard error."""

    program = ""

    def __init__(self, process: asyncio.subprocess.Process, stderr: Path) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.reader = process.stdout
        self.writer = process.stdin
        self._process = process
        self._stderr = stderr

    async def describe_end(self) -> str:
        """Return how the command ended."""
        code = await self._process.wait()
        killed = f"the connection was lost: {self.program} was killed"
        return f"the agent ended with exit code {code}" if code >= 0 else killed

    def last_stderr_line(self) -> str:
        """Return the last line on its standard error."""
        return last_line(self._stderr.read_bytes()) if self._stderr.exists() else ""


async def start_command(
    words: Sequence[str], stderr: Path, environ: Mapping[str, str] | None = None
) -> asyncio.subprocess.Process:
    """Start a command with pipes, in a session of its own: Ctrl-C is for us, who end the steps in order."""
    with stderr.open("wb") as file:
        return await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=file,
            env=environ,
            start_new_session=True,
            limit=LINE_BYTES,
        )
