"""Our own client: streams over HTTP/1.1, closed and open loop, sessions of several turns; the standard library only.

For where no other client can be installed, for loadgen's system under test, for warming up, and for tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmate.serving.load import PATHS, LoadPoint, PlannedRequest, PointResult, RequestResult, Target, Workload
from benchmate.serving.precise_loop import run_precisely

CONNECT_TIMEOUT_S = 60.0
_MOST_HEAD_BYTES = 1 << 20
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def version() -> str:
    """Return the version: that of benchmate."""
    from benchmate import __version__

    return __version__


def measure(target: Target, point: LoadPoint, workload: Workload, folder: Path) -> PointResult:
    """Send the workload of a point and return what was seen; writes no files."""
    return PointResult(requests=run_precisely(send_all(target, point, workload)))


async def send_all(target: Target, point: LoadPoint, workload: Workload) -> tuple[RequestResult, ...]:
    """Send every session: so many at a time, or each when it is due; the results are in the order of the workload."""
    firsts = [0, *itertools.accumulate(len(session) for session in workload.sessions)]
    results: list[RequestResult] = []
    async with contextlib.aclosing(StreamingClient(target)) as client:
        if point.rate is None:
            todo = iter(zip(firsts, workload.sessions, strict=False))

            async def work() -> None:
                for first, session in todo:
                    results.extend(await client.run_session(session, first))

            await asyncio.gather(*(work() for _ in range(point.concurrency or 1)))
        else:
            loop, start = asyncio.get_running_loop(), asyncio.get_running_loop().time()
            running = []
            for first, session, arrival in zip(
                firsts, workload.sessions, arrival_times(point, len(workload.sessions)), strict=False
            ):
                # Never later because an answer is: the next one is sent when it is due, whatever is under way.
                await asyncio.sleep(start + arrival - loop.time())
                running.append(asyncio.ensure_future(client.run_session(session, first, due=start + arrival)))
            for results_of_session in await asyncio.gather(*running):
                results.extend(results_of_session)
    return tuple(sorted(results, key=lambda result: result.index))


def arrival_times(point: LoadPoint, number: int) -> list[float]:
    """Return when each session of an open loop is due, in seconds after the first; on average `rate` a second.

    Those of a Poisson process are scaled so that the last is due when it would be at a constant rate: the rate of the suite is
    that of the requests, however few they are.
    """
    assert point.rate is not None
    constant = [index / point.rate for index in range(number)]
    if point.arrivals == "constant" or number < 2:
        return constant
    draw = random.Random(point.seed)
    times = list(itertools.accumulate((draw.expovariate(1.0) for _ in range(number - 1)), initial=0.0))
    return [time_s * constant[-1] / times[-1] for time_s in times]


class StreamingClient:
    """Sends requests to one server, over connections that are kept; `on_first` hears of each first token, by the index."""

    def __init__(self, target: Target, on_first: Callable[[int], object] = lambda _: None) -> None:
        self._target, self._on_first = target, on_first
        url = urlsplit(target.url)
        self._is_tls = url.scheme == "https"
        self._host, self._port = url.hostname or "127.0.0.1", url.port or (443 if self._is_tls else 80)
        self._path = f"{url.path.rstrip('/')}{PATHS[target.endpoint]}"
        self._idle: list[Connection] = []
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
        """Send the turns of a session, each when the one before it is answered; stop at an error.

        `due` is the loop's time at which the first should be sent; that of a later one follows from the answer before it.
        """
        results: list[RequestResult] = []
        conversation: list[dict[str, str]] = []
        for index, request in enumerate(session, first_index):
            if results:
                due = self._loop.time() + request.delay_s if due is not None else None
                await asyncio.sleep(request.delay_s)
            conversation.append({"role": "user", "content": request.text})
            answer = _Answer(index, self._unix_offset, self._loop.time(), due)
            await self._send(conversation, request.output_tokens, answer)
            results.append(answer.result(request))
            if answer.error:
                break
            conversation.append({"role": "assistant", "content": "".join(answer.texts)})
        return results

    async def _send(self, conversation: Sequence[dict[str, str]], tokens: int, answer: _Answer) -> None:
        body = json.dumps(request_body(self._target, conversation, tokens)).encode()
        answer.at = self._loop.time()
        try:
            async with self._connection() as (reader, writer):
                head = (
                    f"POST {self._path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\nAccept: text/event-stream\r\n"
                    f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
                )
                writer.write(head.encode() + body)
                status, pieces = await _response(reader)
                if status == 200:
                    async for line in _lines(pieces):
                        if answer.take(line, self._loop.time()) == 1:
                            self._on_first(answer.index)
                    answer.check_end()
                else:
                    text = b"".join([piece async for piece in pieces])
                    answer.error = f"HTTP {status}: {_error_message(text)}"
        except asyncio.TimeoutError:  # noqa: UP041  (Python 3.10 has two)
            answer.error = f"no connection within {CONNECT_TIMEOUT_S:g} s"
        except asyncio.IncompleteReadError:
            answer.error = "the server closed the connection before the end of the answer"
        except (OSError, ValueError, asyncio.LimitOverrunError) as error:
            answer.error = _one_line(getattr(error, "strerror", None) or error)

    @contextlib.asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        while self._idle and self._idle[-1][0].at_eof():
            self._idle.pop()[1].close()
        if self._idle:
            connection = self._idle.pop()
        else:
            opening = asyncio.open_connection(self._host, self._port, ssl=self._is_tls or None, limit=_MOST_HEAD_BYTES)
            connection = await asyncio.wait_for(opening, CONNECT_TIMEOUT_S)
        try:
            yield connection
        except BaseException:
            connection[1].close()
            raise
        self._idle.append(connection)


class _Answer:
    """What has come of one answer; times are the loop's."""

    def __init__(self, index: int, unix_offset: float, at: float, due: float | None) -> None:
        self.index, self._unix_offset, self.at, self._due = index, unix_offset, at, due
        self._arrivals: list[float] = []
        self._counts: list[int] = []
        self._usage: dict[str, int] = {}
        self._is_whole = False
        self.texts: list[str] = []
        self.error = ""

    def take(self, line: bytes, now: float) -> int:
        """Take one line of a stream and return which arrival of tokens it is, 0 for none.

        Raises ValueError where it is an event that is not JSON.
        """
        if not line.startswith(b"data:"):
            return 0
        data = line[5:].strip()
        if data == b"[DONE]":
            self._is_whole = True
            return 0
        event = json.loads(data)
        if "error" in event:
            self.error = _error_message(data)
            return 0
        known = self._usage.get("completion_tokens", 0)
        self._usage = event.get("usage") or self._usage
        for choice in event.get("choices") or ():
            delta = choice.get("delta")
            text = choice.get("text") if delta is None else delta.get("content") or delta.get("reasoning_content")
            self._is_whole = self._is_whole or bool(choice.get("finish_reason"))
            # The event that only opens a message holds no token, nor does one that only says why the answer ended.
            is_frame = not text and (bool(choice.get("finish_reason")) or "role" in (delta or ()))
            counted = self._usage.get("completion_tokens", 0) - known
            if not is_frame or counted > 0:
                self._arrivals.append(now)
                self._counts.append(counted)
                self.texts.append(text or "")
                return len(self._arrivals)
        return 0

    def check_end(self) -> None:
        """Set the error of a stream that ended too early."""
        if not self.error and not self._arrivals:
            self.error = "the answer has no tokens"
        elif not self.error and not self._is_whole:
            self.error = "the stream ended before the answer was complete"

    def result(self, request: PlannedRequest) -> RequestResult:
        """Return the request as it is recorded."""
        arrivals = self._arrivals
        total = self._usage.get("completion_tokens") or len(arrivals)
        # Where each event has the usage so far, it says how many tokens it brought.
        counts = tuple(self._counts) if sum(self._counts) == total else ()
        return RequestResult(
            index=self.index,
            at=self.at + self._unix_offset,
            due=None if self._due is None else self._due + self._unix_offset,
            first=arrivals[0] - self.at if arrivals else None,
            end=arrivals[-1] - self.at if arrivals else None,
            gaps_us=tuple(round((after - before) * 1e6) for before, after in itertools.pairwise(arrivals)),
            tokens=counts if set(counts) - {1} else (),
            output_tokens=total,
            input_tokens=self._usage.get("prompt_tokens") or request.input_tokens,
            error=_one_line(self.error),
        )


