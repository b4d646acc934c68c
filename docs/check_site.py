"""What is wrong with a built site: links and anchors that lead nowhere, what is loaded from the network, lists shown as text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Tags whose address is fetched when the page is shown.
FETCHED = {("script", "src"), ("img", "src"), ("iframe", "src"), ("link", "href")}
LIST_AS_TEXT = re.compile(r"\n(?:- |\d+\. |\| )\S")


@dataclass
class Shown(HTMLParser):
    """One page: its anchors, its links (tag, attribute, address), and the text of its paragraphs."""

    anchors: set[str] = field(default_factory=set)
    links: list[tuple[str, str, str]] = field(default_factory=list)
    paragraphs: list[str] = field(default_factory=list)
    is_paragraph: bool = False

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors.update(value for name in ("id", "name") if (value := given.get(name)))
        self.links += [(tag, name, value) for name in ("href", "src") if (value := given.get(name)) is not None]
        if tag == "p":
            self.is_paragraph = True
            self.paragraphs.append("")

    def handle_endtag(self, tag: str) -> None:
        self.is_paragraph = self.is_paragraph and tag != "p"

    def handle_data(self, data: str) -> None:
        if self.is_paragraph:
            self.paragraphs[-1] += data


@cache
def shown(path: Path) -> Shown:
    """Return a page of the site."""
    page = Shown()
    page.feed(path.read_text())
    return page


def problems_of(site: Path) -> list[str]:
    """Return what is wrong with the pages of a site, a line each."""
    return [
        f"{path.relative_to(site)}: {what}" for path in sorted(site.rglob("*.html")) for what in wrong_with(path, site)
    ]


def wrong_with(path: Path, site: Path) -> Iterator[str]:
    """Yield what is wrong with one page."""
    page = shown(path)
    for tag, name, link in page.links:
        address = urlsplit(link)
        if address.scheme or address.netloc:
            if (tag, name) in FETCHED and address.scheme != "data":
                yield f"is loaded from elsewhere: {link}"
            elif address.scheme in ("http", "https") and (not address.hostname or re.search(r"\s", link)):
                yield f"is no address: {link}"
            continue
        target = path
        if address.path:
            # The page for what does not exist is shown at any path: its links begin at the root.
            start = site if address.path.startswith("/") else path.parent
            target = (start / unquote(address.path).lstrip("/")).resolve()
        if target.is_dir():
            target /= "index.html"
        if not target.is_file():
            yield f"leads nowhere: {link}"
        elif address.fragment and target.suffix == ".html" and unquote(address.fragment) not in shown(target).anchors:
            yield f"has no such anchor: {link}"
    yield from (
        f"a list is shown as text: {text.strip()[:60]!r}" for text in page.paragraphs if LIST_AS_TEXT.search(text)
    )
