"""Output of programs, made safe to show on a terminal."""

from __future__ import annotations

import re

# Control sequences of terminals (colours, cursor movements; ECMA-48) and of window titles.
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


def one_line(text: str) -> str:
    """Return the text on one line, without colours and other terminal control sequences; runs of blanks become one."""
    return " ".join("".join(c if c.isprintable() else " " for c in _SEQUENCE.sub("", text)).split())