def request_body(target: Target, conversation: Sequence[dict[str, str]], tokens: int) -> dict[str, Any]:
    """Return the body of a request that asks for exactly so many tokens after a conversation."""
    if target.endpoint == "chat":
        content: dict[str, Any] = {"messages": list(conversation)}
    else:
        content = {"prompt": "".join(message["content"] for message in conversation)}
    # The usage in each event, where a server has that: an event may bring several tokens.
    usage = {"include_usage": True, "continuous_usage_stats": True}
    options = {"stream": True, "stream_options": usage, **target.options}
    return {"model": target.model, **content, "max_tokens": tokens, **options}


async def _response(reader: asyncio.StreamReader) -> tuple[int, AsyncIterator[bytes]]:
    """Return the status of a response, and its body piece by piece."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    status = int(head[0].split(" ")[1])
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return status, _chunks(reader)
    return status, _sized(reader, int(headers["content-length"]) if "content-length" in headers else None)


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
        yield await reader.readexactly(size)
        await reader.readexactly(2)
    while (await reader.readuntil(b"\r\n")).strip():
        pass


async def _sized(reader: asyncio.StreamReader, size: int | None) -> AsyncIterator[bytes]:
    # Without a length it ends with the connection.
    yield await (reader.read() if size is None else reader.readexactly(size))


async def _lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest = b""
    async for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line.rstrip(b"\r")
    if rest:
        yield rest


def _error_message(text: bytes) -> str:
    """Return what a server says of an error, in one of the forms that servers use."""
    try:
        content = json.loads(text)
    except ValueError:
        content = text.decode("utf-8", "replace")
    while isinstance(content, dict):
        content = content.get("message") or content.get("error") or content.get("detail") or json.dumps(content)
    return _one_line(content)


def _one_line(text: object) -> str:
    return " ".join(str(text).split())[:500]
