"""How fast the machines of a system reach each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from milabench.errors import Unreachable
from milabench.execute.messages import LINK, LISTENING
from milabench.execute.remote_host import RemoteHost, read_answer

LINK_S = 0.3  # for one measurement of a link
LINK_ANSWER_S = 20.0  # its ends wait for each other for at most 15 s


async def link_speeds(machines: Sequence[RemoteHost]) -> dict[str, Mapping[str, object]]:
    """Measure each machine's link to the next, in sequence: `{"round_trip_s", "bytes_per_s"}` or `{"error"}`."""
    following = [*machines[1:], machines[0]] if len(machines) > 2 else machines[1:]
    pairs = zip(machines, following, strict=False)
    return {f"{near.name} -> {far.name}": await _link(near, far) for near, far in pairs}


async def _link(near: RemoteHost, far: RemoteHost) -> Mapping[str, object]:
    try:
        listening = await far.agent("link")
        try:
            port = (await read_answer(listening, LISTENING, far.name, "link", LINK_ANSWER_S))["port"]
            words = ("link", "--to", far.address.host, str(port), "--seconds", str(LINK_S))
            answer = await near.ask(LINK, *words, within_s=LINK_ANSWER_S)
            return cast("Mapping[str, Any]", answer)
        finally:
            listening.writer.close()
    except Unreachable as error:
        return {"error": str(error)}
