"""A line of a trace: a conversation that is replayed. Imports msgspec: import it where a trace is read."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct


class TraceTurn(Struct):
    """A request of a conversation, the tokens that it asks for, and the pause before it in milliseconds."""

    input: Annotated[str, Meta(min_length=1)]
    output_tokens: Annotated[int, Meta(ge=1)] = 1
    delay_ms: Annotated[float, Meta(ge=0, lt=1e12)] = 0


class TraceSession(Struct):
    """A conversation."""

    turns: Annotated[list[TraceTurn], Meta(min_length=1)]
