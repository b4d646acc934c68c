"""Files and overrides, folded into a description per benchmark: include order, overrides, matrix, inheritance,
`"*"`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from milabench.config.matrix import MAX_BENCHMARKS, expand, is_matrix
from milabench.config.problems import Problems, did_you_mean
from milabench.config.schema import FILE_KEYS
from milabench.config.sizes import ChosenSize, chosen_size, settled_but_for_sizes, size_of, split_sizes
from milabench.config.source_map import (
    BUILT_IN,
    DELETED,
    Located,
    Mark,
    SourceLocation,
    display_value,
    located,
    mapping_at,
    plain,
    settled,
)
from milabench.config.yaml_reader import parse_document
from milabench.errors import ConfigError, Problem
from milabench.redaction import mask_argument

EVERY: Final = "*"
DEFAULTS: Final = "_defaults"
"""The template that is there without being written, empty."""
MAX_VALUES: Final = 1_000_000
"""Maximum number of values of all benchmarks of a suite. It grows with the number of benchmarks above MAX_BENCHMARKS."""
_REPLACED_IN_A_VALUE: Final = 16  # what a value replaced is kept too, and takes a sixteenth of the memory
_KEY: Final = re.compile(r'"((?:[^"\\]|\\.)*)"|([^."]+)')
_KEYS: Final = re.compile(rf"(?:{_KEY.pattern})(?:\.(?:{_KEY.pattern}))*\Z")
# The first = that is in no quotes; a key may hold one (`"a=b".c=1`).
_SIDES: Final = re.compile(r'((?:"[^"]*"|[^="])*)=(.*)', re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """An `--override`: the keys that lead to a value, the value, and its place."""

    keys: tuple[str, ...]
    value: Located
    warnings: tuple[Problem, ...] = ()

    @property
    def mark(self) -> Mark:
        """Where it was said: the option."""
        return self.value.mark

    def tree(self, start: int) -> Located:
        """Return the value below its keys, from the key number `start` on."""
        tree = self.value
        for key in reversed(self.keys[start:]):
            tree = Located({key: tree}, self.mark, flags=tree.flags)
        return tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """The file keys that are given, and every benchmark and template by name, merged but not parsed."""

    file: Mapping[str, Located]
    benchmarks: Mapping[str, Located]
    templates: Mapping[str, Located]
    sizes: Mapping[str, ChosenSize]
    """For each benchmark that has sizes, the size that is laid over it, if it has that size."""
    is_whole: bool = True
    """Whether everything that is inherited is there."""


def parse_overrides(text: str, folder: str, label: str | None = None) -> tuple[Override, ...]:
    """Parse an `--override`: `name.key.key=value`. The value is YAML, a key with a dot in it is quoted.

    A mapping, `{name: {key: value}}`, is an override for each of its names. `label` is the name of the place in messages, by
    default the option. Raises ConfigError.
    """
    source = SourceLocation(label or f"--override {_shown(text)}", folder)
    # Columns of the value are places that nobody can find in a shell: the option is the place of all of it.
    mark = Mark(source, 0, 0)
    is_mapping = text.lstrip().startswith("{")
    keys, value = ((), text) if is_mapping else _sides(text, mark)
    document = parse_document(value, source, whole=False)
    warnings = tuple(replace(warning, where=str(mark)) for warning in document.warnings)
    root = plain(document.root)
    if not is_mapping:
        return (Override(keys=keys, value=located(root, mark), warnings=warnings),)
    if type(root) is not dict:
        hint = "write it as benchmark.key=value, or {benchmark: {key: value}}"
        raise ConfigError(Problem(str(mark), "", "expected a mapping", hint))
    return tuple(
        Override(keys=(name,), value=located(keys_below, mark), warnings=warnings) for name, keys_below in root.items()
    )


def _shown(text: str) -> str:
    shown = mask_argument(text)
    return repr(shown) if len(shown) <= 200 else f"{shown[:197]!r}..."


def _sides(text: str, mark: Mark) -> tuple[tuple[str, ...], str]:
    """Return the keys and the value of `name.key.key=value`. Raises ConfigError."""
    hint = "write it as benchmark.key=value"
    sides = _SIDES.match(text)
    if sides is None:
        raise ConfigError(Problem(str(mark), "", "missing '='", hint))
    left, value = sides[1].strip(), sides[2].strip()
    # A quoted key may have dots of its own, with \" and \\ inside.
    keys = tuple(key[2] if key[1] is None else re.sub(r"\\(.)", r"\1", key[1]) for key in _KEY.finditer(left))
    if not _KEYS.match(left) or len(keys) > 60:
        raise ConfigError(Problem(str(mark), "", "its keys cannot be read", hint))
    return keys, value


def fold(
    roots: Sequence[Located], overrides: Sequence[Override], problems: Problems, max_benchmarks: int = MAX_BENCHMARKS
) -> Folded:
    """Merge the files' roots in order, apply overrides, expand matrices, resolve inheritance. Problems are noted."""
    total: Located | None = None
    for root in roots:
        total = problems.merge(total, root)
    # What lies below the names is settled later, when it has met all that it changes.
    entries = {} if total is None else {key: node for key, node in total.value.items() if node.value is not DELETED}
    file_keys = {key: entries.pop(key) for key in FILE_KEYS if key in entries}
    lists = [node for node in entries.values() if type(node.value) is list]
    if len(lists) > 1 and len(entries) < 2 * len(lists):
        what = f"this is not a suite: {len(lists)} of its {len(entries)} keys hold lists"
        problems.note(lists[0].mark, "", what, "a benchmark is a name with keys below it")
        problems.raise_any()
    for key, node in list(entries.items()):
        if type(settled(node).value) is not dict:
            shown = "a list to append" if type(node.value) is dict else display_value(node)
            hint = "a benchmark is a name with keys below it"
            problems.note(node.mark, key, f"expected a mapping, got {shown}", hint)
            del entries[key]
    named = _file_keys_overridden(file_keys, overrides, problems)
    given = {key: node for key, written in file_keys.items() if (node := settled(written)).value is not None}
    size = size_of(given.get("size"))
    inheritance = _Inheritance(entries, named, problems, max_benchmarks, size)
    benchmarks, templates = inheritance.resolved()
    return Folded(
        file=given,
        benchmarks=benchmarks,
        templates=templates,
        sizes=inheritance.sizes,
        is_whole=not inheritance.missing,
    )


