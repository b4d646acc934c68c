"""Our own client: streams over HTTP/1.1, closed and open loop, sessions of several turns; the standard library only.

For where no other client can be installed, for loadgen's system under test, for warming up, and for tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import math
import os
import random
import re
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import benchmate
from benchmate.errors import BenchmateError
from benchmate.serving.clients import Client
from benchmate.serving.load import (
    PATHS,
    LoadPoint,
    PlannedRequest,
    PointResult,
    RequestResult,
    Target,
    Workload,
    one_line,
)
from benchmate.serving.precise_loop import run_precisely
from benchmate.serving.workload import prompt_text

API_KEY = "OPENAI_API_KEY"
CONNECT_TIMEOUT_S = 60.0
_MOST_LINE_BYTES = 1 << 20
_MOST_PROMPT_TOKENS = 1 << 31
_MOST_ERROR_BYTES = 1 << 16
"""Of the body of an answer that is not 200: the rest is not read."""
_BYTES_OF_TOKEN, _BYTES_OF_ANSWER = 1 << 13, 1 << 20
"""Maximum bytes of an answer: for each requested token, and in addition to these."""
_EVENTS_OF_TOKEN, _EVENTS_OF_ANSWER = 8, 1024
_MOST_INTERIM = 100
"""Interim answers (1xx) before an answer, and lines after its last chunk."""
_PIECE_BYTES = 1 << 16
_STATUS = re.compile(r"HTTP/1\.([01]) (\d{3})(?: (.*))?")
_HEX = re.compile(rb"\s*([0-9a-fA-F]+)\s*(?:;|$)")
_NO_BODY = (204, 304)
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Value = TypeVar("Value")


def _measure(target: Target, point: LoadPoint, workload: Workload, folder: Path) -> PointResult:
    """Send the workload of a point and return the result. Writes no files."""
    return PointResult(requests=run_precisely(send_all(target, point, workload)))


CLIENT = Client(version=lambda: benchmate.__version__, measure=_measure)


async def send_all(target: Target, point: LoadPoint, workload: Workload) -> tuple[RequestResult, ...]:
    """Send every session: a fixed number at a time, or each when it is due. The results are in the order of the workload.

    After the deadline of the point none is sent any more, and those under way have failed.
    """
    firsts = [0, *itertools.accumulate(len(session) for session in workload.sessions)]
    results: list[RequestResult] = []
    async with contextlib.aclosing(StreamingClient(target, deadline=point.deadline)) as client:
        if point.rate is None:
            todo = iter(zip(firsts, workload.sessions, strict=False))

            async def work() -> None:
                while time.monotonic() < point.deadline and (session := next(todo, None)) is not None:
                    results.extend(await client.run_session(session[1], session[0]))

            await asyncio.gather(*(work() for _ in range(point.concurrency or 1)))
        else:
            loop, start = asyncio.get_running_loop(), asyncio.get_running_loop().time()
            running = []
            for first, session, arrival in zip(
                firsts, workload.sessions, arrival_times(point, len(workload.sessions)), strict=False
            ):
                # Never later because an answer is: the next one is sent when it is due, whatever is under way.
                await asyncio.sleep(min(start + arrival, point.deadline) - loop.time())
                if time.monotonic() >= point.deadline:
                    break
                running.append(asyncio.ensure_future(client.run_session(session, first, due=start + arrival)))
            for results_of_session in await asyncio.gather(*running):
                results.extend(results_of_session)
    return tuple(sorted(results, key=lambda result: result.index))


def arrival_times(point: LoadPoint, number: int) -> list[float]:
    """Return when each session of an open loop is due, in seconds after the first: on average `rate` a second.

    Arrivals of a Poisson process are scaled so that the last is due as at a constant rate: the suite's rate is
    the requests' rate, however few they are.
    """
    assert point.rate is not None
    constant = [index / point.rate for index in range(number)]
    if point.arrivals == "constant" or number < 2:
        return constant
    draw = random.Random(point.seed)
    times = list(itertools.accumulate((draw.expovariate(1.0) for _ in range(number - 1)), initial=0.0))
    return [time_s * constant[-1] / times[-1] for time_s in times]


class StreamingClient:
    """Sends requests to a server, over connections that are kept. `on_first` hears of each first token, by the index.

    A request that is under way at the deadline (`time.monotonic()`) has failed.
    """

    def __init__(
        self, target: Target, on_first: Callable[[int], object] = lambda _: None, deadline: float = math.inf
    ) -> None:
        self._target, self._on_first, self._deadline = target, on_first, deadline
        url = urlsplit(target.url)
        self._is_tls = url.scheme == "https"
        self._host, self._port = url.hostname or "127.0.0.1", url.port or (443 if self._is_tls else 80)
        self._path = f"{url.path.rstrip('/')}{PATHS[target.endpoint]}"
        # As other clients have it: a key in an argument or in a record could be read by anybody.
        key = "".join(os.environ.get(API_KEY, "").split())
        self._authorization = f"Authorization: Bearer {key}\r\n" if key else ""
        self._idle: list[Connection] = []
        self._used: weakref.WeakSet[asyncio.StreamWriter] = weakref.WeakSet()
        self._loop = asyncio.get_running_loop()
        self._unix_offset = time.time() - self._loop.time()

    async def aclose(self) -> None:
        """Close the connections."""
        for _, writer in self._idle:
            writer.close()
        self._idle = []

    async def run_session(
        self, session: Sequence[PlannedRequest], first_index: int, due: float | None = None
    ) -> list[RequestResult]:
        """Send the turns of a session, each after the previous answer. Stop at an error.

        `due` is the loop's time at which the first should be sent. A later request's time follows from the previous answer.
        """
        results: list[RequestResult] = []
        conversation: list[dict[str, str]] = []
        for index, request in enumerate(session, first_index):
            if results:
                due = self._loop.time() + request.delay_s if due is not None else None
                await asyncio.sleep(min(request.delay_s, self._left_s()))
                if self._left_s() == 0:
                    break
            conversation.append({"role": "user", "content": request.text})
            answer = _Answer(index, self._unix_offset, self._loop.time(), due, request.output_tokens)
            try:
                await asyncio.wait_for(self._send(conversation, answer), self._left_s())
            except asyncio.TimeoutError:  # noqa: UP041  (Python 3.10 has two)
                answer.error = (
                    f"no end of the answer after {self._loop.time() - answer.at:.3g} s: the time of the point was over"
                )
            results.append(answer.result(request, self._target))
            if answer.error:
                results += self._unsent(session[len(results) :], index + 1)
                break
            conversation.append({"role": "assistant", "content": "".join(answer.texts)})
        return results

    def _unsent(self, session: Sequence[PlannedRequest], first_index: int) -> Iterator[RequestResult]:
        """Yield the turns that have nothing to follow on."""
        for index, request in enumerate(session, first_index):
            at, error = self._loop.time() + self._unix_offset, "not sent: an earlier turn of its session failed"
            yield RequestResult(index=index, at=at, input_tokens=request.input_tokens, error=error)

    def _left_s(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    async def _send(self, conversation: Sequence[dict[str, str]], answer: _Answer) -> None:
        body = json.dumps(request_body(self._target, conversation, answer.asked)).encode()
        answer.at = self._loop.time()
        try:
            async with self._connection() as (reader, writer):
                response = await self._exchange(reader, writer, body)
                pieces = _body(reader, response)
                if response.status == 200:
                    async for line in _lines(pieces, _BYTES_OF_ANSWER + _BYTES_OF_TOKEN * answer.asked):
                        if answer.take(line, self._loop.time()) == 1:
                            self._on_first(answer.index)
                    answer.done = self._loop.time() - answer.at
                    answer.check_end(response.headers.get("content-type", ""))
                else:
                    text = b""
                    async for piece in pieces:
                        text += piece
                        if len(text) > _MOST_ERROR_BYTES:
                            writer.close()
                            break
                    answer.error = f"HTTP {response.status}: {_error_message(text) or response.why}"
                if not response.keeps_connection:
                    writer.close()
        except StaleConnection:
            # The server had closed it before the request came: it has not seen it, so that this is none of its errors.
            await self._send(conversation, answer)
        except asyncio.IncompleteReadError:
            answer.error = "the server closed the connection before the end of the answer"
        except asyncio.LimitOverrunError:
            answer.error = f"the answer is not HTTP: a line or head of more than {_MOST_LINE_BYTES >> 20} MiB"
        except (OSError, ValueError, RecursionError) as error:
            answer.error = one_line(getattr(error, "strerror", None) or error)

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes) -> _Response:
        """Send a request and return the head of its answer.

        Raises StaleConnection for a kept connection that the server has closed.
        """
        head = (
            f"POST {self._path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\nAccept: text/event-stream\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n{self._authorization}\r\n"
        )
        is_kept = writer in self._used
        self._used.add(writer)
        try:
            writer.write(head.encode() + body)
            return await _response(reader)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            if is_kept and not getattr(error, "partial", b""):
                raise StaleConnection from None
            raise

    @contextlib.asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        while self._idle and (self._idle[-1][0].at_eof() or self._idle[-1][1].is_closing()):
            self._idle.pop()[1].close()
        if self._idle:
            connection = self._idle.pop()
        else:
            opening = asyncio.open_connection(self._host, self._port, ssl=self._is_tls or None, limit=_MOST_LINE_BYTES)
            try:
                connection = await asyncio.wait_for(opening, CONNECT_TIMEOUT_S)
            except asyncio.TimeoutError:  # noqa: UP041  (Python 3.10 has two)
                raise TimeoutError(f"no connection within {CONNECT_TIMEOUT_S:g} s") from None
        try:
            yield connection
        except BaseException:
            connection[1].close()
            raise
        self._idle.append(connection)


class StaleConnection(Exception):
    """A connection that was kept from an earlier request, and that the server closed before it answered this request."""


@dataclass(frozen=True)
class _Arrival:
    """An event of a choice: when it came, whether it has text, and the output tokens up to it where it says so.

    A frame only opens a message, or only says why the answer ended.
    """

    at: float
    has_text: bool
    is_frame: bool
    tokens: int | None


class _Answer:
    """The received part of an answer, for which `asked` tokens were requested. Times are the loop's."""

    def __init__(self, index: int, unix_offset: float, at: float, due: float | None, asked: int) -> None:
        self.index, self._unix_offset, self.at, self._due, self.asked = index, unix_offset, at, due, asked
        self._arrivals: list[_Arrival] = []
        self._input_tokens: int | None = None
        self._output_tokens: int | None = None
        self._tokens_seen = 0
        self._is_whole = False
        self.texts: list[str] = []
        self.error = ""
        self.done: float | None = None

    def take(self, line: bytes, now: float) -> int:
        """Take a line of a stream and return which arrival of tokens it is, 0 for none.

        Raises ValueError where it is an event that is none of a completion's.
        """
        if not line.startswith(b"data:"):
            return 0
        data = line[5:].strip()
        if data == b"[DONE]":
            self._is_whole = True
            return 0
        event = _event(data)
        if event.get("error"):
            self.error = _error_message(data) or "an error without a message"
            return 0
        so_far = self._take_usage(event.get("usage"), data)
        for choice in _typed(event.get("choices"), list, data) or ():
            chosen = _typed(choice, dict, data) or {}
            delta = _typed(chosen.get("delta"), dict, data)
            if delta is None and chosen.get("text") is None and not chosen.get("finish_reason"):
                continue
            of_delta = (
                () if delta is None else (delta.get(name) for name in ("content", "reasoning_content", "reasoning"))
            )
            text = _typed(chosen.get("text") if delta is None else next(filter(None, of_delta), None), str, data) or ""
            ends = bool(chosen.get("finish_reason"))
            self._is_whole = self._is_whole or ends
            self.texts.append(text)
            is_frame = not text and (ends or "role" in (delta or ()))
            self._note(_Arrival(now, bool(text), is_frame, so_far))
            if not is_frame:
                self._tokens_seen += 1
                return self._tokens_seen
            return 0
        return 0

    def _note(self, arrival: _Arrival) -> None:
        self._arrivals.append(arrival)
        if len(self._arrivals) > _EVENTS_OF_ANSWER + _EVENTS_OF_TOKEN * self.asked:
            raise ValueError(f"{len(self._arrivals)} events in an answer of {self.asked} tokens")

    def _take_usage(self, usage: Any, data: bytes) -> int | None:
        """Return the output tokens up to an event, where it says so."""
        counts: dict[str, int] = {}
        for name, most in (("prompt_tokens", _MOST_PROMPT_TOKENS), ("completion_tokens", self.asked)):
            count = (_typed(usage, dict, data) or {}).get(name)
            if count is None:
                continue
            if type(count) is not int or count < 0:
                raise ValueError(f"usage.{name} is no number of tokens: {str(count)[:40]}")
            if count > most:
                raise ValueError(f"usage.{name} is {str(count)[:40]}: at most {most} are possible")
            counts[name] = count
        self._input_tokens = counts.get("prompt_tokens", self._input_tokens)
        self._output_tokens = counts.get("completion_tokens", self._output_tokens)
        return counts.get("completion_tokens")

    def check_end(self, content_type: str) -> None:
        """Set the error of an answer that is no stream of tokens, or ended too early."""
        if self.error:
            return
        if not self._tokens_seen:
            is_stream = not content_type or content_type.startswith("text/event-stream")
            self.error = (
                "the answer has no tokens" if is_stream else f"the answer is no stream of events: {content_type}"
            )
        elif not self._is_whole and len(self._of_tokens()[0]) < self.asked:
            self.error = "the stream ended before the answer was complete"

    def _of_tokens(self) -> tuple[list[float], tuple[int, ...]]:
        """Return when tokens came, and how many each time. The counts are empty where each is 1, or unknown.

        A server that counts in some events only does not say how many each of them brought.
        """
        counts, before = [], 0
        for each in self._arrivals:
            so_far = before if each.tokens is None and each.is_frame else each.tokens
            if so_far is None or so_far < before:
                break
            counts.append(so_far - before)
            before = so_far
        if len(counts) == len(self._arrivals) and before == self._output_tokens:
            brought = [(each.at, count) for each, count in zip(self._arrivals, counts, strict=True) if count]
            known = tuple(count for _, count in brought)
            return [at for at, _ in brought], known if set(known) - {1} else ()
        arrivals = [each for each in self._arrivals if not each.is_frame]
        with_text = [each for each in arrivals if each.has_text]
        if len(arrivals) != self._output_tokens and len(with_text) == self._output_tokens:
            arrivals = with_text
        return [each.at for each in arrivals], ()

    def result(self, request: PlannedRequest, target: Target) -> RequestResult:
        """Return the request as it is recorded.

        Where the server does not say how many tokens it sent, and the arrivals are not as many as were asked for, the tokens are
        the tokens of the text, by the tokenizer.
        """
        arrivals, counts = self._of_tokens()
        total = len(arrivals) if self._output_tokens is None else self._output_tokens
        if self.error:
            total = min(total, request.output_tokens)
        has_usage = self._output_tokens is not None or total == request.output_tokens or bool(self.error)
        if not has_usage:
            with contextlib.suppress(BenchmateError):
                count = prompt_text(target.tokenizer, target.endpoint).count
                total = max(1, count("".join(self.texts)) - count(""))
        return RequestResult(
            index=self.index,
            at=self.at + self._unix_offset,
            due=None if self._due is None else self._due + self._unix_offset,
            first=arrivals[0] - self.at if arrivals else None,
            end=arrivals[-1] - self.at if arrivals else None,
            done=self.done,
            gaps_us=tuple(round((after - before) * 1e6) for before, after in itertools.pairwise(arrivals)),
            tokens=counts,
            output_tokens=total,
            has_usage=has_usage,
            input_tokens=request.input_tokens if self._input_tokens is None else self._input_tokens,
            error=one_line(self.error),
        )


