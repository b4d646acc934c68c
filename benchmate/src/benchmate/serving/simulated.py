"""A server of language models without a model: it answers at times that are known, and logs when it did.

`python -m benchmate.serving.simulated --port 8000 --ttft-ms 200 --itl-ms 20 --log truth.jsonl`. A request waits until one of the
slots is free; `ttft` later goes its first token, and each further token `itl` after the target of the previous, not after the
moment when that was sent: delays do not add up. Streams have a token per event, the usage in the last.
The log has a line for each request: its own times, independent of the client.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TextIO

from benchmate.serving.precise_loop import run_precisely

DEFAULT_OUTPUT_TOKENS = 16
"""As OpenAI's protocol has it for a request that names no number."""
MODEL = "simulated"
_MOST_BODY_BYTES = 64 << 20
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 411: "Length Required", 500: "Internal Server Error"}


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """How the server answers. Times in seconds. Of `*_every` each n-th request is meant, 0 none.

    `stall_at` counts from the first request: for `stall_s` nothing is sent, and answers under way resume where they were.
    `context` 0 and `slots` 0 are without limit. `exit_after` ends the process at that request.
    """

    ttft_s: float = 0.2
    itl_s: float = 0.02
    slots: int = 0
    stall_at: float = 0.0
    stall_s: float = 0.0
    error_every: int = 0
    close_every: int = 0
    exit_after: int = 0
    context: int = 0


@dataclass(kw_only=True)
class Served:
    """A request as the server saw it: unix seconds of its arrival, seconds after it for the rest."""

    number: int
    received: float
    input_tokens: int
    output_tokens: int = 0
    waited: float = 0.0
    sent: list[float] = field(default_factory=list)
    error: str = ""

    def log_line(self) -> str:
        """Return the request as a line of JSON."""
        gaps = [round((after - before) * 1e6) for before, after in itertools.pairwise(self.sent)]
        values = {
            "request": self.number,
            "received": self.received,
            "waited": round(self.waited, 6),
            "first": round(self.sent[0], 6) if self.sent else None,
            "end": round(self.sent[-1], 6) if self.sent else None,
            "gaps_us": gaps,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "error": self.error,
        }
        return json.dumps(values) + "\n"


class ServiceClock:
    """The clock that the server's work follows: it stands still during the stall."""

    def __init__(self, behaviour: Behaviour) -> None:
        self._behaviour = behaviour
        self._stall_begin = float("inf")

    def first_request(self, now: float) -> None:
        """Begin to count towards the stall, once."""
        if self._behaviour.stall_s and self._stall_begin == float("inf"):
            self._stall_begin = now + self._behaviour.stall_at

    def service_time(self, real: float) -> float:
        """Return the service clock's reading at a real time."""
        past_s = min(max(real - self._stall_begin, 0.0), self._behaviour.stall_s)
        return real - past_s

    def real_time(self, service: float) -> float:
        """Return when, in real time, the service clock passes a reading."""
        return service if service < self._stall_begin else service + self._behaviour.stall_s


