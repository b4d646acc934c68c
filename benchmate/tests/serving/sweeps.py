"""A sweep as its step runs it: the configuration in a file, the records on an agent's socket."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from agent import Agent, Ran

SERVE = {
    "client": "plain",
    "model": "m",
    "served_model": "m",
    "endpoint": "completions",
    "concurrency": [],
    "rate": [],
    "scenario": [],
    "arrivals": "poisson",
    "prefix_tokens": 0,
    "trace": "",
    "slo": {},
    "on_server_exit": "stop",
    "seed": 1,
    "request_options": {},
    "tokenizer": "words",
    "warmup": 0,
    "rounds": 0,
    "seconds": 0,
    "requests": 8,
    "input_tokens": 8,
    "output_tokens": 6,
}


@dataclass
class SweepRecords:
    """How a sweep ended, and what it recorded."""

    ran: Ran
    records: list[dict[str, Any]]

    @property
    def about(self) -> dict[str, Any]:
        (about,) = (record["serving"] for record in self.records if "serving" in record)
        return about

    @property
    def points(self) -> dict[str, dict[str, Any]]:
        points = [record["point"] for record in self.records if "point" in record]
        assert len({point["name"] for point in points}) == len(points)
        return {point["name"]: point for point in points}

    def requests(self, point: str) -> list[dict[str, Any]]:
        requests = [record["request"] for record in self.records if "request" in record]
        return sorted((each for each in requests if each["point"] == point), key=lambda each: each["index"])

    def readings(self, point: str) -> dict[str, float]:
        return {
            each["metric"]: each["value"] for each in self.records if "metric" in each and each.get("case") == point
        }


def sweep(
    url: str, serve: dict[str, Any], *arguments: str, ready: dict[str, Any] | None = None, **config: Any
) -> SweepRecords:
    """Run a sweep against a server; `serve` is merged over a small one."""
    config |= {"serve": SERVE | serve, "server": {"ready": ready or {}}}
    with Agent() as agent:
        ran = agent.run("--url", url, *arguments, config=json.loads(json.dumps(config)), module="benchmate.serving")
        return SweepRecords(ran, agent.records())
