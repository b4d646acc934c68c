"""Runs of a server that was swept: records of requests whose times are written down here, so that every number is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from milabench.events.model import Config, Event
from milabench.events.rundir import Run
from tests.recorded_run import Recorded, data, record

LOADS = (1, 2, 4, 8, 16, 32, 64)
RATES = (1.0, 4.0)
REQUESTS, TOKENS, INPUT = 64, 33, 128
SLOTS = 16  # requests that the drawn server works on at once; more of them wait
SLO = {"ttft_p90_ms": 500.0, "tpot_p90_ms": 50.0}


def about(**more: Any) -> Event:
    """What a client says of itself, once."""
    said = {
        "client": "plain",
        "version": "1.0",
        "seed": 1,
        "endpoint": "completions",
        "model": "tiny",
        "url": "http://x",
    }
    return data(serving={**said, "slo": {}, **more})


def request(point: str, index: int, at: float, first: float, gaps_us: Sequence[int] = (), **more: Any) -> Event:
    """One request that was answered: a token at `first`, then one after each gap."""
    end = first + sum(gaps_us) / 1e6
    times = {"at": at, "first": first, "end": end, "gaps_us": list(gaps_us)}
    counts = {"output_tokens": len(gaps_us) + 1, "input_tokens": INPUT, "error": ""}
    return data(request={"point": point, "index": index, **times, **counts, **more})


def end_of(point: str, **more: Any) -> Event:
    """The record at the end of a point; its load is in its name."""
    kind, _, load = point.partition("=")
    loaded = {kind: float(load)} if kind in ("concurrency", "rate") else {}
    return data(point={"name": point, **loaded, "state": "measured", "why": "", "notes": [], "client": {}, **more})


def drawn_point(point: str, start: float, slower: float, *, rate: float | None = None) -> Iterator[Event]:
    """A point of a server that takes longer per token the more it works on, and lets wait what it has no slot for."""
    kind, _, load = point.partition("=")
    flying = float(load) if kind == "concurrency" else max(1.0, float(load) / 2)
    itl_us = int(slower * 1000 * (10 + 0.5 * min(flying, SLOTS)))
    waits = max(0.0, flying / SLOTS - 1) * (TOKENS - 1) * itl_us / 1e6
    first = slower * (0.05 + 0.002 * flying) + waits
    lasts = first + (TOKENS - 1) * itl_us / 1e6
    for index in range(REQUESTS):
        at = start + (index / rate if rate else index // int(flying) * lasts)
        # One in four takes a fifth longer, so that quantiles differ.
        yield request(point, index, at, first, [itl_us * (6 if index % 4 == 3 else 5) // 5] * (TOKENS - 1))
    yield end_of(point, requests=REQUESTS, warmup=2, start=start, stop=start + 60, arrivals="poisson" if rate else "")
    for name, value in (("kv_cache", min(1.0, flying / 40)), ("running", min(flying, SLOTS))):
        yield data(metric=name, value=value, units="", case=point)


def sweep(
    slower: float = 1.0,
    loads: Iterable[int] = LOADS,
    rates: Iterable[float] = RATES,
    slo: Mapping[str, float] | None = None,
    failed: Mapping[str, str] | None = None,
) -> tuple[Event, ...]:
    """The records of a client's step; of the points in `failed` only that and why."""
    loads, rates, slo = list(loads), list(rates), SLO if slo is None else slo
    serve = {"client": "plain", "concurrency": loads, "rate": rates, "arrivals": "poisson", "slo": slo, "seed": 1}
    events: list[Event] = [Config(step="", data={"name": "chat", "serve": serve}), about(slo=slo)]
    start = 1e9
    for name, rate in [
        *((f"concurrency={load}", None) for load in loads),
        *((f"rate={rate:g}", rate) for rate in rates),
    ]:
        if failed and name in failed:
            events.append(end_of(name, state="failed", why=failed[name]))
        else:
            events += drawn_point(name, start, slower, rate=rate)
        start += 100
    return tuple(events)


def launches(bench: str, client: Callable[[int], tuple[Event, ...]], repeats: int = 3, **more: Any) -> list[Recorded]:
    """The steps of a benchmark with a server and a client, both in one job, of so many launches."""
    steps = []
    for repeat in range(repeats):
        job = {"bench": bench, "repeat": repeat, "method": "multinode", "group": f"{bench}.R{repeat}", **more}
        serve = {"name": bench, "serve": {"concurrency": list(LOADS)}}
        steps.append(Recorded(tag="server", events=(Config(step="", data=serve),), **job))
        steps.append(Recorded(tag="client", events=client(repeat), devices=(), **job))
    return steps


def serving_run(base: Path, name: str = "serving", slower: float = 1.0, repeats: int = 3, **of_the_sweep: Any) -> Run:
    """A run of one served model, `chat`: each launch is half a percent slower than the one before."""
    chat = launches("chat", lambda repeat: sweep(slower * (1 + 0.005 * repeat), **of_the_sweep), repeats)
    return record(base, *chat, name=name)
