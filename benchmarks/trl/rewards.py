"""What GRPO and RLOO are rewarded for, named on their command line: a rule that can be computed, and learned."""

from __future__ import annotations


def vowels(completions, **_):
    """The share of vowels among the letters of each completion."""
    return [sum(letter in "aeiou" for letter in text) / max(1, len(text)) for text in completions]
