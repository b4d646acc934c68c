"""The workload of a point: prompts of exact numbers of tokens, output lengths, the sessions of a trace. All by seed."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import cycle
from pathlib import Path
from typing import Any

from benchmate.errors import BenchmateError
from benchmate.serving.load import Endpoint, PlannedRequest, Workload

WORDS_KEPT = 512
"""Words that prompts are made of. More would not make prompts differ more."""
_MOST_CORRECTIONS = 64
_LETTERS = "abcdefghijklmnopqrstuvwxyz"

Length = int | Mapping[str, float]
"""A number of tokens, {mean, stddev} of a normal distribution, or {least, most} of a uniform one."""


@dataclass(frozen=True, kw_only=True)
class PromptText:
    """Words of one token each, and a function that counts a text's tokens as the server will."""

    words: Sequence[str]
    count: Callable[[str], int]

    def text(self, tokens: int, draw: random.Random, prefix: str = "") -> str:
        """Return a text of an exact number of tokens that begins with `prefix`. Raises BenchmateError where there is none."""
        words = draw.choices(self.words, k=max(1, tokens - (self.count(prefix) if prefix else 0)))
        for _ in range(_MOST_CORRECTIONS):
            text = prefix + "".join(words)
            missing = tokens - self.count(text)
            if missing == 0:
                return text
            if missing > 0:
                words += draw.choices(self.words, k=missing)
            elif len(words) <= -missing:
                break
            else:
                del words[missing:]
        raise BenchmateError(f"no text of {tokens} tokens can be made with this tokenizer")


@lru_cache(maxsize=8)
def prompt_text(tokenizer: str, endpoint: Endpoint) -> PromptText:
    """Return the words of prompts: by a folder's tokenizer.json, or by `words`. Raises BenchmateError.

    The special tokens that a server adds to a completion count, the tokens of a chat template do not.
    """
    if tokenizer == "words":
        return PromptText(words=[f" {a}{b}" for a in _LETTERS for b in _LETTERS], count=lambda text: len(text.split()))
    file = Path(tokenizer) / "tokenizer.json"
    if not file.is_file():
        raise BenchmateError(
            f"{file}: no such file. serve.tokenizer names a folder that holds it, or `words` for a server without a tokenizer"
        )
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise BenchmateError(f"{error}. The benchmark's environment needs the package tokenizers") from None
    try:
        encoder = Tokenizer.from_file(str(file))
    except Exception as error:  # what the parser raises is Exception itself
        raise BenchmateError(f"{file}: {error}") from None
    has_specials = endpoint == "completions"

    def count(text: str) -> int:
        return len(encoder.encode(text, add_special_tokens=has_specials).ids)

    return PromptText(words=_whole_words(encoder), count=count)


def _whole_words(encoder: Any) -> list[str]:
    """Return words of a vocabulary that stay a single token in any place."""
    words = []
    for token in sorted(encoder.get_vocab()):
        # A space before a word: byte-level BPE and SentencePiece write it like this.
        if token[:1] in ("Ġ", "▁") and token[1:].isascii() and token[1:].isalpha():
            word = " " + token[1:]
            if len(encoder.encode(word * 3, add_special_tokens=False).ids) == 3:
                words.append(word)
    if not words:
        # One letter is a token, or as good as one: the text is corrected until its number is right.
        words = [f" {letter}" for letter in _LETTERS]
    return random.Random(0).sample(words, min(WORDS_KEPT, len(words)))


@dataclass(frozen=True, kw_only=True)
class WorkloadRecipe:
    """The source of the requests of every point: lengths by themselves, or the sessions of a trace."""

    prompts: PromptText
    input_tokens: Length = 128
    output_tokens: Length = 128
    prefix_tokens: int = 0
    seed: int = 1
    sessions: Sequence[tuple[PlannedRequest, ...]] = field(default_factory=tuple)

    def workload(self, point: str, requests: int) -> Workload:
        """Return the requests of a point: at least this number, different from every other point's.

        Points that shared prompts would find them in the server's prefix cache. A trace is replayed as it is, from its
        beginning, as often as it takes.
        """
        if self.sessions:
            replayed, turns = [], 0
            for session in cycle(self.sessions):
                if turns >= requests:
                    break
                replayed.append(session)
                turns += len(session)
            return Workload(sessions=tuple(replayed))
        draw = random.Random(f"{self.seed} {point}")
        prefix = ""
        if self.prefix_tokens:
            prefix = self.prompts.text(self.prefix_tokens, random.Random(f"{self.seed} prefix"))
        return Workload(sessions=tuple((self._request(draw, prefix),) for _ in range(requests)))

    def _request(self, draw: random.Random, prefix: str) -> PlannedRequest:
        inputs = max(draw_length(self.input_tokens, draw), self.prefix_tokens)
        text = prefix if inputs == self.prefix_tokens else self.prompts.text(inputs, draw, prefix)
        return PlannedRequest(text=text, input_tokens=inputs, output_tokens=draw_length(self.output_tokens, draw))


def draw_length(length: Length, draw: random.Random) -> int:
    """Return a number of tokens, at least 1."""
    if not isinstance(length, Mapping):
        return int(length)
    if "mean" in length:
        return max(1, round(draw.gauss(length["mean"], length.get("stddev", 0.0))))
    return draw.randint(int(length["least"]), int(length["most"]))


def read_sessions(path: str, prompts: PromptText, output_tokens: int = 128) -> list[tuple[PlannedRequest, ...]]:
    """Return the sessions of a trace file. Raises BenchmateError with file and line."""
    try:
        # Not splitlines(): a text may have characters that it parts lines at.
        lines = Path(path).read_text(encoding="utf-8-sig").split("\n")
    except (OSError, ValueError) as error:
        raise BenchmateError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    sessions = [
        _session(f"{path}:{number}", line, prompts, output_tokens)
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]
    if not sessions:
        raise BenchmateError(f"{path}: no sessions. Expected a JSON object per line")
    return sessions


def _session(where: str, line: str, prompts: PromptText, output_tokens: int) -> tuple[PlannedRequest, ...]:
    try:
        session = json.loads(line)
    except ValueError:
        raise BenchmateError(f"{where}: not JSON") from None
    turns = session.get("turns") if isinstance(session, dict) else None
    if not isinstance(turns, list) or not turns:
        raise BenchmateError(f"{where}: expected an object with a list of `turns`")
    return tuple(_turn(where, turn, prompts, output_tokens) for turn in turns)


def _turn(where: str, turn: object, prompts: PromptText, output_tokens: int) -> PlannedRequest:
    values = turn if isinstance(turn, dict) else {}
    text, tokens, delay = values.get("input"), values.get("output_tokens", output_tokens), values.get("delay_ms", 0)
    is_right = isinstance(text, str) and text and type(tokens) is int and tokens > 0
    if not is_right or not isinstance(delay, (int, float)) or not 0 <= delay < math.inf:
        raise BenchmateError(f"{where}: expected turns with `input` (a text), `output_tokens` and `delay_ms`")
    assert isinstance(text, str)
    return PlannedRequest(text=text, input_tokens=prompts.count(text), output_tokens=tokens, delay_s=delay / 1e3)
