"""A document as a page: its title and statement first, every table and section below a heading of its own."""

from __future__ import annotations

from typing import assert_never

from milabench.pages.markup import Child, el, html_table, note, pairs
from milabench.pages.page import alert, article, document
from milabench.report.document import (
    Document,
    Notes,
    Properties,
    Section,
    Statement,
    Table,
    Title,
    Value,
)


def document_page(blocks: Document, figures: Child = None) -> str:
    """Return the page. `figures` stand before its first table."""
    title = next((block.text for block in blocks if isinstance(block, Title)), "")
    lead = " ".join(block.text for block in blocks if isinstance(block, Statement))
    alerts: list[Child] = []
    sections: list[tuple[str, str, Child]] = [("figures", "Figures", figures)] if figures else []
    for block in blocks:
        match block:
            case Title() | Statement():
                pass
            case Section():
                alerts.append(alert(_capital(block.title), "doubt", block.entries))
            case Table():
                name = _capital(block.title) or f"Table {len(sections) + 1}"
                sections.append((f"s{len(sections)}", name, html_table(block, is_alone=True)))
            case Properties():
                sections.append((f"s{len(sections)}", "About", pairs(block.pairs)))
            case Value():
                alerts.append(note(el("strong", block.name), ": ", block.text))
            case Notes():
                lines = [note(f"{block.name}: {line}" if block.name else line) for line in block.lines]
                if not sections:
                    alerts += lines
                else:
                    section_id, name, content = sections[-1]
                    sections[-1] = (section_id, name, [content, lines])
            case _:
                assert_never(block)
    body, nav = article(title, lead, None, alerts, sections)
    return document(title[:200], nav, body)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
