"""The criteria file: what it may say, and every mistake told at its place."""

from __future__ import annotations

import pytest

from milabench.acceptance.criteria import BenchCriteria, Bound, parse_criteria
from milabench.errors import ConfigError

WHOLE = b"""
title: new nodes
defaults: {confidence: 0.9, device_spread: 3 %}
required: [bert]
failure_rate: 1 %
benchmarks:
  resnet50:
    minimum: 1.2 x reference
    energy: 0.4 J/image
    allow: [short]
  loader: {of: first_step, maximum: 3.5 s, required: false, confidence: none, failure_rate: 0}
"""


def test_everything_that_a_file_may_say() -> None:
    found = parse_criteria(WHOLE, "a.yaml")
    assert (found.title, found.failure_rate, found.is_relative) == ("new nodes", 0.01, True)
    resnet, loader, bert = found.benchmarks
    assert resnet == BenchCriteria(
        name="resnet50",
        where="a.yaml:7:3",
        minimum=Bound(value=1.2, is_relative=True, where="a.yaml:8:14"),
        energy=Bound(value=0.4, units="J/image", where="a.yaml:9:13"),
        allow=("short",),
        device_spread=0.03,
        confidence=0.9,
    )
    assert (loader.of, loader.is_required, loader.confidence, loader.failure_rate) == ("first_step", False, None, 0.0)
    assert (bert.name, bert.confidence, bert.where) == ("bert", 0.9, "a.yaml:4:12")


def test_all_mistakes_are_told_at_once_with_their_places() -> None:
    content = b"titel: x\nbenchmarks:\n  a: {minimum: 3, of: speed, device_spread: 5}\n  b: [1]\nrequired: a\n"
    with pytest.raises(ConfigError) as caught:
        parse_criteria(content, "a.yaml")
    assert [(one.where, one.path) for one in caught.value.problems] == [
        ("a.yaml:1:1", ""),
        ("a.yaml:3:16", "benchmarks.a.minimum"),
        ("a.yaml:3:23", "benchmarks.a.of"),
        ("a.yaml:3:45", "benchmarks.a.device_spread"),
        ("a.yaml:4:6", "benchmarks.b"),
        ("a.yaml:5:11", "required"),
    ]
    assert "Did you mean 'title'?" in str(caught.value)
    assert "3 has no unit. Write '800 items/s' or '1.2 x reference'" in str(caught.value)


@pytest.mark.parametrize("bound", ["-3 s", "fast", "true", "1.2 reference", "[1]"])
def test_a_bound_is_a_number_with_a_unit(bound: str) -> None:
    with pytest.raises(ConfigError, match=r"a.yaml:2:16: benchmarks.a.minimum"):
        parse_criteria(f"benchmarks:\n  a: {{minimum: {bound}}}\n".encode(), "a.yaml")


@pytest.mark.parametrize("content", [b"", b"title: x\n", b"- 1\n"])
def test_a_file_that_asks_for_nothing_is_refused(content: bytes) -> None:
    with pytest.raises(ConfigError):
        parse_criteria(content, "a.yaml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "benchmarks: {chat: {serving: {concurrency=8: {output_tps: }}}}",
            "a.yaml:1:59: benchmarks.chat.serving.concurrency=8",
        ),
        (
            "benchmarks: {chat: {serving: {rate=2: {output_tps: {minimum: 1 x reference}, ttft_p90_ms: }}}}",
            "rate=2.ttft_p90_ms",
        ),
        ("required: [3]", "a.yaml:1:12: required: expected text, got 3"),
        ("required: [chat, true]", "required: expected text, got true"),
        ("benchmarks: {a: {minimum: 1 x reference, allow: [5]}}", "allow: expected text, got 5"),
    ],
)
def test_an_empty_bound_and_a_name_that_is_no_text_are_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_criteria(text.encode(), "a.yaml")
    assert said in str(refused.value)
