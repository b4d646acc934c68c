"""The keys of a sweep over a server: its points, and the requests of each point."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Final, Literal, TypeAlias

from milabench.config.kinds import (
    INVALID,
    Key,
    KeySets,
    Kind,
    ListOf,
    MapOf,
    Number,
    Record,
    Text,
    ValueParser,
    Whole,
    key,
    path_at,
)
from milabench.config.source_map import Located
from milabench.records.latencies import LATENCY_QUANTILES

FREE_PORT: Final = "@port"
"""A port that is free on the server's node when its step starts."""
SLO_NAMES: Final = (*LATENCY_QUANTILES, "error_rate")
"""Numbers of a point that an SLO may limit, by their names in reports."""
_ABOVE_ZERO: Final = Number(above=0)
_DECLARED: Final = ("expert_routing", "acceptance_length")
POINTS: Final = ("concurrency", "rate", "scenario")
MOST_REQUESTS: Final = 1_000_000
"""Limit for a point: its prompts are in memory before its first request is sent."""
_COUNT: Final = Whole(at_least=0, at_most=MOST_REQUESTS)
_AT_LEAST_ONE: Final = Whole(at_least=1, at_most=MOST_REQUESTS)
_RATE: Final = Number(at_least=0.001, at_most=1_000_000)

Limits: TypeAlias = Annotated[
    Mapping[str, float],
    Record(
        {
            **{name: Key(name, name, _ABOVE_ZERO, "Maximum, in milliseconds.", None) for name in LATENCY_QUANTILES},
            "error_rate": Key("error_rate", "error_rate", Number(at_least=0, at_most=1), "Maximum share.", None),
        },
        None,
    ),
]


_TOKENS: Final = Whole(at_least=1, at_most=10_000_000)


class Lengths(KeySets):
    """Lengths in tokens: a number, `{mean, stddev}` of a normal distribution, or `{least, most}` of an even one."""

    def __init__(self) -> None:
        items = {"mean": _ABOVE_ZERO, "stddev": _ABOVE_ZERO, "least": _TOKENS, "most": _TOKENS}
        expected = "a number of tokens, {mean, stddev} or {least, most}"
        super().__init__(sets=(("mean", "stddev"), ("least", "most")), items=items, expected=expected)

    def parse(self, node: Located, path: str, parser: ValueParser) -> Any:
        if type(node.value) is not dict:
            return parser.parse(_TOKENS, node, path)
        given = super().parse(node, path, parser)
        if given is not INVALID and given.get("least", 0) > given.get("most", 0):
            return parser.reject(node, path, f"`least` ({given['least']}) is above `most` ({given['most']})")
        return given

    def json_schema(self) -> dict[str, Any]:
        return {"anyOf": [_TOKENS.json_schema(), super().json_schema()]}


class RequestOptions(MapOf):
    """Keys of the body of a request, but those that follow from the rest of the sweep."""

    _OWN: Final = {
        "model": "write serve.served_model",
        "prompt": "write serve.input_tokens or serve.trace",
        "messages": "write serve.input_tokens or serve.trace",
        "max_tokens": "write serve.output_tokens",
        "max_completion_tokens": "write serve.output_tokens",
        "stream": "leave it out: times are measured on a stream",
        "n": "leave it out: a request has a single answer",
        "best_of": "leave it out: a request has a single answer",
        "echo": "leave it out: the prompt is no part of the answer",
    }

    def parse(self, node: Located, path: str, parser: ValueParser) -> Any:
        for name, hint in self._OWN.items():
            if isinstance(node.value, dict) and name in node.value:
                return parser.reject(node.value[name], f"{path}.{name}", "the client itself sets it", hint)
        return super().parse(node, path, parser)

    def json_schema(self) -> dict[str, object]:
        return {**super().json_schema(), "propertyNames": {"not": {"enum": list(self._OWN)}}}


