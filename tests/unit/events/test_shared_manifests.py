"""Manifests that are read together are those that are read alone; what they say alike is there once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from milabench.events.shared_manifests import SharedManifests
from milabench.events.wire import parse_object
from tests.commands import ROOT

CONTENTS = [(ROOT / "tests" / "runs" / name / "manifest.json").read_bytes() for name in ("system_a", "system_b")]


def test_what_is_read_together_is_what_is_read_alone() -> None:
    manifests = SharedManifests()
    read = [manifests.read(content) for content in (*CONTENTS, *CONTENTS)]
    assert read == [parse_object(content) for content in (*CONTENTS, *CONTENTS)]
    assert [list(manifest or ()) for manifest in read[:2]] == [list(parse_object(content)) for content in CONTENTS]


def test_what_two_manifests_say_alike_is_there_once() -> None:
    manifests = SharedManifests()
    a, b = (manifests.read(content) for content in CONTENTS)
    assert a is not None and b is not None
    assert all(b["suite"][name] is benchmark for name, benchmark in a["suite"].items())
    # Their steps differ, for a machine has other variables; most are told to do the same.
    ours, theirs = ([step["config"] for step in manifest["plan"]["steps"]] for manifest in (a, b))
    alike = [(one, other) for one in ours for other in theirs if json.dumps(one) == json.dumps(other)]
    assert a["plan"]["steps"] != b["plan"]["steps"]
    assert alike and all(one is other for one, other in alike)


def test_a_report_shares_with_runs() -> None:
    manifests = SharedManifests()
    run = manifests.read(CONTENTS[0])
    assert run is not None
    report = manifests.share(parse_object(CONTENTS[0]))
    assert report == run
    assert report["plan"]["steps"][0] is run["plan"]["steps"][0]


def test_a_report_with_names_that_are_no_text_stays_as_it_is() -> None:
    manifest = {**parse_object(CONTENTS[0]), "name": "\udcff"}
    assert SharedManifests().share(manifest) is manifest


def nested(depth: int) -> Any:
    return [nested(depth - 1)] if depth else []


@pytest.mark.parametrize(
    "change",
    [
        {"seed": "one"},
        {"suite": {"flops": []}},
        {"suite": {"flops": None}},
        {"plan": {"steps": [{"id": 1, "bench": "flops"}]}},
        {"plan": {"steps": [{"id": "flops"}]}},
        {"plan": {"steps": [{"id": "a", "bench": "flops", "config": []}]}},
        {"plan": {"steps": [], "skipped": [1]}},
        {"plan": {}},
        {"plan": None},
        {"suite": None},
        {"options": {"x": float("nan")}},
        {"options": {"x": nested(150)}},
        {"name": "\ud800"},
    ],
)
def test_what_may_be_no_manifest_is_left_to_be_read_alone(change: dict[str, Any]) -> None:
    manifests = SharedManifests()
    assert manifests.read(CONTENTS[0]) is not None
    assert manifests.read(json.dumps({**parse_object(CONTENTS[0]), **change}).encode()) is None


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"{}", b"\xff", b"[" * 10_000, CONTENTS[0][:-9]])
def test_what_is_no_json_is_left_to_be_read_alone(content: bytes) -> None:
    assert SharedManifests().read(content) is None
