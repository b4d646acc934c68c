"""A sweep over a server: the points of `serve` in sequence, each warmed up, measured by a client, and recorded."""

from __future__ import annotations

import contextlib
import math
import signal
import tempfile
import time
import traceback
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

from benchmate.errors import BenchmateError
from benchmate.recording import Recording
from benchmate.records import encode
from benchmate.serving.clients import Client, ClientFailed, load_client, plain
from benchmate.serving.figures import point_notes, tail_note
from benchmate.serving.load import LoadPoint, PointResult, RequestResult, Target, Workload, one_line
from benchmate.serving.precise_loop import run_precisely
from benchmate.serving.server_watch import ServerWatch, is_refused, says_refused, wait_until_ready
from benchmate.serving.workload import WorkloadRecipe, prompt_text, read_sessions

RECORD_BYTES = 60 << 10
"""A record of a request is cut to this length."""
PROBE_S = 60.0
DIED = "the server ended"
_READY_TIMEOUT_S = 600.0
_POINT_SHARE = 0.9
"""Of `max_duration`, which is a point's: the rest is for work before the first and after the last point."""
_GIVE_UP_S = 2.0
_NO_RESULT = PointResult(requests=())


class Interrupted(KeyboardInterrupt):
    """Ctrl-C or TERM. A KeyboardInterrupt, which asyncio lets through from anywhere."""

    def __init__(self, signal_name: str, number: int) -> None:
        super().__init__(f"interrupted by {signal_name}")
        self.number = number


class PointOver(KeyboardInterrupt):
    """The time of a point is over, and its client has not ended."""


@dataclass(frozen=True, kw_only=True)
class SweepPlan:
    """Everything of a sweep that is decided before its first request. A point, its warm-up with it, has `point_s`."""

    client: str
    target: Target
    points: tuple[LoadPoint, ...]
    recipe: WorkloadRecipe
    requests: int
    rounds: int
    seconds: float
    warmup: int
    slo: Mapping[str, float]
    seed: int
    restarts: bool
    ready_path: str
    ready_timeout_s: float
    point_s: float = math.inf

    def number_of(self, point: LoadPoint) -> int:
        """Return how many requests a point has. Requests of a closed loop are whole rounds, so that none ends alone."""
        if point.concurrency:
            return point.concurrency * max(self.rounds, math.ceil(self.requests / point.concurrency))
        return max(self.requests, math.ceil(self.seconds * (point.rate or 0.0)))


def plan_sweep(config: Mapping[str, Any], url: str, arguments: Sequence[str]) -> SweepPlan:
    """Return the sweep of a benchmark's resolved configuration. Raises BenchmateError with the problem in a line."""
    serve = config.get("serve")
    if not isinstance(serve, Mapping):
        raise BenchmateError(
            "the configuration has no `serve`. MILABENCH_BENCH_CONFIG names the file of a benchmark that has"
        )
    ready = (config.get("server") or {}).get("ready") or {}
    prompts = prompt_text(serve["tokenizer"], serve["endpoint"])
    recipe = WorkloadRecipe(
        prompts=prompts,
        sessions=read_sessions(serve["trace"], prompts) if serve["trace"] else (),
        **{name: serve[name] for name in ("input_tokens", "output_tokens", "prefix_tokens", "seed")},
    )
    options = {"ignore_eos": True, **serve["request_options"]}
    points = tuple(_points(serve))
    if not points:
        raise BenchmateError("serve: no points. Give concurrency, rate or scenario")
    return SweepPlan(
        target=Target(
            url=url.rstrip("/"),
            model=serve["served_model"],
            tokenizer=serve["tokenizer"],
            endpoint=serve["endpoint"],
            options={name: value for name, value in options.items() if value is not None},
            arguments=tuple(arguments),
        ),
        points=points,
        recipe=recipe,
        restarts=serve["on_server_exit"] == "restart",
        ready_path=ready.get("path") or "",
        ready_timeout_s=float(ready.get("timeout_s") or _READY_TIMEOUT_S),
        point_s=_POINT_SHARE * float(config.get("max_duration") or math.inf),
        **{name: serve[name] for name in ("client", "requests", "rounds", "seconds", "warmup", "slo", "seed")},
    )


def _points(serve: Mapping[str, Any]) -> Iterator[LoadPoint]:
    for kind in ("concurrency", "rate", "scenario"):
        for value in serve[kind]:
            # A number whole and exact: two points must not have one name.
            is_whole = isinstance(value, float) and value.is_integer()
            name = f"{kind}={int(value) if is_whole else value}"
            # Other arrivals for each point, the same in each launch.
            own: dict[str, Any] = {kind: value, "seed": zlib.crc32(f"{serve['seed']} {name}".encode())}
            yield LoadPoint(name=name, arrivals=serve["arrivals"], **own)


