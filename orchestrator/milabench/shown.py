"""Foreign text -> text that can be shown: control characters, and characters that change the order of letters, become visible.

Names, units, messages and output come from programs, records and other machines. All that reaches a terminal, a report or a
table passes here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")

# Control characters, C0 and C1 (a CR before a LF ends a line, as on Windows); what changes the direction of text; separators
# of lines besides the LF; halves of surrogate pairs, which stand for bytes that are not UTF-8, and what is no character.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]|\r(?!\n)"
)
_LINE_BREAK = re.compile("[\t\n\r]")
# The colours of ECMA-48, which change how a text looks and nothing else.
_COLOUR = re.compile("(\x1b\\[[0-9;:]*m)")
_PICTURES = 0x2400  # the signs that Unicode has for control characters
# What a spreadsheet takes for a formula where a cell begins with it.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\uff1d", "\uff0b", "\uff0d", "\uff20")

# Where suites lie in an installed wheel; the name alone chooses one of them.
_OF_A_WHEEL = re.compile(r"/(?:.*/)?milabench/shipped/config/([^/.]+)\.yaml")


def visible(text: str) -> str:
    """Return the text with a sign, of width one, for each unreadable character. Line breaks and tabs stay."""
    # Nothing that is printable needs a sign, and that is told several times as fast.
    return text if text.replace("\n", "").isprintable() else _UNSAFE.sub(_sign, text)


def visible_line(text: str) -> str:
    """Return the same on a single line: line breaks and tabs are signs too."""
    return text if text.isprintable() else _LINE_BREAK.sub(_sign, visible(text))


def visible_output(text: str, *, colours: bool = True) -> str:
    """Return output of a program as `visible`, with its colours or without.

    Text that would overwrite a line begins a new line.
    """
    pieces = _COLOUR.split(text.replace("\r\n", "\n").replace("\r", "\n"))
    return "".join(piece * colours if number % 2 else visible(piece) for number, piece in enumerate(pieces))


def cut_text(text: str, longest: int, *, at_word: bool = True) -> str:
    """Return a text cut to a number of characters: as many of its words as fit, or also a part of a word."""
    if len(text) <= longest:
        return text
    kept = text[: longest - 1]
    return f"{(at_word and kept.rpartition(' ')[0]) or kept}…"


def wrapped(text: str, before: str = "", width: int = 120, later: str | None = None) -> list[str]:
    """Return the lines of a text, the first after `before`, the others after `later` or below its end.

    Names and paths stay whole: they are copied from here.
    """
    import textwrap  # few commands wrap anything

    return textwrap.wrap(
        text,
        width,
        initial_indent=before,
        subsequent_indent=" " * len(before) if later is None else later,
        break_long_words=False,
        break_on_hyphens=False,
    )


def last_line(output: str, default: str) -> str:
    """Return the last line of what a program printed, `default` where that is nothing."""
    return (output.strip().splitlines() or [default])[-1].strip()


def counted(number: int, noun: str) -> str:
    """Return `1 step`, `2 steps`."""
    return f"{number} {noun}{'s' * (number != 1)}"


def some_of(names: Sequence[str], most: int, by: str = ", ") -> str:
    """Return names in a row. Of more than `most`, the first ones and how many others there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return by.join(names[:most]) + more


def csv_cell(value: object) -> object:
    """Return a value for a table that a spreadsheet may open: no text is a formula, and numbers stay numbers."""
    if not isinstance(value, str):
        return value
    is_formula = value.startswith(_FORMULA) and not _is_number(value)
    return visible_line(f"'{value}" if is_formula else value)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _sign(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code == 0x7F:
        return "\u2421"
    return chr(_PICTURES + code) if code < 0x20 else "\ufffd"


def suite_word(config: str) -> str:
    """Return the word for a suite: the name of a suite from a wheel, whose path is long, else its path."""
    name = _OF_A_WHEEL.fullmatch(config)
    return name[1] if name else config


def option_words(options: Mapping[str, object], names: Iterable[str]) -> list[str]:
    """Return options of a suite as words of a command line: these names, where they are not None, then lists of overrides."""
    words = []
    for name in names:
        if options.get(name) is not None:
            value = str(options[name])
            flag = f"--{name.removesuffix('_file').replace('_', '-')}"
            words += [flag, suite_word(value) if name == "config_file" else value]
    for name, flag in (("overrides", "--override"), ("slurm_args", "--slurm-arg")):
        given = options.get(name)
        words += [word for value in (given if isinstance(given, list) else ()) for word in (flag, str(value))]
    return words


def is_lock(file: object) -> bool:
    """Return whether a file is a lock of packages by its name: `old.lock`, `requirements.cpu.txt`. Else it is a suite."""
    return str(file).endswith((".lock", ".txt"))


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Return each key once, in order, with the values that it has."""
    groups: dict[K, list[V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups
