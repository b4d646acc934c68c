"""The workload that a benchmark represents, in a line: the first sentence of its README."""

from __future__ import annotations

import re
from pathlib import Path

from milabench.devices.regular_file import read_regular
from milabench.shown import cut_text, visible_line

README = "README.md"
_MOST_BYTES = 2**20
_LOOKED_AT = 4096  # characters: a README that says what it is about says so at its beginning
_MOST_SHOWN = 240

_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_HEADING_OR_PICTURE = re.compile(r"#|!\[|\[!\[")
# A list, a table, a quotation, code or HTML: no prose.
_NO_PROSE = re.compile(r"(?:[-*+]|\d+[.)])\s|[|>]|```|~~~|<")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
# Where a clause of a sentence ends.
_CLAUSE = re.compile(r"[:;,.(]\s")
_SENTENCE = re.compile(r".+?[.!?](?=\s+[A-Z0-9\"'(]|\s*$)")


def stands_for(what: str, folder: object) -> str:
    """Return the workload that a benchmark represents: from its suite, else the first sentence of its README, if it has one."""
    return what or (first_sentence(folder) if isinstance(folder, Path) else "")


def first_sentence(folder: Path) -> str:
    """Return the first sentence below the heading of a folder's README.md as plain text. Empty where there is none."""
    try:
        content = read_regular(folder / README, _MOST_BYTES)
    except OSError:
        return ""
    text = _COMMENT.sub("", content.decode("utf-8", "replace")[:_LOOKED_AT])
    prose: list[str] = []
    for line in map(str.strip, text.splitlines()):
        if _NO_PROSE.match(line) or (prose and not line):
            break
        if line and not _HEADING_OR_PICTURE.match(line):
            prose.append(line)
    plain = re.sub(r"`|\*\*", "", _LINK.sub(r"\1", " ".join(prose)))
    sentence = _SENTENCE.match(plain)
    whole = visible_line((sentence[0] if sentence else plain).strip().rstrip("."))
    clauses = [match.start() for match in _CLAUSE.finditer(whole, 0, _MOST_SHOWN)]
    return whole[: clauses[-1]] if len(whole) > _MOST_SHOWN and clauses else cut_text(whole, _MOST_SHOWN)
