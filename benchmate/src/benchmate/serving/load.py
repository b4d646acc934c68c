"""A client's task and its result: frozen values between the driver of a sweep and its clients."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Endpoint = Literal["completions", "chat"]
CLIENT_PERCENTILES = (50, 90, 99)
"""The latencies in which a client's own figures are compared with its requests. Reports are independent of clients."""
PATHS: Mapping[Endpoint, str] = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}


@dataclass(frozen=True, kw_only=True)
class Target:
    """The server, and how every request to it looks.

    `url` has no path. `model` is the name that requests give, `tokenizer` a folder with tokenizer.json (or `words`, one token
    per word, as the simulated server counts). `options` are further keys of each request's body, `ignore_eos` among them.
    `arguments` are those that the suite has for the client's own program.
    """

    url: str
    model: str
    tokenizer: str = "words"
    endpoint: Endpoint = "completions"
    options: Mapping[str, object] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LoadPoint:
    """A load: a number of requests in flight, or of arrivals a second, or a scenario of loadgen. Exactly one is given.

    `seed` is of this point alone: it makes its arrivals, and whatever else a client draws. At the `deadline`, of
    `time.monotonic()`, whatever is under way is given up.
    """

    name: str
    concurrency: int | None = None
    rate: float | None = None
    scenario: str = ""
    arrivals: Literal["poisson", "constant"] = "poisson"
    seed: int = 1
    deadline: float = math.inf


@dataclass(frozen=True, kw_only=True)
class PlannedRequest:
    """A request to send: its text, the text's tokens by the tokenizer, the tokens to ask for.

    Of a session's later turns `text` is the user's addition. `delay_s` is the delay after the previous answer.
    """

    text: str
    input_tokens: int
    output_tokens: int
    delay_s: float = 0.0


FIRST_REQUEST = PlannedRequest(text="a", input_tokens=1, output_tokens=1)
"""By which a client imports its needs and connects. It does not count."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """The sessions of a point in the order in which they begin. A session without turns has a single request."""

    sessions: tuple[tuple[PlannedRequest, ...], ...]

    @property
    def requests(self) -> tuple[PlannedRequest, ...]:
        """Every request, by sessions."""
        return tuple(request for session in self.sessions for request in session)

    @property
    def has_turns(self) -> bool:
        """Whether a session has several requests."""
        return any(len(session) > 1 for session in self.sessions)


@dataclass(frozen=True, kw_only=True)
class RequestResult:
    """A client's record of a request.

    `at` is when it was sent, unix seconds. `due` when it should have been, in an open loop where that is known. `first`
    and `end` are seconds after `at`: of the first and of the last arrival. `gaps_us` are the times between consecutive
    arrivals, in microseconds. `tokens` how many tokens each arrival brought, including the first, empty where each
    brought a single one, and where that is not known: then there are not as many arrivals as `output_tokens`. `done` is
    when the answer was over, in seconds after `at`, if that is known to be later than `end`. Without `has_usage` the
    server did not say how many tokens it sent, and they were counted here. A request with an `error` has the tokens
    received before.
    """

    index: int
    at: float
    due: float | None = None
    first: float | None = None
    end: float | None = None
    done: float | None = None
    gaps_us: tuple[int, ...] = ()
    tokens: tuple[int, ...] = ()
    output_tokens: int = 0
    input_tokens: int = 0
    has_usage: bool = True
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class PointResult:
    """A client's measurement of a point: its requests, its own figures by METRICS' names, notes for the reader.

    `client` holds only figures with the metric's meaning. The driver compares those in milliseconds with its
    own figures, which it computes from `requests`.
    """

    requests: tuple[RequestResult, ...]
    client: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def one_line(text: object) -> str:
    """Return a text as a line of printable characters: servers answer anything."""
    shown = (char if char.isprintable() or char.isspace() else "\ufffd" for char in str(text)[:4000])
    return " ".join("".join(shown).split())[:500]