class SimulatedServer:
    """Answers OpenAI's completions and chat completions, /v1/models, /health and /metrics."""

    def __init__(self, behaviour: Behaviour, log: TextIO | None = None) -> None:
        self._behaviour, self._log = behaviour, log
        self._loop = asyncio.get_running_loop()
        self._unix_offset = time.time() - self._loop.time()
        self._clock = ServiceClock(behaviour)
        self._slots = asyncio.Semaphore(behaviour.slots or sys.maxsize)
        self._requests = self._running = self._waiting = 0

    async def serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of a connection until it closes."""
        # Cancelled at the end of the server, which Python 3.11 would report as an error.
        ended = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError, asyncio.CancelledError)
        with contextlib.suppress(*ended):
            while await self._serve_request(reader, writer):
                pass
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    async def _serve_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer a request. Return whether the connection stays open."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        method, path, *_ = [*head[0].split(" "), "", ""]
        path = path.partition("?")[0]
        if "transfer-encoding" in headers:
            await _send(writer, 411, _error("send the body with its length"))
            return False
        length = int(headers.get("content-length", "0"))
        if length > _MOST_BODY_BYTES:
            await _send(writer, 400, _error(f"a body of {length} bytes is too long"))
            return False
        body = await reader.readexactly(length)
        stays_open = headers.get("connection", "").lower() != "close"
        if method == "POST" and path in ("/v1/completions", "/v1/chat/completions"):
            return await self._complete(path.endswith("chat/completions"), body, writer) and stays_open
        if path == "/v1/models":
            entry = {"id": MODEL, "object": "model", "created": 0, "owned_by": "benchmate"}
            await _send(writer, 200, {"object": "list", "data": [entry]})
        elif path == "/health":
            await _send(writer, 200, {})
        elif path == "/metrics":
            await _send(writer, 200, self._metrics())
        else:
            await _send(writer, 404, _error(f"{method} {path}: unknown"))
        return stays_open

    async def _complete(self, is_chat: bool, body: bytes, writer: asyncio.StreamWriter) -> bool:
        arrived = self._loop.time()
        self._clock.first_request(arrived)
        self._requests += 1
        served = Served(number=self._requests, received=arrived + self._unix_offset, input_tokens=0)
        try:
            return await self._answer(served, arrived, is_chat, body, writer)
        except BadRequestError as error:
            served.error = str(error)
            await _send(writer, 400, _error(served.error))
            return True
        except OSError:
            served.error = "the client closed the connection"
            return False
        finally:
            if self._log is not None:
                self._log.write(served.log_line())

    async def _answer(
        self, served: Served, arrived: float, is_chat: bool, body: bytes, writer: asyncio.StreamWriter
    ) -> bool:
        behaviour = self._behaviour
        request = parse_request(body)
        served.input_tokens = count_input(request, is_chat)
        tokens = output_tokens(request)
        if behaviour.context and served.input_tokens + tokens > behaviour.context:
            raise BadRequestError(
                f"This model's maximum context length is {behaviour.context} tokens, but the request has "
                f"{served.input_tokens} tokens of input and asks for {tokens} of output"
            )
        if _is_nth(served.number, behaviour.exit_after):
            os._exit(3)
        if _is_nth(served.number, behaviour.error_every):
            served.error = "error on request"
            await _send(writer, 500, _error(served.error))
            return True
        closes_after = max(1, tokens // 2) if _is_nth(served.number, behaviour.close_every) else None
        async with self._slot():
            began = self._loop.time()
            served.waited = began - arrived
            stream = _Stream(writer, is_chat=is_chat, model=str(request.get("model", MODEL)), number=served.number)
            is_streamed = bool(request.get("stream"))
            if is_streamed:
                stream.begin()
            target = self._clock.service_time(began) + behaviour.ttft_s
            for index in range(tokens):
                await self._wait_until(target)
                if index == closes_after:
                    served.error = "closed early"
                    return False
                if is_streamed:
                    stream.token(index, is_last=index == tokens - 1)
                    await writer.drain()
                served.output_tokens = index + 1
                served.sent.append(self._loop.time() - arrived)
                target += behaviour.itl_s
        usage = {
            "prompt_tokens": served.input_tokens,
            "completion_tokens": tokens,
            "total_tokens": served.input_tokens + tokens,
        }
        if is_streamed:
            stream.end(usage)
            await writer.drain()
        else:
            await _send(writer, 200, stream.whole(tokens, usage))
        return True

    async def _wait_until(self, service_target: float) -> None:
        # A request that began before the first one's stall was known would miss it, had its real time been computed then.
        while (left := self._clock.real_time(service_target) - self._loop.time()) > 0:
            await asyncio.sleep(left)

    @contextlib.asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        self._waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self._waiting -= 1
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            self._slots.release()

    def _metrics(self) -> str:
        share = self._running / self._behaviour.slots if self._behaviour.slots else 0.0
        label = f'{{model_name="{MODEL}"}}'
        return (
            f"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{label} {self._running}\n"
            f"# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{label} {self._waiting}\n"
            f"# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc{label} {share}\n"
        )


class BadRequestError(Exception):
    """A request that cannot be answered. The text is a single line."""


class _Stream:
    """The server-sent events of an answer, or its whole text."""

    def __init__(self, writer: asyncio.StreamWriter, *, is_chat: bool, model: str, number: int) -> None:
        self._writer, self._is_chat = writer, is_chat
        kind = "chat.completion" if is_chat else "text_completion"
        self._base = {"id": f"cmpl-{number}", "object": kind, "created": int(time.time()), "model": model}
        self._chunk = self._base | ({"object": "chat.completion.chunk"} if is_chat else {})

    def begin(self) -> None:
        """Send the headers of a stream."""
        self._writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )

    def token(self, index: int, *, is_last: bool) -> None:
        """Send a token as an event."""
        content = {"delta": {"content": _word(index)}} if self._is_chat else {"text": _word(index)}
        choice = {"index": 0, **content, "finish_reason": "length" if is_last else None}
        self._event(json.dumps(self._chunk | {"choices": [choice]}))

    def end(self, usage: Mapping[str, int]) -> None:
        """Send the usage and end the stream."""
        self._event(json.dumps(self._chunk | {"choices": [], "usage": usage}))
        self._event("[DONE]")
        self._writer.write(b"0\r\n\r\n")

    def whole(self, tokens: int, usage: Mapping[str, int]) -> dict[str, object]:
        """Return the answer that is not streamed."""
        text = "".join(map(_word, range(tokens)))
        content = {"message": {"role": "assistant", "content": text}} if self._is_chat else {"text": text}
        return self._base | {"choices": [{"index": 0, **content, "finish_reason": "length"}], "usage": usage}

    def _event(self, text: str) -> None:
        data = f"data: {text}\n\n".encode()
        self._writer.write(b"%x\r\n%s\r\n" % (len(data), data))


def parse_request(body: bytes) -> dict[str, Any]:
    """Return the body of a request. Raises BadRequestError."""
    with contextlib.suppress(ValueError):
        request = json.loads(body)
        if isinstance(request, dict):
            return request
    raise BadRequestError("the body is not a JSON object")


def count_input(request: Mapping[str, Any], is_chat: bool) -> int:
    """Return the input tokens of a request: ids as they are, words of texts. Raises BadRequestError."""
    if not is_chat:
        prompt = request.get("prompt")
        if isinstance(prompt, str):
            return len(prompt.split())
        if isinstance(prompt, list) and prompt and all(type(token) is int for token in prompt):
            return len(prompt)
        raise BadRequestError("prompt: expected a text or a list of token ids")
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(each, dict) for each in messages):
        raise BadRequestError("messages: expected a list of messages")
    contents = [message.get("content") for message in messages]
    # A message has a text, or parts of which some are texts.
    parts = [part for content in contents for part in (content if isinstance(content, list) else [content])]
    texts = [part.get("text", "") if isinstance(part, dict) else part for part in parts]
    return sum(len(text.split()) for text in texts if isinstance(text, str))


def output_tokens(request: Mapping[str, Any]) -> int:
    """Return how many tokens a request asks for. Raises BadRequestError."""
    number = request.get("max_completion_tokens", request.get("max_tokens", DEFAULT_OUTPUT_TOKENS))
    if type(number) is not int or number < 1:
        raise BadRequestError(f"max_tokens: expected a whole number of at least 1, got {number!r}")
    return number


def _word(index: int) -> str:
    return f" {'abcdefghijklmnopqrstuvwxyz'[index % 26]}"


def _is_nth(number: int, every: int) -> bool:
    return every > 0 and number % every == 0


def _error(message: str) -> dict[str, object]:
    return {"error": {"message": message, "type": "error", "code": None}}


async def _send(writer: asyncio.StreamWriter, status: int, content: Mapping[str, object] | str) -> None:
    is_text = isinstance(content, str)
    body = content.encode() if isinstance(content, str) else json.dumps(content).encode()
    kind = "text/plain; version=0.0.4" if is_text else "application/json"
    head = f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()


async def serve(host: str, port: int, behaviour: Behaviour, log: TextIO | None = None) -> None:
    """Serve until SIGTERM or SIGINT. Raises OSError where the port is in use."""
    simulated = SimulatedServer(behaviour, log)
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    # A queue of connections for every request that a client sends at once.
    server = await asyncio.start_server(simulated.serve_connection, host, port, backlog=4096, limit=1 << 20)
    print(f"listening on http://{host}:{server.sockets[0].getsockname()[1]}", flush=True)
    await ended.wait()
    # Python 3.12's wait_closed waits for connections that clients keep open; the process ends instead.
    server.close()


def command_line(argv: Sequence[str]) -> argparse.Namespace:
    """Return the command line, refused with a line where it is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmate.serving.simulated", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=_whole, required=True, help="0: a free port, named in the first line of output")
    parser.add_argument("--ttft-ms", type=_number, default=200.0, help="from the start of a request to its first token")
    parser.add_argument("--itl-ms", type=_number, default=20.0, help="between two tokens")
    parser.add_argument("--slow", type=_number, default=1.0, metavar="FACTOR", help="both times multiplied")
    parser.add_argument("--slots", type=_whole, default=0, help="requests that are answered at once (0: all)")
    parser.add_argument("--stall-at", type=_number, default=0.0, metavar="S", help="after the first request")
    parser.add_argument("--stall-s", type=_number, default=0.0, metavar="S", help="nothing is sent for so long")
    parser.add_argument("--error-every", type=_whole, default=0, metavar="N", help="each N-th request fails with 500")
    parser.add_argument("--close-every", type=_whole, default=0, metavar="N", help="each N-th is closed half-way")
    parser.add_argument("--exit-after", type=_whole, default=0, metavar="N", help="exit with code 3 at the N-th")
    parser.add_argument("--context", type=_whole, default=0, metavar="N", help="most tokens of input and output")
    parser.add_argument("--log", type=Path, metavar="FILE", help="append a line of JSON for each request")
    return parser.parse_args(argv)


def _number(text: str) -> float:
    number = float(text)
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number of at least 0, got {text!r}")
    return number


def _whole(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 0, got {text!r}")
    return number


def main(argv: Sequence[str] | None = None) -> int:
    """Serve as the command line says. Return the exit code."""
    args = command_line(sys.argv[1:] if argv is None else argv)
    # The other options are stored under the names of their fields.
    same = {field.name: getattr(args, field.name) for field in fields(Behaviour) if field.name in args}
    behaviour = Behaviour(ttft_s=args.ttft_ms * args.slow / 1e3, itl_s=args.itl_ms * args.slow / 1e3, **same)
    try:
        with contextlib.ExitStack() as stack:
            log = stack.enter_context(args.log.open("a", buffering=1)) if args.log else None
            run_precisely(serve(args.host, args.port, behaviour, log))
    except (OSError, OverflowError) as error:
        where = args.log if isinstance(error, OSError) and error.filename else f"{args.host}:{args.port}"
        print(f"error: {where}: {getattr(error, 'strerror', None) or error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
