"""Elements of a page as strings: whatever is not an element already is escaped, so that no name can inject one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

_EMPTY = frozenset({"meta", "link", "input", "br", "hr"})  # without an end in HTML
_SHAPES = frozenset({"path", "line", "rect", "circle", "use"})  # of SVG: closed where they begin
_NOT_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")

Child = object
"""An element, text, a number, None for nothing, or several of these."""


class Markup(str):
    """Text that is HTML, its parts escaped."""

    __slots__ = ()


def escaped_text(value: object) -> Markup:
    """Return a value as escaped text; characters that a page cannot hold become the replacement character."""
    if isinstance(value, Markup):
        return value
    return Markup(escape(_NOT_TEXT.sub("\ufffd", str(value)), quote=True))


def el(tag: str, /, *children: Child, **attributes: object) -> Markup:
    """Return an element. `class_` is `class`, `aria_label` is `aria-label`; an attribute that is None or False is left out."""
    content = "".join(
        _attribute(name, value) for name, value in attributes.items() if value is not None and value is not False
    )
    if tag in _EMPTY:
        return Markup(f"<{tag}{content}>")
    inner = "".join(_flat(children))
    if not inner and tag in _SHAPES:
        return Markup(f"<{tag}{content}/>")
    return Markup(f"<{tag}{content}>{inner}</{tag}>")


def note(*text: Child) -> Markup:
    """Return small print."""
    return el("p", *text, class_="note")


def _flat(children: Iterable[Child]) -> Iterable[str]:
    for child in children:
        if child is None or child is False:
            continue
        if isinstance(child, str) or not isinstance(child, Iterable):
            yield escaped_text(child)
        else:
            yield from _flat(child)


def _attribute(name: str, value: object) -> str:
    name = name.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escaped_text(str(value))}"'
