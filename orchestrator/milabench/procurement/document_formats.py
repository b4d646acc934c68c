"""Writes a document (report/document.py) in a format that needs no more than its blocks: text, Markdown, a page, JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping

from milabench.errors import UsageError
from milabench.events.values import strict
from milabench.report.document import Document

SCHEMA = 1
DOCUMENT_FORMATS = ("text", "markdown", "html", "json")


def write_document(format_name: str, document: Document, value: Mapping[str, object], width: int | None = None) -> str:
    """Return a document in a format, as JSON the `value` that it was made of. In text its tables fit the width in characters.

    Raises UsageError for a format that is made of something else.
    """
    match format_name:
        case "text" | "brief":
            from milabench.report.text import document_text

            return document_text(document, width)
        case "markdown":
            from milabench.report.markdown import document_markdown

            return document_markdown(document)
        case "html":
            # The page takes longer to import than text takes to write.
            from milabench.pages.blocks import document_page

            return document_page(document)
        case "json":
            return json.dumps(strict({"schema": SCHEMA, **value}), indent=2, allow_nan=False) + "\n"
        case _:
            raise UsageError(f"--format {format_name}: choose one of {', '.join(DOCUMENT_FORMATS)}")
