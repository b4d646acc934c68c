"""A list of JSON that is decoded when somebody looks at it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any


class LazyList(Sequence[Any]):
    """A list that `decode` makes of `source` each time it is looked at: of many summaries, few lists are, and seldom twice.

    `words` are the words found in its JSON, as a key or a text.
    """

    __slots__ = ("_decode", "_source", "words")

    def __init__(self, source: object, decode: Callable[[Any], Sequence[Any]], words: Collection[str] = ()) -> None:
        self._source, self._decode, self.words = source, decode, words

    def __iter__(self) -> Iterator[Any]:
        return iter(self._decode(self._source))

    def __getitem__(self, index: Any) -> Any:
        return self._decode(self._source)[index]

    def __len__(self) -> int:
        return len(self._decode(self._source))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LazyList | tuple) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]  # as of a tuple of what cannot be hashed


def may_hold(values: Iterable[object], word: str) -> bool:
    """Return whether a list may have a key or text. Of a lazy list by its `words`, so that it need not be decoded in vain."""
    return not isinstance(values, LazyList) or word in values.words
