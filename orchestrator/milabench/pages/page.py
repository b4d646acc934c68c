"""The frame of a page: a self-contained file that loads nothing and runs only its own script."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from importlib.resources import files

from milabench.analysis.comparison_model import Comparison
from milabench.analysis.summary_model import Summary
from milabench.pages.markup import Child, Markup, el, note, prose
from milabench.pages.plots import patterns
from milabench.report.curves import curves_left_out, has_curves
from milabench.report.document import Entry, section
from milabench.seams import handler
from milabench.version import __version__

Section = tuple[str, str, Child]
"""A part of a page: its id, its heading, its content."""


def document(title: str, nav: Sequence[tuple[str, str]], body: Child) -> str:
    """Return the whole page. `nav` are (id, name) of the link targets in it, or (file, name) of a page next to it."""
    style, script = _packaged("page.css"), _packaged("page.js")
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=_policy(style, script)),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("meta", name="generator", content=f"milabench {__version__}"),
        # Without an icon of its own, a browser asks the server of the page for /favicon.ico.
        el("link", rel="icon", href="data:,"),
        el("title", title),
        el("style", Markup(style)),
    )
    links = el(
        "ul",
        [el("li", el("a", name, href=target if target.endswith(".html") else f"#{target}")) for target, name in nav],
    )
    controls = el(
        "div",
        el("button", "Open all details", type="button", id="all", hidden=True),
        el("button", "Dark page", type="button", id="theme", hidden=True),
        class_="controls",
    )
    body_element = el(
        "body",
        el("a", "Skip to the content", href="#content", class_="skip"),
        patterns(),
        el("nav", links, controls, aria_label="page"),
        el("main", body, id="content"),
        el("footer", el("p", f"Made by milabench {__version__}. This file is complete and needs no network.")),
        # Last: the script finds the whole page when it runs, and a reader sees the page before it.
        el("script", Markup(script)),
    )
    return f"<!doctype html>\n{el('html', head, body_element, lang='en')}\n"


def article(
    title: str, lead: str, tiles: Child, alerts: Child, sections: Sequence[Section], key: str = ""
) -> tuple[Markup, list[tuple[str, str]]]:
    """Return an article of sections (id, name, content) and its link targets. `key` is the prefix of every id."""
    head = el(
        "header",
        el("h1", title, id=f"{key}top"),
        el("p", prose(lead), class_="lead"),
        el("ul", tiles, class_="tiles") if tiles else None,
        el("div", alerts, class_="lists"),
    )
    body = [el("section", el("h2", name), content, id=f"{key}{section_id}") for section_id, name, content in sections]
    return el("article", head, body), [(f"{key}{section_id}", name) for section_id, name, _ in sections]


def curve_section(shown: Summary | Comparison) -> tuple[Section, ...]:
    """Return the section of the curves of a run or a comparison, as drawings and tables. Empty without curves."""
    if not has_curves(shown):
        return ()
    left_out = curves_left_out()
    content: Child = note(left_out) if left_out else handler("curves: page")(shown)
    return (("curves", "Curves", content),)


def tile(name: str, value: Child, *details: Child, kind: str) -> Markup:
    """Return an important number, with its qualification."""
    return el("li", name, el("b", value), [el("small", detail) for detail in details], class_=kind)


def alert(title: str, kind: str, entries: Iterable[Entry | tuple[str, str]], count: int | None = None) -> Markup | None:
    """Return a prominent list with its count, the names in it in bold. None when it is empty."""
    items = []
    for entry in (entry for block in section(title, entries) for entry in block.entries):
        name = [el("strong", entry.name), ": "] if entry.name else None
        items.append(el("li", name, prose(entry.text), [el("code", f"{what}: {line}") for what, line in entry.details]))
    if not items:
        return None
    heading = el("h2", f"{title} ({len(items) if count is None else count})")
    return el("section", heading, el("ul", items), class_=f"alerts {kind}")


def foldable(
    title: str, hint: str, *content: Child, id_: str | None = None, is_open: bool = False, sign: Child = None
) -> Markup:
    """Return content that is opened by its heading. `hint` is next to the heading."""
    summary = el("summary", el("h3", title), sign, el("span", hint, class_="told") if hint else None)
    return el("details", summary, *content, id=id_, open=is_open)


def _policy(style: str, script: str) -> str:
    """Allow only our own style and script, by digest: a name in a record cannot inject another."""
    return (
        f"default-src 'none'; img-src data:; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _packaged(name: str) -> str:
    """Return the text of a file of this package."""
    return files("milabench.pages").joinpath(name).read_text(encoding="utf-8")
