"""The formats in which reports are written: their names, the endings of their files, and the required renderers.

A format is a module of this package named after it, or a module of a feature that `seams.FORMATS` names, and a line in `FORMATS`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

from milabench.seams import FORMATS as ADDED
from milabench.seams import require, resolved

if TYPE_CHECKING:
    from milabench.analysis.acceptance_model import Acceptance
    from milabench.analysis.comparison_model import Comparison
    from milabench.analysis.summary_model import Summary
    from milabench.analysis.system_diff import Differences
    from milabench.analysis.traces import RunTraces
    from milabench.report.document_renderer import DocumentRenderer


class Renderer(Protocol):
    """The interface of a format's module. A format without drawings ignores `traces`."""

    def render(self, summaries: Sequence[Summary], traces: RunTraces = None) -> str:
        """Return the report on some runs. `traces` has the course of each run's steps."""

    def render_comparison(
        self, comparison: Comparison, differences: Differences = None, traces: RunTraces = None
    ) -> str:
        """Return the comparison. `traces` has None for a system of which only a JSON report is known."""

    def render_acceptance(self, acceptance: Acceptance) -> str:
        """Return the verdict on a run, criterion by criterion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A format. `draws`: it shows the course of steps, so that their records have to be read for it.

    `most_drawn` is the number of compared systems above which it does not. `is_for_people`: a run is shown with a shipped
    reference where none was named. Programs get only requested references. `fits`: its tables can be fitted to a terminal.
    """

    name: str
    endings: tuple[str, ...]
    fits: bool = False
    is_for_people: bool = False
    draws: bool = False
    most_drawn: int = 0

    @property
    def renderer(self) -> Renderer:
        """Import and return the module of the format: HTML takes longer to import than text takes to write."""
        module = ADDED.get(self.name, f"report.{self.name}")
        require(module, f"--format {self.name}")
        return cast("Renderer", resolved(module))

    def fitted(self, width: int | None) -> Renderer:
        """Return the renderer whose tables fit a terminal of this width. None: no limit."""
        return self.renderer if width is None or not self.fits else self.by_line(width)

    def by_line(self, width: int | None) -> DocumentRenderer:
        """Return the same, which also writes a comparison line by line. Only for a format that fits a terminal."""
        return cast("DocumentRenderer", self.renderer).fitted(width)


# Systems drawn benchmark by benchmark in one page; of more than these, the lines could not be distinguished.
SYSTEMS_DRAWN = 6
_ALL = (
    Format(name="brief", endings=(), fits=True, is_for_people=True),
    Format(name="text", endings=(".txt",), fits=True, is_for_people=True),
    Format(name="markdown", endings=(".md", ".markdown"), is_for_people=True),
    Format(name="html", endings=(".html", ".htm"), is_for_people=True, draws=True, most_drawn=SYSTEMS_DRAWN),
    Format(name="csv", endings=(".csv",)),
    Format(name="json", endings=(".json",)),
    Format(name="junit", endings=(".xml",)),
)
FORMATS: Mapping[str, Format] = {entry.name: entry for entry in _ALL}


# Bytes that no terminal shows, and of which only some commands make one: workbooks/xlsx.py, by workbooks/workbook.py.
WORKBOOK = Format(name="xlsx", endings=(".xlsx",), is_for_people=True)


def format_of_file(ending: str) -> Format | None:
    """Return the format for a file's suffix (`.md`, in any case). None for an unknown suffix."""
    return next((entry for entry in _ALL if ending.lower() in entry.endings), None)
