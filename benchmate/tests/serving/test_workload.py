"""Prompts have exactly the tokens of the suite, by seed, and differ from point to point."""

from __future__ import annotations

import itertools
import json
import random
import statistics
from pathlib import Path

import pytest

from benchmate.errors import BenchmateError
from benchmate.serving.clients.plain import arrival_times
from benchmate.serving.load import LoadPoint, Workload
from benchmate.serving.workload import WorkloadRecipe, draw_length, prompt_text, read_sessions

WORDS = prompt_text("words", "completions")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a byte-level BPE of 300 tokens, which puts a token of its own before every text."""
    tokenizers = pytest.importorskip("tokenizers", reason="the package tokenizers is not installed")
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=300, special_tokens=["<s>"], initial_alphabet=alphabet)
    made.train_from_iterator(["the green stone of the river and the light of the house"] * 20, trainer)
    made.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    folder = tmp_path_factory.mktemp("tokenizer")
    made.save(str(folder / "tokenizer.json"))
    return folder


@pytest.mark.parametrize(("endpoint", "specials"), [("completions", 1), ("chat", 0)])
def test_a_prompt_has_its_tokens_by_the_tokenizer_of_the_server(tokenizer: Path, endpoint: str, specials: int) -> None:
    import tokenizers

    encoder = tokenizers.Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
    prompts = prompt_text(str(tokenizer), endpoint)  # type: ignore[arg-type]
    recipe = WorkloadRecipe(prompts=prompts, input_tokens={"least": 2, "most": 90})
    requests = recipe.workload("p", 50).requests
    lengths = [len(encoder.encode(each.text, add_special_tokens=False).ids) + specials for each in requests]
    assert lengths == [each.input_tokens for each in requests]
    assert len(set(lengths)) > 20


def test_the_seed_and_the_point_decide_the_prompts() -> None:
    def texts(seed: int, point: str) -> list[str]:
        recipe = WorkloadRecipe(prompts=WORDS, input_tokens=20, seed=seed)
        return [each.text for each in recipe.workload(point, 4).requests]

    assert texts(1, "a") == texts(1, "a")
    assert len({*texts(1, "a"), *texts(1, "b"), *texts(2, "a")}) == 12


def test_all_prompts_of_a_sweep_begin_with_the_shared_prefix() -> None:
    recipe = WorkloadRecipe(prompts=WORDS, input_tokens={"least": 8, "most": 20}, prefix_tokens=10)
    requests = [*recipe.workload("a", 20).requests, *recipe.workload("b", 20).requests]
    (prefix,) = {" ".join(each.text.split()[:10]) for each in requests}
    assert len(prefix.split()) == 10
    assert all(len(each.text.split()) == each.input_tokens for each in requests)
    assert min(each.input_tokens for each in requests) == 10


def test_lengths_follow_their_distribution() -> None:
    draw = random.Random(0)
    assert {draw_length(7, draw) for _ in range(9)} == {7}
    assert {draw_length({"least": 2, "most": 4}, draw) for _ in range(99)} == {2, 3, 4}
    normal = [draw_length({"mean": 100, "stddev": 10}, draw) for _ in range(2000)]
    assert statistics.mean(normal) == pytest.approx(100, abs=1)
    assert statistics.stdev(normal) == pytest.approx(10, abs=1)
    assert min(draw_length({"mean": 1, "stddev": 50}, draw) for _ in range(99)) == 1


@pytest.mark.parametrize("arrivals", ["poisson", "constant"])
def test_arrivals_have_the_rate_of_the_suite(arrivals: str) -> None:
    point = LoadPoint(name="r", rate=4.0, arrivals=arrivals, seed=5)  # type: ignore[arg-type]
    times = arrival_times(point, 2001)
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert (times[0], times[-1]) == (0, pytest.approx(500))
    assert arrival_times(point, 2001) == times
    # Gaps of a Poisson process are exponential: their deviation is their mean.
    assert statistics.pstdev(gaps) == pytest.approx(0.25 if arrivals == "poisson" else 0, abs=0.02)


def test_a_trace_is_replayed_until_there_are_enough_requests(tmp_path: Path) -> None:
    trace = tmp_path / "t.jsonl"
    turns = [{"input": "a b", "output_tokens": 3, "delay_ms": 40}, {"input": "c"}]
    trace.write_text(json.dumps({"turns": turns}) + "\n\n" + json.dumps({"turns": turns[:1]}) + "\n")
    sessions = read_sessions(str(trace), WORDS)
    assert [
        [(each.text, each.input_tokens, each.output_tokens, each.delay_s) for each in session] for session in sessions
    ] == [
        [("a b", 2, 3, 0.04), ("c", 1, 128, 0)],
        [("a b", 2, 3, 0.04)],
    ]
    workload = WorkloadRecipe(prompts=WORDS, sessions=sessions).workload("p", 4)
    assert workload == Workload(sessions=(tuple(sessions[0]), tuple(sessions[1]), tuple(sessions[0])))
    assert (len(workload.requests), workload.has_turns) == (5, True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no sessions. Expected a JSON object per line"),
        ("{\n", ":1: not JSON"),
        ('{"turns": [{"input": "a"}]}\n[]\n', ":2: expected an object with a list of `turns`"),
        ('{"turns": []}\n', ":1: expected an object with a list of `turns`"),
        ('{"turns": [{"input": ""}]}\n', ":1: expected turns with `input`"),
        ('{"turns": [{"input": "a", "output_tokens": 0}]}\n', ":1: expected turns with `input`"),
        ('{"turns": [{"input": "a", "delay_ms": -1}]}\n', ":1: expected turns with `input`"),
    ],
)
def test_a_trace_that_is_none_is_one_line_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    trace = tmp_path / "t.jsonl"
    trace.write_text(text)
    with pytest.raises(BenchmateError, match=message) as caught:
        read_sessions(str(trace), WORDS)
    assert str(caught.value).startswith(str(trace))


def test_a_prompt_that_cannot_be_made_is_one_line(tokenizer: Path) -> None:
    prompts = prompt_text(str(tokenizer), "completions")
    with pytest.raises(BenchmateError, match="no text of 1 tokens"):
        prompts.text(1, random.Random(0))
