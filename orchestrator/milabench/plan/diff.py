"""The differences between two plans, from their JSON: added and removed entries, and differing fields of the others."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

from milabench.plan.model import SCHEMA
from milabench.shown import grouped

# The lists of a plan, and what tells their members apart.
SECTIONS = {"steps": "id", "venvs": "group", "sources": "folder", "skipped": "bench"}
# Of a node, what does not change by itself: free memory and the time of day do.
_LASTING = ("name", "ip", "hostname", "cpu", "memory_MiB", "os", "kernel", "python", "devices")
_LASTING_DETAILS = ("driver", "cuda")
# Follow from the other fields, or do not decide what is done.
_DERIVED = ("hash", "stem", "digest", "job", "one_job")
_ABSENT = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldChange:
    """A field that differs: its dotted name, its old and its new value. None where it is absent."""

    field: str
    old: Any
    new: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionDiff:
    """The changes in a list of a plan. `changed` has the smallest changes first."""

    name: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[tuple[str, tuple[FieldChange, ...]], ...] = ()
    is_reordered: bool = False

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed or self.is_reordered)

    def to_json(self) -> dict[str, Any]:
        """Return the names of added and removed entries, and the changes by name."""
        return {
            "added": list(self.added),
            "removed": list(self.removed),
            "changed": {name: [asdict(change) for change in changes] for name, changes in self.changed},
            "reordered": self.is_reordered,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDiff:
    """The differences of the new plan."""

    phase: tuple[str, str]
    system: tuple[FieldChange, ...]
    sections: tuple[SectionDiff, ...]

    def __bool__(self) -> bool:
        return self.phase[0] != self.phase[1] or bool(self.system) or any(self.sections)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON of `milabench plan --diff --json`."""
        return {
            "schema": SCHEMA,
            "equal": not self,
            "phase": list(self.phase),
            "system": [asdict(change) for change in self.system],
            **{section.name: section.to_json() for section in self.sections},
        }


def plan_diff(old: Mapping[str, Any], new: Mapping[str, Any]) -> PlanDiff:
    """Return the changes from a plan to another. Both are JSON as `milabench plan --json` prints it."""
    present = [name for name in SECTIONS if name in old or name in new]
    return PlanDiff(
        phase=(str(old.get("phase", "run")), str(new.get("phase", "run"))),
        system=_changes(lasting(old.get("system")), lasting(new.get("system"))),
        sections=tuple(_section(name, old.get(name, ()), new.get(name, ())) for name in present),
    )


def lasting(system: object) -> dict[str, object]:
    """Return the stable facts of the system in a plan or a manifest: `{"arch", node: {...}}`."""
    system = system if isinstance(system, Mapping) else {}
    nodes = {}
    for node in system.get("nodes") or ():
        details = node.get("details") or {}
        known = {key: node.get(key) for key in _LASTING}
        nodes[str(node.get("name"))] = {**known, **{key: details.get(key) for key in _LASTING_DETAILS}}
    return {"arch": system.get("arch"), **nodes}


def is_plan(value: object) -> bool:
    """Return whether this is the JSON of a plan."""
    return (
        isinstance(value, Mapping)
        and any(name in value for name in ("steps", "venvs"))
        and all(
            isinstance(value.get(name, []), list)
            and all(isinstance(item, Mapping) and isinstance(item.get(key), str) for item in value.get(name, []))
            for name, key in SECTIONS.items()
        )
    )


def _section(name: str, old: Sequence[Mapping[str, object]], new: Sequence[Mapping[str, object]]) -> SectionDiff:
    key = SECTIONS[name]
    before, after = ({str(item[key]): item for item in items} for items in (old, new))
    both = [item for item in after if item in before]
    changed = [(item, changes) for item in both if (changes := _changes(before[item], after[item]))]
    return SectionDiff(
        name=name,
        added=tuple(item for item in after if item not in before),
        removed=tuple(item for item in before if item not in after),
        changed=tuple(sorted(changed, key=lambda pair: len(pair[1]))),
        is_reordered=name == "steps" and both != [item for item in before if item in after],
    )


def _changes(old: object, new: object, path: str = "") -> tuple[FieldChange, ...]:
    if old == new:
        return ()
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return tuple(
            change
            for key in dict.fromkeys([*old, *new])
            if path or key not in _DERIVED
            for change in _changes(old.get(key, _ABSENT), new.get(key, _ABSENT), f"{path}.{key}" if path else str(key))
        )
    if path == "config.argv":
        return ()  # the same words as in argv
    return (FieldChange(field=path, old=None if old is _ABSENT else old, new=None if new is _ABSENT else new),)


def diff_text(diff: PlanDiff) -> str:
    """Return the difference for a person: `+` added, `-` removed, `~` changed, with each field's old and new value."""
    if not diff:
        return "no difference\n"
    lines = [f"{diff.phase[0]} plan -> {diff.phase[1]} plan"] if diff.phase[0] != diff.phase[1] else []
    lines += [f"system.{line}" for change in diff.system for line in _lines(change)]
    for section in diff.sections:
        if not section:
            continue
        parts = {"added": section.added, "removed": section.removed, "changed": section.changed}
        counts = [f"{len(names)} {what}" for what, names in parts.items() if names]
        counts += ["in another order"] if section.is_reordered else []
        lines.append(f"{section.name}: {', '.join(counts)}")
        for alike, changed in _alike(section):
            lines.append(f"  ~ {', '.join(alike)}")
            lines += [f"      {line}" for line in changed]
        lines += [f"  + {name}" for name in section.added]
        lines += [f"  - {name}" for name in section.removed]
    return "\n".join(lines) + "\n"


def _alike(section: SectionDiff) -> list[tuple[list[str], list[str]]]:
    """Return names whose fields changed in the same way, with the lines that say how."""
    by_lines = grouped((tuple(chain.from_iterable(map(_lines, changes))), name) for name, changes in section.changed)
    return [(names, list(lines)) for lines, names in by_lines.items()]


def _lines(change: FieldChange) -> list[str]:
    old, new = change.old, change.new
    if change.field.endswith("argv") and isinstance(old, list) and isinstance(new, list):
        return [f"{change.field}: {line}" for line in _words(list(map(str, old)), list(map(str, new)))]
    return [f"{change.field}: {_shown(old)} -> {_shown(new)}"]


def _words(old: list[str], new: list[str]) -> list[str]:
    """Return each run of words that differs, after the option that it belongs to."""
    lines = []
    # autojunk takes words that occur often for noise, and of long command lines those are the options.
    for tag, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        option = f"{old[a - 1]} " if a and old[a - 1].startswith("-") else ""
        was, now = (shlex.join(words) or "(nothing)" for words in (old[a:b], new[c:d]))
        lines.append(f"{option}{was} -> {now}")
    return lines


def _shown(value: object) -> str:
    if value is None:
        return "(not set)"
    if isinstance(value, list):
        return ",".join(map(_shown, value)) or "(empty)"
    return shlex.quote(value) if isinstance(value, str) else str(value)
