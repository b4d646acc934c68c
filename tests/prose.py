"""Measures the project's English: counts per 1,000 words, long sentences and retired terms, by kind of text.

Kinds are the pages written by hand (docs/ and the root), help texts, messages in code, and docstrings. Code blocks, tables,
headings, link targets and generated text are not prose.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from tests.pages import DOCS, ROOT, Page, pages
from tests.structure import CONTROL_PLANE, INSTRUMENTS, Module, modules

# Written by docs/generate.py, or by `make perf` and the GPU checks.
GENERATED = {
    *(
        f"docs/reference/{name}.md"
        for name in ("command-line", "suite-keys", "checks", "api", "upstream-names", "failures")
    ),
    "docs/suite.md",
    "docs/measurements.md",
}
LONG_SENTENCE = 25  # words
MESSAGE_WORDS = 4  # a shorter literal is a name, a heading or a key
# Names of the measures; the order of the printed table.
COUNTED: Mapping[str, re.Pattern[str]] = {
    "what": re.compile(r"\bwhat\b"),
    "one": re.compile(r"\bone\b"),
    "that of": re.compile(r"\b(?:that|those) of\b"),
    "of it": re.compile(r"\bof it\b"),
    "beside": re.compile(r"\bbeside\b"),
}
# Terms -> the field's term.
RETIRED: Mapping[str, str] = {
    r"(?<!at )least(?! squares)": "minimum, smallest",
    r"doubts?": "warning",
    r"mend(?:s|ed|ing)?": "fix",
    r"in hand": "current",
    r"(?:stands?|standing) for": "represents",
    r"beside": "next to, with",
    r"by what": "why, how",
    r"so many": "the number",
    r"judg(?:e|es|ed|ing)": "check",
    r"decides? nothing": "not used for the decision",
    r"launch(?:es)?": "repeat; run of the process",
    r"strangers?": "unknown process",
    r"witness(?:es)?": "say what shows it",
}

_COMMENT = re.compile(r"<!--.*?-->", re.S)
_REGION = re.compile(r"<!-- (\w+): begin.*?-->.*?<!-- \1: end -->", re.S)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_SPAN = re.compile(r"``?[^`]+``?")
_NOT_PROSE = re.compile(r"\s*[|#<]")
_ITEM = re.compile(r"^\s*(?:[-*+]|\d+\.)\s+")
_WORD = re.compile(r"[A-Za-z][\w'’-]*")
_END = re.compile(r"(?<=[.!?])[)\"'*]*\s+(?=[A-Z(`*\"'\d])|(?<=[a-z)`*]):\s*$", re.M)


@dataclass(frozen=True)
class Sentence:
    """One sentence, with the file (and line, where known) that holds it."""

    where: str
    text: str

    @cached_property
    def words(self) -> int:
        return len(_WORD.findall(self.text))


@dataclass(frozen=True)
class Prose:
    """All sentences of one kind of text."""

    sentences: tuple[Sentence, ...]

    @cached_property
    def words(self) -> int:
        return sum(sentence.words for sentence in self.sentences)

    @cached_property
    def counts(self) -> Mapping[str, float]:
        """Each measure: per 1,000 words, per sentence, or the share in percent."""
        per_thousand = 1000 / max(self.words, 1)
        texts = [sentence.text.lower() for sentence in self.sentences]
        number = max(len(texts), 1)
        return {
            **{name: per_thousand * sum(len(p.findall(text)) for text in texts) for name, p in COUNTED.items()},
            "semicolons a sentence": sum(text.count(";") for text in texts) / number,
            "% over 25 words": 100 * sum(sentence.words > LONG_SENTENCE for sentence in self.sentences) / number,
            "retired": per_thousand * sum(len(retired_terms(text)) for text in texts),
        }

    def worst(self, number: int) -> list[Sentence]:
        """Return the sentences that break most of the rules."""
        return sorted(self.sentences, key=faults, reverse=True)[:number]


def faults(sentence: Sentence) -> float:
    """Return how far a sentence is from the rules: each counted word, semicolon and retired term, and each ten words too many."""
    text = sentence.text.lower()
    counted = sum(len(pattern.findall(text)) for pattern in COUNTED.values())
    excess = max(0, sentence.words - LONG_SENTENCE) / 10
    return counted + text.count(";") + len(retired_terms(text)) + excess


def retired_terms(text: str) -> list[str]:
    """Return the retired terms of a text."""
    return [match[0] for match in _RETIRED.finditer(text.lower())]


_RETIRED = re.compile(rf"(?<![\w-])(?:{'|'.join(RETIRED)})(?![\w-])")


def sentences_of(text: str, where: str) -> Iterator[Sentence]:
    """Yield the sentences of plain text, paragraph by paragraph."""
    for paragraph in re.split(r"\n\s*\n", text):
        for sentence in _END.split(" ".join(paragraph.split())):
            if len(_WORD.findall(sentence)) > 1:
                yield Sentence(where=where, text=sentence.strip())


def plain_text(markdown: str) -> str:
    """Return the prose of a Markdown page: list items are paragraphs, code spans one word, links their text."""
    text = _COMMENT.sub("", _REGION.sub("", markdown))
    text = _LINK.sub(r"\1", _SPAN.sub("CODE", text))
    lines: list[str] = []
    for line in text.splitlines():
        if _ITEM.match(line):
            lines.append("")
        lines.append("" if _NOT_PROSE.match(line) else _ITEM.sub("", line))
    return "\n".join(lines)


def page_prose(page: Page) -> Prose:
    """Return the sentences of one page."""
    return Prose(sentences=tuple(sentences_of(plain_text(page.prose), page.name)))


def handwritten() -> list[Page]:
    """Return the pages written by hand, without those of single benchmarks."""
    return [
        page
        for page in pages()
        if page.name not in GENERATED and (DOCS in page.path.parents or page.path.parent == ROOT)
    ]


def docs() -> Prose:
    """Return the prose of the pages written by hand."""
    return Prose(sentences=tuple(sentence for page in handwritten() for sentence in page_prose(page).sentences))


def help_prose(texts: Iterable[tuple[str, str]]) -> Prose:
    """Return the prose of help texts; each text counts once."""
    first: dict[str, str] = {}
    for name, text in texts:
        first.setdefault(text, name)
    return Prose(sentences=tuple(sentence for text, name in first.items() for sentence in sentences_of(text, name)))


def sources() -> Iterator[tuple[str, Module]]:
    """Yield every module of both distributions with its path."""
    for tree in (CONTROL_PLANE, INSTRUMENTS):
        for module in modules(tree).values():
            yield module.path.relative_to(ROOT).as_posix(), module


def docstrings() -> Prose:
    """Return the prose of all docstrings."""
    texts = ((path, node) for path, module in sources() for node in _docstring_nodes(module.tree))
    return Prose(
        sentences=tuple(
            sentence
            for path, node in texts
            for sentence in sentences_of(_SPAN.sub("CODE", inspect.cleandoc(str(node.value))), f"{path}:{node.lineno}")
        )
    )


def messages(other: frozenset[str]) -> Prose:
    """Return the prose of string literals that read as sentences, without docstrings and the `other` texts (help)."""
    found: list[Sentence] = []
    for path, module in sources():
        for text, line in _literals(module.tree):
            if text.count(" ") >= MESSAGE_WORDS - 1 and text not in other and _reads_as_prose(text):
                found += sentences_of(_SPAN.sub("CODE", text), f"{path}:{line}")
    return Prose(sentences=tuple(found))


def _docstring_nodes(tree: ast.AST) -> Iterator[ast.Constant]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            match node.body:
                case [ast.Expr(value=ast.Constant(value=str()) as constant), *_]:
                    yield constant


def _literals(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the string literals of a module with their lines; a value inside an f-string is one word."""
    passed = {id(node) for node in _docstring_nodes(tree)}
    for node in ast.walk(tree):
        match node:
            case ast.JoinedStr(values=values):
                passed |= {id(part) for part in values}
                parts = (str(part.value) if isinstance(part, ast.Constant) else "X" for part in values)
                yield "".join(parts), node.lineno
            case ast.Constant(value=str(text)) if id(node) not in passed:
                yield text, node.lineno


def _reads_as_prose(text: str) -> bool:
    words = text.split()
    plain = [word for word in words if re.fullmatch(r"[\"'(]?[A-Za-z][a-z'-]*[.,;:!?\"')]*", word)]
    return (
        len(words) >= MESSAGE_WORDS
        and len(plain) >= 0.7 * len(words)
        and not re.search(r"[{}<>]|^\s*(SELECT|CREATE)\b", text)
    )
