"""The form that plans are hashed in: JSON that is sorted and without spaces, the same on every machine and in every version."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection
from functools import lru_cache
from typing import Any, Final, TypeAlias

from milabench.redaction import is_secret_name

Writer: TypeAlias = Callable[[Any], bytes]
_SCALARS: Final = frozenset({str, int, bool, type(None)})
_CONTAINERS: Final = frozenset({dict, list, tuple})


def canonical_json(value: object) -> bytes:
    """Return a value's canonical JSON."""
    # Kept in records: any change here makes every old plan look like another one.
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "surrogatepass")


def fast_writer() -> Writer:
    """Return a writer of plain values that takes an eighth of the time. Its result is canonical only for these."""
    from msgspec.json import Encoder  # ten milliseconds: for the hashes of hundreds of steps

    return Encoder(order="deterministic").encode


def digest(value: object) -> str:
    """Return the sha256, in hexadecimal, of a value's canonical JSON."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def is_plain_number(number: float) -> bool:
    """Return whether every writer of JSON writes a float alike: not with an exponent, and no infinity or NaN."""
    return number == 0 or 1e-4 <= abs(number) < 1e15


@lru_cache(maxsize=1 << 12)  # thousands of steps have variables and keys of the same names
def has_secret_name(names: tuple[str, ...]) -> bool:
    """Return whether a value under any of these names is a secret."""
    return any(map(is_secret_name, names))


class PlainSettings:
    """Tells which settings are plain: all writers of JSON write them alike, and nothing in them stands under a secret's name.

    Shared parts of thousands of settings are checked once: a word by its letters, a mapping or tuple within others by its
    identity, so that none of them may change as long as this lives.
    """

    __slots__ = ("_known", "_words")

    def __init__(self) -> None:
        self._words: set[str] = set()
        """Words after which, in a list, no secret stands."""
        self._known: dict[int, object] = {}
        """Plain mappings and tuples by their identity, which is theirs as long as they are kept."""

    def holds(self, value: Any) -> bool:
        """Return whether a mapping or list is plain."""
        if type(value) is dict:
            if has_secret_name(tuple(value)):
                return False
            items: Collection[Any] = value.values()
        else:
            try:
                is_known = self._words.issuperset(value)
            except TypeError:  # mappings and lists have no hash
                is_known = False
            if is_known:
                return True
            words = [item for item in value if type(item) is str]
            if not self.hold_words(words):
                return False
            items = () if len(words) == len(value) else value
        for item in items:
            kind = type(item)
            if kind in _SCALARS:
                continue
            if kind in _CONTAINERS:
                if item and id(item) not in self._known and not self._holds_part(item):
                    return False
            elif kind is not float or not is_plain_number(item):
                return False
        return True

    def hold_words(self, words: Collection[str]) -> bool:
        """Return whether no secret follows any of these words."""
        if not self._words.issuperset(words):
            # The word after an option may be its value.
            if any(word[:1] == "-" and is_secret_name(word) for word in words):
                return False
            self._words.update(words)
        return True

    def _holds_part(self, part: object) -> bool:
        is_plain = self.holds(part)
        if is_plain and type(part) is not list:
            self._known[id(part)] = part
        return is_plain
