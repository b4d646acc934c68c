"""The values of plain YAML scalars, and where YAML 1.1 and 1.2 disagree about them."""

from __future__ import annotations

import re
from functools import lru_cache
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
    **_ONLY_YAML11,
}
_DECIMAL: Final = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)\Z")
_HEXADECIMAL: Final = re.compile(r"[-+]?0x[0-9a-fA-F_]+\Z")
_BINARY: Final = re.compile(r"[-+]?0b[01_]+\Z")
_OCTAL: Final = re.compile(r"[-+]?0[0-9_]+\Z|0o[0-7]+\Z")
_SEXAGESIMAL: Final = re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?\Z")
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:(?:[Tt]|[ \t]+)[0-9]{1,2}:[0-9:.Zz+\- \t]*)?\Z")
# OmegaConf's rule: an exponent makes a float even without a point.
_FLOAT: Final = re.compile(
    r"""[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?\Z
      | [-+]?[0-9][0-9_]*[eE][-+]?[0-9]+\Z
      | \.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?\Z""",
    re.VERBOSE,
)
_SIGNED_FRACTION: Final = re.compile(r"[-+]\.[0-9]+(?:[eE][-+]?[0-9]+)?\Z")
_SPECIAL: Final = {
    **dict.fromkeys([".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"], float("inf")),
    **dict.fromkeys(["-.inf", "-.Inf", "-.INF"], float("-inf")),
    **dict.fromkeys([".nan", ".NaN", ".NAN"], float("nan")),
}
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
    if text[0] not in _NUMERIC_START:
        return text, ""
    if len(text) > _MAX_DIGITS:
        return text, ""
    if _DECIMAL.match(text):
        return int(text.replace("_", "")), "a number in YAML 1.1, text in YAML 1.2" if "_" in text else ""
    if _FLOAT.match(text):
        value = WrittenFloat(text) if "." not in text else float(text.replace("_", ""))
        return value, "a number in YAML 1.1, text in YAML 1.2" if "_" in text else ""
    if text in _SPECIAL:
        return _SPECIAL[text], ""
    if _HEXADECIMAL.match(text) and text.strip("+-").replace("_", "") != "0x":
        signed = text[0] in "+-"
        odd = signed or "_" in text
        return int(text.replace("_", ""), 16), "a number in YAML 1.1, text in YAML 1.2" if odd else ""
    if _BINARY.match(text) and text.strip("+-").replace("_", "") != "0b":
        return int(text.replace("_", ""), 2), "a number in YAML 1.1, text in YAML 1.2"
    if _OCTAL.match(text):
        return text, "octal in only one of YAML 1.1 and 1.2"
    if _SEXAGESIMAL.match(text):
        return text, "a number to base 60 in YAML 1.1, text in YAML 1.2"
    if _DATE.match(text):
        return text, "a date in YAML 1.1, text in YAML 1.2"
    if _SIGNED_FRACTION.match(text):
        return text, "text in YAML 1.1, a number in YAML 1.2"
    return text, ""