def _event(data: bytes) -> dict[str, Any]:
    try:
        event = json.loads(data)
    except (ValueError, RecursionError):
        raise ValueError(f"an event that is not JSON: {_excerpt(data)}") from None
    return _typed(event, dict, data) or {}


def _typed(value: Any, kind: type[Value], data: bytes) -> Value | None:
    """Return a value of an event, None where there is none. Raises ValueError for a value of another kind."""
    if value is None or isinstance(value, kind):
        return value
    raise ValueError(f"an event that is none of a completion: {_excerpt(data)}")


def _excerpt(data: bytes) -> str:
    return one_line(data[:80].decode("utf-8", "replace"))


def request_body(target: Target, conversation: Sequence[dict[str, str]], tokens: int) -> dict[str, Any]:
    """Return the body of a request that asks for an exact number of tokens after a conversation."""
    if target.endpoint == "chat":
        content: dict[str, Any] = {"messages": list(conversation)}
    else:
        content = {"prompt": "".join(message["content"] for message in conversation)}
    # The usage in each event, where a server has that: an event may bring several tokens.
    usage = {"include_usage": True, "continuous_usage_stats": True}
    options = {"stream": True, "stream_options": usage, **target.options}
    return {"model": target.model, **content, "max_tokens": tokens, **options}


