"""A YAML file whose keys are declared (kinds.py) -> the values of its keys."""

from __future__ import annotations

from typing import Any

from milabench.config.kinds import Record, ValueParser
from milabench.config.problems import Problems
from milabench.config.source_map import Located, SourceLocation
from milabench.config.yaml_reader import decode_text, parse_document


def declared_values(keys: Record, content: bytes, name: str, folder: str = "") -> tuple[Located, dict[str, Any]]:
    """Return the document in a file's bytes, and the values of its keys, with paths relative to `folder`.

    Raises ConfigError with every problem, each at `name:line:column`.
    """
    root = parse_document(decode_text(content, name), SourceLocation(name, folder)).root
    problems = Problems()
    values: dict[str, Any] = keys.values(root, "", ValueParser(problems, home=""))
    problems.raise_any()
    return root, values