class Sweep:
    """Carries out a plan."""

    def __init__(self, plan: SweepPlan, recorder: Recording) -> None:
        self._plan, self._recorder = plan, recorder
        self._client: Client = load_client(plan.client)
        self._was_gone = False

    def run(self) -> int:
        """Measure every point. Return how many were measured. Raises ClientFailed without a client, Interrupted, BenchmateError.

        Whatever happens, each point has its record in the end.
        """
        plan = self._plan
        about = {"client": plan.client, "version": self._client.version(), "seed": plan.seed, "slo": dict(plan.slo)}
        target = {"endpoint": plan.target.endpoint, "model": plan.target.model, "url": plan.target.url}
        self._recorder.record("data", {"serving": {**about, **target}})
        measured, left = 0, list(plan.points)
        why = "the sweep ended before it"
        try:
            while left:
                point = left.pop(0)
                in_hand = [len(plan.points) - len(left), len(plan.points)]
                self._recorder.record("data", {"progress": in_hand, "case": point.name})
                measured += self._run_point(point)
        except (ServerGone, Interrupted) as error:
            why = str(error)
            raise
        finally:
            for point in left:
                self._end_point(point, "skipped", why=f"{why} at an earlier point" if why == DIED else why)
        return measured

    def _run_point(self, point: LoadPoint) -> bool:
        """Measure a point and record it. Return whether it was measured."""
        start = time.time()
        try:
            result, readings, why = self._measure(point)
        except (Exception, Interrupted, PointOver) as error:
            why = str(error)
            # Whoever ends a step because its server has ended may be faster than a request that fails.
            if isinstance(error, Interrupted) and is_refused(self._plan.target.url):
                error.args, why = (DIED,), DIED
            elif not isinstance(error, (BenchmateError, KeyboardInterrupt)):
                # A client that is another version than its adapter knows: the other points may go well, and have records anyway.
                traceback.print_exc()
                why = f"{type(error).__name__}: {error}"
            self._end_point(point, "failed", why=one_line(why), start=start)
            is_gone = isinstance(error, ServerGone)
            if isinstance(error, Interrupted) or (is_gone and (self._was_gone or not self._plan.restarts)):
                raise
            self._was_gone = is_gone
            return False
        return self._record(point, result, readings, start, why)

    def _measure(self, point: LoadPoint) -> tuple[PointResult, Mapping[str, float], str]:
        """Return the measurement of a point, and why it failed nevertheless, if it did: its time was over."""
        if self._was_gone:
            self._await_server()
        plan = self._plan
        workload = plan.recipe.workload(point.name, plan.number_of(point))
        point = replace(point, deadline=time.monotonic() + plan.point_s)
        with self._time_limit():
            self._warm_up(point)
            with (
                tempfile.TemporaryDirectory(prefix="benchmate-serving-") as folder,
                ServerWatch(plan.target.url) as watch,
            ):
                try:
                    result = self._client.measure(plan.target, point, workload, Path(folder))
                except ClientFailed:
                    self._require_server(watch, ())
                    raise
        for request in result.requests:
            self._recorder.record("data", {"request": request_record(point.name, request)})
        self._require_server(watch, result.requests)
        why = ""
        if time.monotonic() >= point.deadline and any(request.error for request in result.requests):
            answered = sum(not request.error for request in result.requests)
            why = f"{answered} of {len(workload.requests)} requests were answered {self._over}"
        notes = [*point_notes(point, workload, result.requests, result.client), tail_note(point, result.requests)]
        readings = watch.averages(*_window(result.requests)) if result.requests else {}
        return replace(result, notes=(*result.notes, *filter(None, notes))), readings, why

    @contextlib.contextmanager
    def _time_limit(self) -> Iterator[None]:
        """Raise PointOver in the block when the time of a point is over, and a little later for clients that know the limit."""
        if self._plan.point_s == math.inf:
            yield
            return

        def end(number: int, frame: FrameType | None) -> None:
            raise PointOver(f"its client had not ended {self._over}")

        before = signal.signal(signal.SIGALRM, end)
        signal.setitimer(signal.ITIMER_REAL, self._plan.point_s + min(_GIVE_UP_S, self._plan.point_s / 20))
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    @property
    def _over(self) -> str:
        return f"within {self._plan.point_s:.4g} s ({100 * _POINT_SHARE:g} % of max_duration)"

    def _warm_up(self, point: LoadPoint) -> None:
        """Send the requests that do not count, by our own client. Raises ServerGone, ClientFailed in the server's words."""
        number = max(self._plan.warmup, point.concurrency or 0) if self._plan.warmup else 0
        if not number:
            return
        workload = self._plan.recipe.workload(f"warm-up of {point.name}", number)
        results = self._send(replace(point, rate=None, concurrency=point.concurrency or number), workload)
        self._require_server(None, results)
        errors = [result.error for result in results if result.error]
        if len(errors) == len(results):
            raise ClientFailed(errors[0])

    def _send(self, point: LoadPoint, workload: Workload) -> tuple[RequestResult, ...]:
        return run_precisely(plain.send_all(self._plan.target, point, workload))

    def _require_server(self, watch: ServerWatch | None, requests: Sequence[RequestResult]) -> None:
        was_gone = (watch is not None and watch.is_gone) or any(says_refused(each.error) for each in requests)
        if was_gone or is_refused(self._plan.target.url):
            raise ServerGone(DIED)

    def _await_server(self) -> None:
        """Wait until the server answers again. Raises ServerGone."""
        plan = self._plan
        if not wait_until_ready(plan.target.url, plan.ready_path, plan.ready_timeout_s):
            raise ServerGone(f"the server did not answer again within {plan.ready_timeout_s:g} s")
        self._was_gone = False

    def _record(
        self, point: LoadPoint, result: PointResult, readings: Mapping[str, float], start: float, why: str
    ) -> bool:
        for name, value in readings.items():
            self._recorder.record("data", {"metric": name, "value": value, "case": point.name, "units": ""})
        errors = [request.error for request in result.requests if request.error]
        is_measured = not why and len(errors) < len(result.requests)
        why = why or ("" if is_measured else self._why_none(errors))
        state = "measured" if is_measured else "failed"
        self._end_point(point, state, why=why, start=start, result=result)
        return is_measured

    def _why_none(self, errors: Sequence[str]) -> str:
        """Return why no request succeeded, in the server's words, which other clients than ours leave out."""
        if not errors:
            return "the client sent no request"
        with contextlib.suppress(BenchmateError):
            probe = LoadPoint(name="", concurrency=1, deadline=time.monotonic() + PROBE_S)
            for result in self._send(probe, self._plan.recipe.workload("", 1)):
                return result.error or errors[0]
        return errors[0]

    def _end_point(
        self,
        point: LoadPoint,
        state: str,
        *,
        why: str = "",
        start: float | None = None,
        result: PointResult = _NO_RESULT,
    ) -> None:
        requests = result.requests
        began, ended = _window(requests) if requests else (start, time.time())
        load: dict[str, object] = {}
        if point.concurrency is not None:
            load = {"concurrency": point.concurrency}
        elif point.rate is not None:
            load = {"rate": point.rate, "arrivals": point.arrivals}
        record = {
            "name": point.name,
            **load,
            "state": state,
            "why": why,
            "notes": [one_line(note) for note in result.notes],
            "requests": len(requests),
            "warmup": max(self._plan.warmup, point.concurrency or 0) if self._plan.warmup else 0,
            **({} if began is None else {"start": began, "stop": ended}),
            "client": dict(result.client),
        }
        self._recorder.record("data", {"point": record})
        print(f"{point.name}: {state}{f': {why}' if why else ''}", flush=True)


class ServerGone(BenchmateError):
    """The server ended. The text is a single line."""


def _window(requests: Sequence[RequestResult]) -> tuple[float, float]:
    """Return when the first request was sent and the last ended, unix seconds."""
    return min(each.at for each in requests), max(each.at + (each.end or 0.0) for each in requests)


def request_record(point: str, request: RequestResult) -> dict[str, object]:
    """Return the record of a request. Its gaps are cut where it would be longer than a record may be."""
    record: dict[str, object] = {"point": point, "index": request.index, "at": request.at}
    optional = {"due": request.due, "first": request.first, "end": request.end}
    record |= {name: value for name, value in optional.items() if value is not None}
    record["gaps_us"] = list(request.gaps_us)
    if request.tokens:
        record["tokens"] = list(request.tokens)
    record |= {"output_tokens": request.output_tokens, "input_tokens": request.input_tokens}
    record["error"] = one_line(request.error)
    size = len(encode(record))
    if size > RECORD_BYTES:
        kept = len(request.gaps_us) * RECORD_BYTES // size // 2
        record |= {"gaps_us": list(request.gaps_us[:kept]), "cut": True}
        if request.tokens:
            record["tokens"] = list(request.tokens[: kept + 1])
    return record
