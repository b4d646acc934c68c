"""The names of the files in a run directory: of the run itself, of its shares, of attempts at steps."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import unquote

from milabench.events.names import encode_name
from milabench.events.shares import SHARE_NAME, share_number

MANIFEST = "manifest.json"
JOURNAL = "journal.jsonl"
SUMMARY = "summary.json"

_OF_A_SHARE = re.compile(rf"(?:manifest\.({SHARE_NAME.pattern})\.json|journal\.({SHARE_NAME.pattern})\.jsonl)")
_STEM_PARTS = re.compile(r"(?:\.(?P<tag>D\d+|\d+))?(?:\.R(?P<repeat>\d+))?(?:\.(?P<node>node\d+))?$")

# No name contains a tilde: `encode_name` replaces it.
_ATTEMPT = re.compile(r"~(?P<number>\d+)$")


def stem_of(bench: str, *, tag: str = "", repeat: int | None = None, node: int | None = None) -> str:
    """Return the name, less its ending, of the files of a step. `repeat` and `node` are None when the run has only one."""
    parts = [encode_name(bench)]
    if tag:
        parts.append(encode_name(tag))
    if repeat is not None:
        parts.append(f"R{repeat}")
    if node is not None:
        parts.append(f"node{node}")
    return ".".join(parts)


def attempt_stem(stem: str, attempt: int) -> str:
    """Return the name, less its ending, of the files of an attempt at a step: `digits.D0`, of the second `digits.D0~2`."""
    return stem if attempt <= 1 else f"{stem}~{attempt}"


def evidence_name(stem: str) -> str:
    """Return the name of the file with the state of a hung step's processes."""
    return f"{stem}.stacks.json"


def without_attempt(stem: str) -> str:
    """Return the stem of a step's first attempt, from the stem of any."""
    return _ATTEMPT.sub("", stem)


def journal_name(share: str = "") -> str:
    """Return the name of the journal of a share, or without a share of the orchestrators' journal."""
    return f"journal.{share}.jsonl" if share else JOURNAL


def share_manifest_name(share: str) -> str:
    """Return the name of the file with the work and the place of a share."""
    return f"manifest.{share}.json"


def is_journal_or_manifest(name: str) -> bool:
    """Return whether this is the name of a manifest or a journal, of a run or of its shares."""
    return name in (MANIFEST, JOURNAL) or _OF_A_SHARE.fullmatch(name) is not None


def shares_named(names: Iterable[str]) -> list[str]:
    """Return the shares that have a journal or a manifest, in order."""
    matches = (_OF_A_SHARE.fullmatch(name) for name in names)
    return sorted({match[1] or match[2] for match in matches if match is not None}, key=share_number)


@dataclass(frozen=True, slots=True, kw_only=True)
class StemParts:
    """The parts of a step's file name, from which a run without a manifest is understood."""

    bench: str
    tag: str = ""
    repeat: int = 0
    node: str = ""


def parse_stem(stem: str) -> StemParts:
    """Return the parts of a stem. Everything that is not a known suffix belongs to the benchmark's name."""
    match = _STEM_PARTS.search(stem)
    assert match is not None  # every part is optional
    bench = unquote(stem[: match.start()]) or stem
    return StemParts(bench=bench, tag=match["tag"] or "", repeat=int(match["repeat"] or 0), node=match["node"] or "")
