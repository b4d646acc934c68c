"""The manifests of runs that are compared, most of which are alike: equal parts are decoded, checked and kept once.

Imports msgspec: import this module where many runs are read, not at start-up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from milabench.events.stored_json import from_json_value
from milabench.events.stored_run import StoredManifest, StoredStep
from milabench.events.wire import is_too_deep

_PARTS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])


class SharedManifests:
    """Reads manifests. A part of a later manifest in the same words as in an earlier one is the same object."""

    def __init__(self) -> None:
        self._benchmarks: dict[bytes, object] = {}
        self._steps: dict[bytes, object] = {}
        self._configs: dict[bytes, object] = {}

    def read(self, content: bytes) -> dict[str, Any] | None:
        """Return the manifest. None where it is none, lacks suite or steps, or has another shape than manifests have."""
        try:
            return None if is_too_deep(content) else self._read(content)
        except (ValueError, LookupError, RecursionError, msgspec.MsgspecError):
            return None

    def share(self, manifest: Mapping[str, object]) -> Mapping[str, Any]:
        """Return a manifest that has been read already, with parts shared with earlier ones in the same words."""
        try:
            return self.read(msgspec.json.encode(manifest)) or manifest
        except ValueError:  # names that are no UTF-8
            return manifest

    def _read(self, content: bytes) -> dict[str, Any]:
        manifest = _PARTS.decode(content)
        suite, plan = _PARTS.decode(manifest["suite"]), _PARTS.decode(manifest["plan"])
        others = {name: msgspec.json.decode(raw) for name, raw in manifest.items() if name not in ("suite", "plan")}
        around_steps = {name: msgspec.json.decode(raw) for name, raw in plan.items() if name != "steps"}
        from_json_value(StoredManifest, {**others, "plan": around_steps})
        return {
            **manifest,
            **others,
            "suite": {name: _first(self._benchmarks, raw, _object) for name, raw in suite.items()},
            "plan": {
                **plan,
                **around_steps,
                "steps": [_first(self._steps, raw, self._new_step) for raw in _ITEMS.decode(plan["steps"])],
            },
        }

    def _new_step(self, words: msgspec.Raw) -> dict[str, object]:
        step: dict[str, Any] = msgspec.json.decode(words)
        from_json_value(StoredStep, step)
        if step.get("config") is not None:
            step["config"] = _first(self._configs, msgspec.json.encode(step["config"]), _object)
        return step


_Words = TypeVar("_Words", bytes, msgspec.Raw)


def _first(known: dict[bytes, Any], words: _Words, read: Callable[[_Words], Any]) -> object:
    """Return the value that was first written in these words."""
    digest = hashlib.sha256(words).digest()
    if digest not in known:
        known[digest] = read(words)
    return known[digest]


def _object(words: bytes | msgspec.Raw) -> dict[str, Any]:
    return msgspec.json.decode(words, type=dict[str, Any])
