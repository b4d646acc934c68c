"""A YAML document, read into located values: our scalar rules, duplicate keys refused, nothing constructed but
plain data.

PyYAML's parser is used at the level of events. Its composer recurses in C and ends the process on ten thousand
nested brackets. Events come in sequence, so depth and the size of expanded aliases can be limited.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

import yaml

from milabench.config.scalars import resolve_scalar
from milabench.config.source_map import DELETED, Located, Mark, SourceLocation, mapping_at, scalar, sequence
from milabench.errors import MAX_PROBLEMS, ConfigError, Problem

MAX_BYTES: Final = 64 * 2**20
MAX_DEPTH: Final = 64
MAX_VALUES: Final = 200_000
"""Maximum number of values in a document."""
MAX_TEXT: Final = 1_000_000
"""Maximum number of characters of a value or key."""
MAX_EXPANSION: Final = 500_000
"""Maximum number of values that the aliases and merge keys of a document expand to."""

# libyaml's parser is twenty times faster; the pure one says the same.
LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# PyYAML reports such a character by its offset, libyaml in other words, and neither with line and column.
_UNREADABLE: Final = re.compile("[^\x09\x0a\x0d\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TAG: Final = "tag:yaml.org,2002:"
_TEXT_TAGS: Final = (None, "!", f"{_TAG}str")
_TYPE_TAGS: Final = {
    f"{_TAG}int": (int,),
    f"{_TAG}float": (float, int),
    f"{_TAG}bool": (bool,),
    f"{_TAG}null": (type(None),),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The value of a document, and the values in it on which YAML 1.1 and 1.2 disagree.

    `repeated` are the keys that a mapping gives twice, of which the last holds.
    """

    root: Located
    warnings: tuple[Problem, ...] = ()
    values: int = 0
    repeated: tuple[Problem, ...] = ()


def decode_text(content: bytes, name: str) -> str:
    """Return the text of a file. Raises ConfigError, with the place, where it is not UTF-8."""
    if len(content) > MAX_BYTES:
        raise ConfigError(Problem(name, "", f"the file is larger than {MAX_BYTES // 2**20} MiB"))
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line = before.count(b"\n") + 1
        column = len(before) - (before.rfind(b"\n") + 1) + 1
        raise ConfigError(
            Problem(
                f"{name}:{line}:{column}",
                "",
                f"not UTF-8 (byte 0x{content[error.start]:02x})",
                "save the file as UTF-8",
            )
        ) from None


def parse_document(text: str, source: SourceLocation, *, whole: bool = True, keeps_repeated: bool = False) -> Document:
    """Return the document in `text`. An empty document is an empty mapping.

    `whole=False` reads the value of an option: places are the option's, and an empty text is null. A key that is given
    twice is a problem, but with `keeps_repeated`, which leaves that to the caller. Raises ConfigError with every problem found.
    """
    bad = _UNREADABLE.search(text)
    if bad is not None:
        line = text.count("\n", 0, bad.start()) + 1
        mark = Mark(source, line if whole else 0, bad.start() - (text.rfind("\n", 0, bad.start()) + 1) + 1)
        what = f"the character U+{ord(bad[0]):04X} is not allowed in YAML"
        raise ConfigError(Problem(str(mark), "", what, "remove it"))
    builder = _Builder(source, whole, keeps_repeated)
    try:
        for event in yaml.parse(text, Loader=LOADER):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        builder.problems.append(_syntax_problem(error, builder))
    except _LimitError:
        pass
    except (UnicodeError, ValueError, yaml.YAMLError) as error:
        builder.problems.append(Problem(source.name, "", f"not YAML: {error}".split("\n", 1)[0]))
    if builder.problems:
        raise ConfigError(builder.problems)
    root = builder.root
    if root is None:
        start = Mark(source, 1 if whole else 0, 1)
        root = mapping_at({}, start) if whole else scalar(None, start)
    return Document(
        root=root, warnings=tuple(builder.warnings), values=builder.written, repeated=tuple(builder.repeated)
    )


class _LimitError(Exception):
    """The document goes beyond a limit. The problem is already noted."""


@dataclass(slots=True)
class _Frame:
    """A container that is being read. `size` counts the values in it, those behind aliases included."""

    mark: Mark
    anchor: str | None
    children: dict[str, Located] | None = None
    items: list[Located] = field(default_factory=list)
    key: str | None = None
    key_mark: Mark | None = None
    key_marks: dict[str, Mark] = field(default_factory=dict)
    merged: list[Located] = field(default_factory=list)
    size: int = 1


