"""A summary that was stored beside its run, with the long lists of its benchmarks unread until somebody looks at them.

Two thirds of such a file are verdicts of checks and metrics of single launches, of which a comparison of a hundred runs needs
next to nothing. Imports msgspec: import this module where summaries are read, not at start-up.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from milabench.analysis.json_codec import Unread
from milabench.events.compiled_shapes import ShapeCheck
from milabench.events.shapes import SUMMARY

_LONG = ("validations", "metrics")
_BENCHES = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
_LAST_KEY = b',"made_of":'


class KeptSummary:
    """The bytes of `summary.json`. Raises msgspec's errors when they are no JSON object."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._parts = msgspec.json.decode(content, type=dict[str, msgspec.Raw])
        self.made_of: Any = msgspec.json.decode(self._parts.pop("made_of", b"null"))

    @property
    def as_summarised(self) -> bytes:
        """What was written before it was said what the summary is made of, which is the last key."""
        return self._content.rpartition(_LAST_KEY)[0] + b"}"

    def values(self) -> dict[str, Any]:
        """Return the summary as JSON."""
        return {key: msgspec.json.decode(part) for key, part in self._parts.items()}

    def sparing_values(self) -> dict[str, Any] | None:
        """Return the same with the long lists unread; None where it may not have the shape of a summary."""
        if not _is_summary().passes(self._content):
            return None
        benches = list(map(_sparing, _BENCHES.decode(self._parts["benchmarks"])))
        others = {key: msgspec.json.decode(part) for key, part in self._parts.items() if key != "benchmarks"}
        return {**others, "benchmarks": benches}


@cache
def _is_summary() -> ShapeCheck:
    return ShapeCheck(SUMMARY)


def _sparing(bench: Mapping[str, msgspec.Raw]) -> dict[str, Any]:
    return {
        key: Unread(part, msgspec.json.decode) if key in _LONG else msgspec.json.decode(part)
        for key, part in bench.items()
    }
