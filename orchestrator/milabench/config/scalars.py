"""The values of plain YAML scalars, and where YAML 1.1 and 1.2 disagree about them."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Final

from milabench.config.source_map import WrittenFloat

_ONLY_YAML11: Final = {
    **dict.fromkeys(["yes", "Yes", "YES", "on", "On", "ON"], True),
    **dict.fromkeys(["no", "No", "NO", "off", "Off", "OFF"], False),
}
_WORDS: Final = {
    **dict.fromkeys(["true", "True", "TRUE"], True),
    **dict.fromkeys(["false", "False", "FALSE"], False),
    **dict.fromkeys(["", "~", "null", "Null", "NULL"], None),
    **dict.fromkeys([".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"], float("inf")),
    **dict.fromkeys(["-.inf", "-.Inf", "-.INF"], float("-inf")),
    **dict.fromkeys([".nan", ".NaN", ".NAN"], float("nan")),
    **_ONLY_YAML11,
}
# OmegaConf's rule: an exponent makes a float even without a point.
_FLOAT: Final = (
    r"[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+"
    r"|\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?"
)
_SEXAGESIMAL: Final = r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?"
_DATE: Final = r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:(?:[Tt]|[ \t]+)[0-9]{1,2}:[0-9:.Zz+\- \t]*)?"
_NUMBER_IN_11: Final = "a number in YAML 1.1, text in YAML 1.2"


def _whole(text: str, base: int = 10) -> int:
    return int(text.replace("_", ""), base)


def _float(text: str) -> float:
    return float(text.replace("_", "")) if "." in text else WrittenFloat(text)


_SHAPES: Final[tuple[tuple[re.Pattern[str], Callable[[str], object], str], ...]] = tuple(
    (re.compile(rf"(?:{shape})\Z"), read, disagreement)
    for shape, read, disagreement in (
        (r"[-+]?(?:0|[1-9][0-9_]*)", _whole, ""),
        (_FLOAT, _float, ""),
        (r"0x_*[0-9a-fA-F][0-9a-fA-F_]*", partial(_whole, base=16), ""),
        (r"[-+]0x_*[0-9a-fA-F][0-9a-fA-F_]*", partial(_whole, base=16), _NUMBER_IN_11),
        (r"[-+]?0b_*[01][01_]*", partial(_whole, base=2), _NUMBER_IN_11),
        (r"[-+]?0[0-9_]+|0o[0-7]+", str, "octal in only one of YAML 1.1 and 1.2"),
        (_SEXAGESIMAL, str, "a number to base 60 in YAML 1.1, text in YAML 1.2"),
        (_DATE, str, "a date in YAML 1.1, text in YAML 1.2"),
        (r"[-+]\.[0-9]+(?:[eE][-+]?[0-9]+)?", str, "text in YAML 1.1, a number in YAML 1.2"),
    )
)
"""The shapes of plain scalars that are no words: how each is read, and the two readings where YAML 1.1 and 1.2 disagree."""
_MAX_DIGITS: Final = 4000
_NUMERIC_START: Final = frozenset("+-.0123456789")


# The same few words and numbers stand in every benchmark of a large suite.
@lru_cache(maxsize=65_536)
def resolve_scalar(text: str) -> tuple[object, str]:
    """Return the value of a plain scalar, and, where YAML 1.1 and 1.2 read it differently, both readings (else "").

    As PyYAML's safe loader reads it, with floats as OmegaConf has them (`1e3`). Text that only YAML 1.1 or only YAML 1.2 takes
    for an octal number, a time or a date stays text.
    """
    if text in _WORDS:
        value = _WORDS[text]
        return value, f"{str(value).lower()} in YAML 1.1, text in YAML 1.2" if text in _ONLY_YAML11 else ""
    if text[0] not in _NUMERIC_START or len(text) > _MAX_DIGITS:
        return text, ""
    for shape, read, disagreement in _SHAPES:
        if shape.match(text):
            return read(text), disagreement or (_NUMBER_IN_11 if "_" in text else "")
    return text, ""
