"""Links to so many nodes, each of which sends a record without end: `python tests/programs/thousand_nodes.py NODES`.

Prints, in MiB, how much the peak of memory has grown and how much of what was sent is held, and how many links are lost.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any, cast

from milabench.execute import agent_client, messages, ssh
from milabench.execute.agent_client import AgentLink

SENT = messages.MOST_FRAME_BYTES - 1  # the end of the longest record is waited for
HEADER = json.dumps({"k": "rec", "n": messages.MOST_FRAME_BYTES, "step": "s"}).encode() + b"\n"


class Flood(asyncio.Transport):
    """The far end of a link: sends as long as somebody reads."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        super().__init__()
        self.left, self._reader, self._is_read = SENT, reader, True
        reader.set_transport(self)
        reader.feed_data(HEADER)
        asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        if self._is_read and self.left > 0:
            size = min(self.left, 1 << 16)
            self.left -= size
            self._reader.feed_data(b"x" * size)
            asyncio.get_running_loop().call_soon(self._send)

    def pause_reading(self) -> None:
        self._is_read = False

    def resume_reading(self) -> None:
        self._is_read = True
        asyncio.get_running_loop().call_soon(self._send)


class Silence:
    """The input of a node that reads nothing."""

    def write(self, data: bytes) -> None:
        """Forget it."""

    def close(self) -> None:
        """Stay."""


def peak_mib() -> float:
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024


async def end_never() -> str:
    """Wait for the end of a program that goes on."""
    await asyncio.Event().wait()
    return ""


async def main(nodes: int) -> None:
    loop = asyncio.get_running_loop()
    before, floods, links = peak_mib(), [], []
    for _ in range(nodes):
        reader = asyncio.StreamReader(limit=agent_client.LINE_BYTES)
        link = AgentLink(reader, cast("Any", Silence()), end_never)
        link._steps["s"] = agent_client._Watched(lambda _: None, loop.create_future())
        floods.append(Flood(reader))
        links.append(link)
    words = [bytes(ssh.TAIL_BYTES) for _ in links]  # of standard error, as a CommandChannel keeps them
    left = None
    while left != (left := sum(flood.left for flood in floods)):
        await asyncio.sleep(0.5)
    held = (nodes * SENT - left) / 2**20
    lost = sum(link.lost is not None for link in links)
    print(json.dumps({"grown": peak_mib() - before, "held": held, "lost": lost, "words": len(words)}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
