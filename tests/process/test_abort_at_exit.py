"""Ranks that abort when all has been measured, as gloo's do at times: real processes on a real sink."""

from __future__ import annotations

import sys
from typing import Any

import pytest

RANKS = """
import json, os, socket, sys
ranks, final, word, how = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
for rank in range(ranks):
    sink = socket.socket(socket.AF_UNIX)
    sink.connect(os.environ["MILABENCH_SINK"][5:])
    say = lambda **about: sink.sendall(json.dumps(about, separators=(",", ":")).encode() + b"\\n")
    say(hello={"pid": os.getpid(), "role": "rank", "rank": rank, "world_size": ranks})
    say(event="data", data={"task": "train", "rate": 5.0, "units": "items/s"}, pipe="data")
    if how == "fail":
        say(event="error", data={"type": "ValueError", "message": "wrong result"}, pipe="data")
    if rank < final:
        say(event="data", data={"overhead": {"host_s": 0.1}}, pipe="data")
    sink.close()
print(word, file=sys.stderr, flush=True)
os.abort() if how == "abort" else sys.exit(1)
"""
SAID = "terminate called without an active exception"


def ended(agent: Any, *words: object) -> tuple[str, str | None, Any]:
    """Outcome, why, and the reasons of the last record."""
    said = agent.run(sys.executable, "-S", "-c", RANKS, *words, needs_data=True)
    (end,) = agent.data("end")
    assert end["outcome"] == said["outcome"]
    return said["outcome"], said["why"], end.get("reasons")


@pytest.mark.parametrize(("word", "how"), [("", "abort"), (SAID, "exit"), ("Signal 6 (SIGABRT) received", "exit")])
def test_ranks_that_had_sent_their_final_records_have_passed_with_a_reason(agent: Any, word: str, how: str) -> None:
    assert ended(agent, 2, 2, word, how) == ("passed", None, ["abort-at-exit"])


@pytest.mark.parametrize(
    ("final", "word", "how", "why"),
    [(1, SAID, "abort", "signal"), (2, "no such file", "exit", "exit"), (2, SAID, "fail", "exit")],
)
def test_an_abort_before_the_last_record_or_an_end_for_another_reason_is_a_failure(
    agent: Any, final: int, word: str, how: str, why: str
) -> None:
    assert ended(agent, 2, final, word, how) == ("failed", why, None)