def _file_keys_overridden(
    file_keys: dict[str, Located], overrides: Sequence[Override], problems: Problems
) -> list[Override]:
    """Put the overrides of file keys in place. The others are returned.

    A benchmark's name may have dots, so that the keys of an override are matched to names later, when jobs have theirs.
    """
    others: list[Override] = []
    for override in overrides:
        first = override.keys[0]
        if first == "include":
            problems.note(override.mark, first, "include cannot be overridden")
        elif first in FILE_KEYS:
            file_keys[first] = problems.merge(file_keys.get(first), override.tree(1))
        else:
            others.append(override)
    return others


class _Inheritance:
    """Resolves names to full descriptions. A parent is resolved once, whatever the number of its children."""

    def __init__(
        self,
        entries: dict[str, Located],
        overrides: list[Override],
        problems: Problems,
        max_benchmarks: int,
        size: Located,
    ) -> None:
        self.size = size
        self.sizes: dict[str, ChosenSize] = {}
        self.problems = problems
        self.overrides = overrides
        self.max_benchmarks = max_benchmarks
        self.limit = max(MAX_VALUES, max_benchmarks * MAX_VALUES // MAX_BENCHMARKS)
        self.room = self.limit
        self.rooms: dict[int, int] = {}
        """The number of values in each container of parents, by its id."""
        self.united_tags: dict[tuple[int, int], tuple[Located, Located, Located]] = {}
        self.pre: dict[str, Located] = {EVERY: entries.pop(EVERY)} if EVERY in entries else {}
        """The merged overrides of each name, with the keys of `*`. They reach the children of that name."""
        # Twice: before the expansion a name may be that of a matrix, after it that of one of its jobs.
        self._override_known(entries)
        self.entries = self._expanded(entries)
        self.entries.setdefault(DEFAULTS, mapping_at({}, BUILT_IN))
        self._override_known(self.entries)
        self.as_parent: dict[str, Located | None] = {}
        self.missing: dict[str, list[tuple[Mark, str]]] = {}
        """The places that inherit from a missing name, by this name."""
        for override in self.overrides:
            hint = did_you_mean(override.keys[0], [*self.entries, EVERY, *FILE_KEYS[1:]])
            self.problems.note(override.mark, "", f"no benchmark or template named {override.keys[0]!r}", hint)

    def _override_known(self, entries: dict[str, Located]) -> None:
        """Note each override of a benchmark, a template or `*`. The others are left."""
        left: list[Override] = []
        for override in self.overrides:
            # Names may have dots: in `a.b.c=1` the benchmark is `a.b` where there is one, else `a`.
            names = {length: ".".join(override.keys[:length]) for length in range(len(override.keys), 0, -1)}
            length = next((length for length, name in names.items() if name in entries or name == EVERY), None)
            if length is not None:
                self._note(names[length], override, length)
            else:
                left.append(override)
        self.overrides = left

    def _note(self, name: str, override: Override, length: int) -> None:
        if length == len(override.keys) and type(override.value.value) is not dict:
            what = f"expected a mapping for {name}, got {display_value(override.value)}"
            self.problems.note(override.mark, name, what, f"name a key: {name}.key=value")
            return
        self.pre[name] = self.problems.merge(self.pre.get(name), override.tree(length))

    def _expanded(self, entries: dict[str, Located]) -> dict[str, Located]:
        expanded: dict[str, Located] = {}
        for name, node in entries.items():
            own = self.pre.get(name)
            described = node if own is None else self.problems.merge(node, own)
            if not is_matrix(described) or name.startswith("_"):
                self._add(expanded, name, node)
                continue
            # The overrides of a matrix are part of it from here on: its name is gone once its jobs have theirs.
            self.pre.pop(name, None)
            with self.problems.taking():
                for job_name, job in expand(name, described, self.max_benchmarks):
                    self._add(expanded, job_name, job)
        return expanded

    def _add(self, expanded: dict[str, Located], name: str, node: Located) -> None:
        if name in expanded:
            what = f"two benchmarks are named {name!r}"
            hint = "put every key of the matrix that tells jobs apart into job.name"
            self.problems.note(node.mark, name, what, hint, f"the other is at {expanded[name].mark}")
            return
        if name in (*FILE_KEYS, EVERY, ""):
            self.problems.note(node.mark, name, f"a job cannot be named {name!r}")
            return
        expanded[name] = node
        if len(expanded) > self.max_benchmarks:
            what = f"the suite has more benchmarks than the limit of {self.max_benchmarks}"
            self.problems.note(node.mark, name, what, "allow more with --max-benchmarks N")
            self.problems.raise_any()
        self._take_room(name, node)

    def _take_room(self, name: str, node: Located) -> None:
        """Count the values of a description, including inherited values. Stop where the suite has too many."""
        self.room -= self._room_of(node)
        if self.room < 0:
            what = f"with it, the benchmarks have more than {self.limit} values, inherited ones included"
            hint = "split the suite, or allow more with --max-benchmarks N"
            self.problems.note(node.mark, name, what, hint)
            self.problems.raise_any()

    def _room_of(self, node: Located, *, is_kept: bool = False) -> int:
        """Return the number of values in a tree. `is_kept`: of a parent, which stays and whose parts many children share."""
        known = self.rooms.get(id(node))
        if known is not None:
            return known
        value = node.value
        room = 1 + len(node.replaced) // _REPLACED_IN_A_VALUE
        if type(value) is dict or type(value) is list:
            for child in value.values() if type(value) is dict else value:
                below = child.value
                # Most values are leaves: hundreds of thousands are counted, each without a call.
                if type(below) is dict or type(below) is list:
                    room += self._room_of(child, is_kept=is_kept)
                else:
                    room += 1 + len(child.replaced) // _REPLACED_IN_A_VALUE
            if is_kept:
                self.rooms[id(node)] = room
        return room

    def _note_missing(self) -> None:
        """Note each parent that is not there once, however many inherit it."""
        for parent, places in self.missing.items():
            (mark, path), others = places[0], len({*places}) - 1
            what = f"no benchmark or template named {parent!r}"
            if others:
                what += f", which {others} more {'inherit' if others > 1 else 'inherits'}"
            hint = did_you_mean(parent, self.entries) or "define it, or include the file that does"
            self.problems.note(mark, path, what, hint)

    def resolved(self) -> tuple[dict[str, Located], dict[str, Located]]:
        """Return every benchmark, and every template, in the order of the files."""
        benchmarks: dict[str, Located] = {}
        templates: dict[str, Located] = {}
        for name in self.entries:
            is_template = name.startswith("_")
            node = self._parent(name) if is_template else self._benchmark(name)
            if node is not None:
                (templates if is_template else benchmarks)[name] = node
        self._note_missing()
        return benchmarks, templates

    def _benchmark(self, name: str) -> Located | None:
        own = self.entries[name]
        override = self.pre.get(name)
        parent_node = (override.value.get("inherits") if override is not None else None) or own.value.get("inherits")
        merged = own
        if parent_node is not None and parent_node.value is not None:
            parent = self._parent_of(name, parent_node)
            if parent is None:
                return None
            merged = self._inherited(parent, own)
        # After inheritance: `*` wins over what a benchmark says, its size over `*`, and over that only an override that names it.
        if EVERY in self.pre:
            merged = self.problems.merge(merged, self.pre[EVERY])
        sized = self._sized(name, merged, override)
        # What an override says of sizes is in them by now.
        merged = sized if override is None else self.problems.merge(sized, split_sizes(override)[0])
        self._take_room(name, merged)
        return settled(merged)

    def _sized(self, name: str, node: Located, override: Located | None) -> Located:
        """Return a benchmark with its size laid over it, if it has that size, and without its sizes."""
        rest, sizes = split_sizes(node)
        changed = None if override is None else split_sizes(override)[1]
        if changed is not None:
            sizes = self.problems.merge(sizes, changed)
        if sizes is None or sizes.value is None or sizes.value is DELETED:
            return rest
        chosen = self.sizes[name] = chosen_size(name, sizes, self.size, self.problems)
        for layer in chosen.layers.values():
            rest = self._inherited(rest, layer)
        return rest

    def _parent_of(self, name: str, parent_node: Located) -> Located | None:
        parent = parent_node.value
        path = f"{name}.inherits"
        if not isinstance(parent, str):
            what = f"expected the name of a benchmark or template, got {display_value(parent_node)}"
            self.problems.note(parent_node.mark, path, what)
            return None
        if parent not in self.entries:
            self.missing.setdefault(parent, []).append((parent_node.mark, path))
            return None
        return self._parent(parent)

    def _parent(self, name: str) -> Located | None:
        """Return a description as its children see it: its own overrides are in it, `*` is not. None after a problem."""
        chain: list[tuple[str, Located, Located | None]] = []
        visited: set[str] = set()
        current: str | None = name
        # A loop, since a chain of a thousand parents would be deeper than Python may recurse.
        while current is not None and current not in self.as_parent:
            own = self.entries[current]
            override = self.pre.get(current)
            if override is not None:
                own = self.problems.merge(own, override)
            parent_node = own.value.get("inherits")
            chain.append((current, own, parent_node))
            visited.add(current)
            if parent_node is None or parent_node.value is None:
                break
            above = parent_node.value
            if isinstance(above, str) and above in visited:
                self._cycle([link[0] for link in chain], above, parent_node)
            elif isinstance(above, str) and above in self.entries:
                current = above
                continue
            else:
                self._parent_of(current, parent_node)
            self.as_parent.update(dict.fromkeys(visited))
            return None
        for link, own, parent_node in reversed(chain):
            if parent_node is None or parent_node.value is None:
                whole: Located | None = settled_but_for_sizes(own)
            else:
                parent = self.as_parent[str(parent_node.value)]
                whole = None if parent is None else settled_but_for_sizes(self._inherited(parent, own))
                if whole is not None:
                    self._take_room(link, whole)
            self.as_parent[link] = whole
            if whole is not None:
                self._room_of(whole, is_kept=True)
        return self.as_parent[name]

    def _cycle(self, chain: list[str], again: str, node: Located) -> None:
        links = [*chain[chain.index(again) :], again]
        self.problems.note(node.mark, f"{chain[-1]}.inherits", f"the inheritance forms a cycle: {' -> '.join(links)}")

    def _inherited(self, parent: Located, own: Located) -> Located:
        """Return the child over its parent. Tags are united."""
        merged = self.problems.merge(parent, own)
        old, new = parent.value.get("tags"), own.value.get("tags")
        if old is None or new is None or merged is parent:
            return merged
        # The jobs of a matrix have the same tags over the same: united once, the two are kept so that their ids stay theirs.
        known = self.united_tags.get((id(old), id(new)))
        if known is None and (united := _united(old, new)) is not None:
            known = self.united_tags[id(old), id(new)] = (old, new, united)
        if known is not None:
            merged.value["tags"] = known[2]
        return merged


def _united(old: Located, new: Located) -> Located | None:
    """Return the tags of both. None where either is something else, to be reported later."""
    before, after = _tags(old), _tags(new)
    if before is None or after is None:
        return None
    known = {tag.value for tag in before}
    added = [tag for tag in after if tag.value not in known]
    return Located([*before, *added], new.mark, (old, *old.replaced), old.flags | new.flags)


def _tags(node: Located) -> list[Located] | None:
    """Return the tags as a list. A lone tag is a list of length 1. None where they are something else, to be reported later."""
    items = node.value if type(node.value) is list else [node]
    return items if all(isinstance(item.value, str | int | float) for item in items) else None