@dataclass(frozen=True)
class _Response:
    status: int
    why: str
    headers: Mapping[str, str]
    keeps_connection: bool


async def _response(reader: asyncio.StreamReader) -> _Response:
    """Return the head of a response. Raises ValueError where it is not HTTP."""
    for _ in range(_MOST_INTERIM):
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        status = _STATUS.fullmatch(head[0])
        if status is None:
            raise ValueError(f"the answer is not HTTP: {one_line(head[0][:80])}")
        if not status[2].startswith("1"):
            break
    else:
        raise ValueError(f"no answer after {_MOST_INTERIM} interim ones")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
    kept = headers.get("connection", "keep-alive" if status[1] == "1" else "close").lower()
    where = headers.get("location")
    why = f"it redirects to {where}" if where else status[3] or "no reason given"
    return _Response(int(status[2]), why, headers, kept != "close")


async def _body(reader: asyncio.StreamReader, response: _Response) -> AsyncIterator[bytes]:
    """Yield the body of a response as it arrives."""
    length = response.headers.get("content-length")
    if response.headers.get("transfer-encoding", "").lower() == "chunked":
        while size := _chunk_size(await reader.readuntil(b"\r\n")):
            async for piece in _exactly(reader, size):
                yield piece
            await reader.readexactly(2)
        for _ in range(_MOST_INTERIM):
            if not (await reader.readuntil(b"\r\n")).strip():
                return
        raise ValueError(f"more than {_MOST_INTERIM} lines after the last chunk of the answer")
    elif length is None:
        # Without a length it ends with the connection.
        while response.status not in _NO_BODY and (piece := await reader.read(_PIECE_BYTES)):
            yield piece
    elif not length.isdecimal():
        raise ValueError(f"the answer is not HTTP: content-length {one_line(length)}")
    else:
        async for piece in _exactly(reader, int(length)):
            yield piece