class _Builder:
    """Takes the events of a document and builds its value."""

    def __init__(self, source: SourceLocation, whole: bool, keeps_repeated: bool) -> None:
        self.source = source
        self.whole = whole
        self.keeps_repeated = keeps_repeated
        self.root: Located | None = None
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        self.repeated: list[Problem] = []
        self.frames: list[_Frame] = []
        self.anchors: dict[str, tuple[Located, int]] = {}
        self.open_anchors: set[str] = set()
        self.expanded = 0
        self.written = 0
        self.documents = 0

    def take(self, event: Any) -> None:
        kind = type(event)
        if kind is yaml.ScalarEvent:
            self._scalar(event)
        elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
            self._start(event, {} if kind is yaml.MappingStartEvent else None)
        elif kind is yaml.MappingEndEvent:
            self._end_mapping()
        elif kind is yaml.SequenceEndEvent:
            frame = self.frames.pop()
            self._done(sequence(frame.items, frame.mark), frame.anchor, frame.size)
        elif kind is yaml.AliasEvent:
            self._alias(event)
        elif kind is yaml.DocumentStartEvent:
            self.documents += 1
            if self.documents > 1:
                self._stop(
                    self._mark(event.start_mark), "a second document begins", "put each document into its own file"
                )

    def path(self) -> str:
        """Return the dotted key of the value being read."""
        keys = [frame.key if frame.children is not None else str(len(frame.items)) for frame in self.frames]
        return ".".join(key for key in keys if key is not None)

    def _mark(self, mark: Any) -> Mark:
        return Mark(self.source, mark.line + 1 if self.whole else 0, mark.column + 1)

    def _problem(self, mark: Mark, what: str, hint: str = "", replaces: str = "") -> None:
        self.problems.append(Problem(str(mark), self.path(), what, hint, replaces))
        if len(self.problems) > MAX_PROBLEMS:
            raise _LimitError

    def _stop(self, mark: Mark, what: str, hint: str = "") -> NoReturn:
        self._problem(mark, what, hint)
        raise _LimitError

    def _start(self, event: Any, children: dict[str, Located] | None) -> None:
        mark = self._mark(event.start_mark)
        if len(self.frames) >= MAX_DEPTH:
            del self.frames[3:]  # a path of sixty-four keys helps nobody
            self._stop(mark, f"nested more than {MAX_DEPTH} deep", "flatten it")
        frame = _Frame(mark, event.anchor, children)
        if event.anchor:
            # An anchor that is given again stands for nothing until its new value is complete.
            self.anchors.pop(event.anchor, None)
            self.open_anchors.add(event.anchor)
        parent = self.frames[-1] if self.frames else None
        if parent is not None and parent.children is not None and parent.key is None:
            self._stop(mark, "a key must be text", "quote it")
        expected = f"{_TAG}map" if children is not None else f"{_TAG}seq"
        if event.tag is not None and event.tag not in ("!", expected):
            self._unknown_tag(mark, event.tag)
        self.frames.append(frame)

    def _scalar(self, event: Any) -> None:
        frame = self.frames[-1] if self.frames else None
        text: str = event.value
        mark = self._mark(event.start_mark)
        if len(text) > MAX_TEXT:
            self._stop(mark, f"a text of more than {MAX_TEXT} characters")
        if "\0" in text or (not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text)):
            self._problem(mark, "a NUL or half a surrogate pair is not allowed in a value", "remove it")
            text = ""
        if frame is not None and frame.children is not None and frame.key is None:
            self._key(frame, text, mark, event)
            return
        self._done(scalar(self._value(text, mark, event), mark), event.anchor, 1)

    def _value(self, text: str, mark: Mark, event: Any) -> Any:
        if event.tag == "!delete":
            if text:
                self._problem(mark, f"!delete takes no value, got {text!r}")
            return DELETED
        if event.tag in _TYPE_TAGS:
            value, types = resolve_scalar(text)[0], _TYPE_TAGS[event.tag]
            if type(value) not in types:
                self._problem(mark, f"expected !!{event.tag.removeprefix(_TAG)}, got {text!r}")
            return float(value) if types[0] is float and type(value) is int else value
        if event.tag not in _TEXT_TAGS:
            self._unknown_tag(mark, event.tag)
        if event.tag is not None or not event.implicit[0]:
            return text
        value, disagreement = resolve_scalar(text)
        if disagreement:
            read = "text" if isinstance(value, str) else str(value).lower() if value is not None else "null"
            what = f"{text} is {disagreement}, and here it is read as {read}"
            hint = "quote it, or write true, false or a plain decimal number"
            self.warnings.append(Problem(str(mark), self.path(), what, hint))
        return value

    def _unknown_tag(self, mark: Mark, tag: str) -> None:
        shown = "!!" + tag.removeprefix(_TAG) if tag.startswith(_TAG) else tag
        self._problem(mark, f"unknown tag {shown}", "a suite holds plain values, and the only tag of ours is !delete")

    def _key(self, frame: _Frame, text: str, mark: Mark, event: Any) -> None:
        # A key is what is written, never a boolean or a number: `on: 1` and `8: x` are the keys "on" and "8".
        if text == "" and event.implicit[0]:
            self._problem(mark, "a key is missing before ':'")
        if event.tag not in _TEXT_TAGS:
            self._unknown_tag(mark, event.tag)
        if event.anchor:
            self.anchors[event.anchor] = (scalar(text, mark), 1)
        self._begin_value(frame, text, mark, is_merge=text == "<<" and event.implicit[0])

    def _begin_value(self, frame: _Frame, key: str, mark: Mark, *, is_merge: bool = False) -> None:
        """Take a key of a mapping. Note where it is given, and that it is given twice, unless it is a merge key."""
        frame.key, frame.key_mark = key, mark
        first = mark if is_merge else frame.key_marks.setdefault(key, mark)
        if first is not mark:
            what, replaces = f"the key {key!r} is given twice", f"it was first given at {first}"
            if not self.keeps_repeated:
                self._problem(mark, what, "remove a copy", replaces)
            elif len(self.repeated) <= MAX_PROBLEMS:
                self.repeated.append(Problem(str(mark), self.path(), what, "remove a copy", replaces))

    def _alias(self, event: Any) -> None:
        mark = self._mark(event.start_mark)
        name = event.anchor
        if name in self.open_anchors:
            self._stop(mark, f"the alias *{name} refers to a value that contains it")
        anchored = self.anchors.get(name)
        if anchored is None:
            self._stop(mark, f"no anchor &{name} before this alias")
        node, size = anchored
        self._expand(mark, size)
        frame = self.frames[-1] if self.frames else None
        if frame is not None and frame.children is not None and frame.key is None:
            if not isinstance(node.value, str):
                self._stop(mark, "a key must be text", "quote it")
            self._begin_value(frame, node.value, mark)
            return
        self._done(node, None, size)

    def _expand(self, mark: Mark, size: int) -> None:
        # Nine lists of nine aliases each share their nodes here, but whoever walks the tree would visit 9**9 of them.
        self.expanded += size
        if self.expanded > MAX_EXPANSION:
            self._stop(mark, f"aliases expand to more than {MAX_EXPANSION} values", "use inherits")

    def _end_mapping(self) -> None:
        frame = self.frames.pop()
        children = frame.children
        assert children is not None
        if frame.merged:
            # As YAML has it: own keys win over merged ones, and of several mappings the first wins.
            merged: dict[str, Located] = {}
            for part in frame.merged:
                self._expand(frame.mark, len(part.value))
                frame.size += len(part.value)
                for key, child in part.value.items():
                    merged.setdefault(key, child)
            for key, child in children.items():
                hidden = merged.get(key)
                before = () if hidden is None else (hidden, *hidden.replaced)
                merged[key] = Located(child.value, child.mark, (*child.replaced, *before), child.flags, key=child.key)
            children = merged
        self._done(mapping_at(children, frame.mark), frame.anchor, frame.size)

    def _done(self, node: Located, anchor: str | None, size: int) -> None:
        if anchor:
            self.open_anchors.discard(anchor)
            self.anchors[anchor] = (node, size)
        self.written += 1
        if self.written > MAX_VALUES:
            self._stop(node.mark, f"more than {MAX_VALUES} values in a file", "generate them with a matrix")
        if not self.frames:
            self.root = node
            return
        frame = self.frames[-1]
        frame.size += size
        if frame.children is None:
            frame.items.append(node)
            return
        assert frame.key is not None
        if frame.key == "<<" and "<<" not in frame.key_marks:
            self._merge_key(frame, node)
        else:
            if node.key is not None:
                # Behind an alias: the same value under another key.
                node = node.holding(node.value, node.flags)
            node.key = frame.key_mark
            if (first := frame.children.get(frame.key)) is not None:
                node = Located(node.value, node.mark, (*node.replaced, first), node.flags, key=node.key)
            frame.children[frame.key] = node
        frame.key = None

    def _merge_key(self, frame: _Frame, node: Located) -> None:
        parts = node.value if type(node.value) is list else [node]
        for part in parts:
            if type(part.value) is dict:
                frame.merged.append(part)
            else:
                self._problem(part.mark, "<< takes a mapping or a list of mappings")


def _syntax_problem(error: yaml.MarkedYAMLError, builder: _Builder) -> Problem:
    at = error.problem_mark or error.context_mark
    where = builder.source.name
    if at is not None and builder.whole:
        where = f"{where}:{at.line + 1}:{at.column + 1}"
    what = error.problem or error.context or "not YAML"
    if "maximum nesting depth" in what:  # libyaml 0.2.6 counts too, and reads ahead
        return Problem(where, "", f"nested more than {MAX_DEPTH} deep", "flatten it")
    context = f" ({error.context})" if error.context and error.problem else ""
    hint = "check the lines just above"
    if "cannot start any token" in what:
        hint = "indent with spaces, not with a tab, and quote texts that begin with @, % or a backquote"
    return Problem(where, "", f"not YAML: {what}{context}", hint)
