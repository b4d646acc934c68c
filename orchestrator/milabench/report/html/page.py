"""The frame of a page: one self-contained file that loads nothing and runs only its own script."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from milabench.report.html.markup import Child, Markup, el
from milabench.report.html.plots import patterns


def document(title: str, nav: Sequence[tuple[str, str]], body: Child, version: str = "") -> str:
    """Return the whole page; `nav` are (id, name) of the link targets."""
    style, script = _packaged("page.css"), _packaged("page.js")
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=_policy(style, script)),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("meta", name="generator", content=f"milabench {version}".strip()),
        el("link", rel="icon", href="data:,"),
        el("title", title),
        el("style", Markup(style)),
    )
    links = el("ul", [el("li", el("a", name, href=f"#{section_id}")) for section_id, name in nav])
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
        el("footer", el("p", f"Made by milabench {version}".strip(), "; this file is complete and needs no network.")),
        el("script", Markup(script)),
    )
    return f"<!doctype html>\n{el('html', head, body_element, lang='en')}\n"


def _policy(style: str, script: str) -> str:
    """Allow only our own style and script, by digest: a name in a record cannot inject another."""
    return (
        f"default-src 'none'; img-src data:; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _packaged(name: str) -> str:
    """Return the text of a file of this package."""
    return files("milabench.report.html").joinpath(name).read_text(encoding="utf-8")