async def _exactly(reader: asyncio.StreamReader, size: int) -> AsyncIterator[bytes]:
    """Yield this number of bytes as they arrive. Raises IncompleteReadError."""
    while size > 0:
        piece = await reader.read(min(size, _PIECE_BYTES))
        if not piece:
            raise asyncio.IncompleteReadError(b"", size)
        size -= len(piece)
        yield piece


def _chunk_size(line: bytes) -> int:
    digits = _HEX.match(line)
    if digits is None:
        raise ValueError(f"the answer is not HTTP: a chunk of {_excerpt(line)!r} bytes")
    return int(digits[1], 16)


async def _lines(pieces: AsyncIterator[bytes], most_bytes: int) -> AsyncIterator[bytes]:
    """Yield the lines of a body. Raises ValueError where the body, or a line, is too long."""
    rest, size = bytearray(), 0
    async for piece in pieces:
        size += len(piece)
        rest += piece
        if b"\n" in piece:
            *lines, last = bytes(rest).split(b"\n")
            for line in lines:
                yield line.rstrip(b"\r")
            rest = bytearray(last)
        if len(rest) > _MOST_LINE_BYTES:
            raise ValueError(f"an event of more than {_MOST_LINE_BYTES >> 20} MiB")
        if size > most_bytes:
            raise ValueError(f"an answer of more than {most_bytes >> 20} MiB")
    if rest:
        yield bytes(rest)


def _error_message(text: bytes) -> str:
    """Return a server's error message, in any form that servers use."""
    try:
        content = json.loads(text)
        while isinstance(content, dict) and content:
            content = content.get("message") or content.get("error") or content.get("detail") or json.dumps(content)
        return one_line(content)
    except (ValueError, RecursionError):
        return one_line(text.decode("utf-8", "replace"))
