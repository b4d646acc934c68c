"""Read the pages of the documentation: code spans, links, anchors, fenced blocks and the command lines in them.

Used by the tests of the pages; imports nothing of the product.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
INDEX = DOCS / "index.md"

_FENCE = re.compile(r"^(?P<mark>```+)(?P<info>[^\n`]*)\n(?P<text>.*?)^(?P=mark)[ ]*$", re.M | re.S)
_SPAN = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+[ ]+(.*)$", re.M)
_ID = re.compile(r'<a id="([^"]+)">')


@dataclass(frozen=True)
class Block:
    """A fenced block; `words` is what follows the language on the opening fence."""

    language: str
    words: tuple[str, ...]
    text: str

    @property
    def is_run(self) -> bool:
        """Whether the tests execute it."""
        return self.language == "sh" and self.words[:1] == ("run",)

    @property
    def is_slow(self) -> bool:
        return "slow" in self.words

    @property
    def exit_codes(self) -> tuple[int, ...]:
        """The exit codes that its last command may have."""
        for word in self.words:
            if word.startswith("exit="):
                return tuple(int(code) for code in word.removeprefix("exit=").split(","))
        return (0,)

    @property
    def folder(self) -> str:
        """The folder of a checkout that it is run in: `in=FOLDER`."""
        return next((word.removeprefix("in=") for word in self.words if word.startswith("in=")), "")

    @property
    def command_lines(self) -> Iterator[str]:
        """Yield the commands that a reader would type, without prompts, continuation lines joined."""
        text = self.text.replace("\\\n", " ")
        for line in text.splitlines():
            if self.language == "console":
                if line.startswith("$ "):
                    yield line[2:]
            elif line.strip():
                yield line


@dataclass(frozen=True)
class Page:
    """One Markdown file."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @cached_property
    def text(self) -> str:
        return self.path.read_text()

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        found = []
        for match in _FENCE.finditer(self.text):
            language, *words = match["info"].split() or [""]
            found.append(Block(language=language, words=tuple(words), text=match["text"]))
        return tuple(found)

    @cached_property
    def prose(self) -> str:
        """The page without its fenced blocks."""
        return _FENCE.sub("", self.text)

    @cached_property
    def spans(self) -> tuple[str, ...]:
        """What stands in backticks in the prose; a pipe that a table needed escaped is plain again."""
        return tuple(span.replace("\\|", "|") for span in _SPAN.findall(self.prose))

    @cached_property
    def links(self) -> tuple[str, ...]:
        """Targets of its links that lead to files of the repository or to anchors."""
        return tuple(
            link for link in _LINK.findall(_SPAN.sub("", self.prose)) if not re.match(r"[a-z]+:", link, re.IGNORECASE)
        )

    @cached_property
    def anchors(self) -> frozenset[str]:
        """The anchors that GitHub makes of its headings, and those that it names itself."""
        slugs = set(_ID.findall(self.text))
        for heading in _HEADING.findall(self.prose):
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
            slugs.add(re.sub(r"[^\w\- ]", "", plain.lower()).strip().replace(" ", "-"))
        return frozenset(slugs)

    @property
    def command_lines(self) -> Iterator[str]:
        """Yield the commands of its blocks, and those in backticks in its prose."""
        for block in self.blocks:
            if block.language in ("console", "sh"):
                yield from block.command_lines
        yield from (span for span in self.spans if span.startswith(("milabench ", "make ", "python -m ")))


def pages() -> tuple[Page, ...]:
    """Return every page that a user or contributor reads."""
    paths = [
        *(
            ROOT / name
            for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "benchmate/README.md")
        ),
        *DOCS.rglob("*.md"),
        *(ROOT / "benchmarks").glob("*/README.md"),
    ]
    return tuple(Page(path) for path in sorted(paths))


def words_of(command_line: str) -> list[str]:
    """Return the words of the first simple command of a line; nothing when it is no command of a shell."""
    try:
        lexer = shlex.shlex(command_line, posix=True, punctuation_chars=";&|<>()")
        lexer.whitespace_split = True
        words = list(lexer)
    except ValueError:
        return []
    for index, word in enumerate(words):
        if word and set(word) <= set(";&|<>()"):
            words = words[:index]
            break
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    return words
