"""The reports of a format that writes documents (report/document.py): all that differs is how it writes a block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from milabench.acceptance.evaluate import Acceptance
    from milabench.analysis.compare import Comparison
    from milabench.analysis.summary_model import Summary
    from milabench.analysis.system_diff import Difference
    from milabench.analysis.traces import Trace
    from milabench.report.document import Document


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentRenderer:
    """A Renderer without drawings; `write` turns a document into text."""

    write: Callable[[Document], str]

    def render(self, summaries: Sequence[Summary], traces: Sequence[Sequence[Trace]] | None = None) -> str:
        """Return the reports on some runs, one after the other."""
        from milabench.report.run_document import run_document

        return "\n".join(self.write(run_document(summary)) for summary in summaries)

    def render_comparison(
        self,
        comparison: Comparison,
        differences: Sequence[Difference] | None = None,
        traces: Sequence[Sequence[Trace] | None] | None = None,
    ) -> str:
        """Return a comparison; `differences` where requested."""
        from milabench.report.comparison_text import comparison_document

        return self.write(comparison_document(comparison, differences))

    def render_acceptance(self, acceptance: Acceptance) -> str:
        """Return the verdict on a run, criterion by criterion."""
        from milabench.report.acceptance_document import acceptance_document  # imports YAML, which takes 15 ms

        return self.write(acceptance_document(acceptance))