class TraceFile(Text):
    """A path, relative to the file in which it is written, unless it begins with a placeholder."""

    expected = "a file of JSON lines"

    def of_text(self, text: str, node: Located, path: str, parser: ValueParser) -> Any:
        return text if text.startswith("{") else str(path_at(node))


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeConfig:
    """A sweep over a server: the load of each point, and the requests that it consists of."""

    client: Literal["vllm", "aiperf", "loadgen", "plain"] = key(
        "Program that sends the requests and measures: vLLM's own client, AIPerf, MLPerf's LoadGen, or `plain`, our own client.",
        default="vllm",
    )
    model: str = key("Model that requests name, such as a folder. A sweep needs it.", default="")
    served_model: str = key("The server's name for the model, where it differs.", default="")
    tokenizer: str = key(
        "Folder of the tokenizer.json for the prompts, or `words`, each of which is a token. Default: the model.",
        default="",
    )
    endpoint: Literal["completions", "chat"] = key(
        "Which of the two interfaces for text requests go to.", default="completions"
    )
    concurrency: Annotated[tuple[int, ...], ListOf(item=_AT_LEAST_ONE, lone=True, distinct=True)] = key(
        "Numbers of requests in flight, a point each (closed loop).", default=()
    )
    rate: Annotated[tuple[float, ...], ListOf(item=_RATE, lone=True, distinct=True)] = key(
        "Arrivals a second, a point each (open loop).", default=()
    )
    scenario: tuple[Literal["offline", "single_stream"], ...] = key(
        "Points that are a scenario of LoadGen. Its scenario Server is `rate`.", default=()
    )
    arrivals: Literal["poisson", "constant"] = key("Distribution of the arrivals of a `rate`.", default="poisson")
    requests: Annotated[int, _AT_LEAST_ONE] = key(
        "Requests of a point. More where `rounds` or `seconds` ask for more, or a concurrency's last round is not full.",
        default=32,
    )
    rounds: Annotated[int, _COUNT] = key(
        "Minimum number of requests at a concurrency's point, for each request in flight.", default=4
    )
    seconds: Annotated[float, Number(at_least=0)] = key(
        "Minimum duration of a rate's point: it has at least the requests that arrive in this time.", default=10.0
    )
    warmup: Annotated[int, _COUNT] = key(
        "Requests before each point that do not count. At least its concurrency, unless 0.", default=2
    )
    input_tokens: Annotated[Any, Lengths()] = key("Length of the prompts.", default=128)
    output_tokens: Annotated[Any, Lengths()] = key("Tokens that each request asks for.", default=128)
    prefix_tokens: Annotated[int, Whole(at_least=0)] = key(
        "Of the prompt, the tokens at its beginning that all requests share.", default=0
    )
    trace: Annotated[str, TraceFile()] = key(
        "File of conversations that are replayed, instead of prompts of some length. Relative to this file.", default=""
    )
    slo: Limits = key("Limits of what a user sees. A point that breaks one does not count.", default={})
    on_server_exit: Literal["stop", "restart"] = key(
        "Action when the server ends in the middle: skip the other points, or start it again.", default="stop"
    )
    expert_routing: str = key(
        "How the server of a mixture of experts routes tokens, such as uniform_random. Part of the compared work.",
        default="",
    )
    acceptance_length: Annotated[float, Number(at_least=0)] = key(
        "Tokens a step that speculative decoding is set to accept. Part of the compared work. 0: none is declared.",
        default=0.0,
    )
    seed: Annotated[int, Whole(at_least=0)] = key("Decides prompts, lengths and arrivals.", default=1)
    request_options: Annotated[Mapping[str, Any], RequestOptions(item=Kind())] = key(
        "More keys of the body of each request. null removes a key that is there by default.", default={}
    )

    @property
    def points(self) -> int:
        """How many points it has."""
        return len(self.concurrency) + len(self.rate) + len(self.scenario)

    @property
    def most_requests(self) -> float:
        """How many requests its longest point has."""
        in_rounds = (together * max(self.rounds, math.ceil(self.requests / together)) for together in self.concurrency)
        return max(self.requests, *in_rounds, self.seconds * max(self.rate, default=0.0))

    def to_json(self) -> dict[str, Any]:
        """Return every key with its value, as the suite has it, tuples as lists. A name that is not given is the model's."""
        values = {declared.name: getattr(self, declared.name) for declared in fields(self)}
        values.update({name: list(values[name]) for name in POINTS})
        # Of runs from before these keys nothing is known to differ where they say nothing.
        values = {name: value for name, value in values.items() if value or name not in _DECLARED}
        return {**values, **{name: values[name] or self.model for name in ("served_model", "tokenizer")}}
