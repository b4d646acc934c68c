"""The curves of served models on a page: as the feature draws them that knows them, or a line that it is left out."""

from __future__ import annotations

from collections.abc import Sequence

from milabench.analysis.comparison_model import Comparison
from milabench.analysis.summary_model import Summary
from milabench.pages.markup import Child, note
from milabench.report.curves import curves_left_out, has_curves
from milabench.seams import handler

Section = tuple[str, str, Child]


def curve_section(shown: Summary | Comparison) -> Sequence[Section]:
    """Return the section of the curves of a run or a comparison, as drawings and tables. Empty without curves."""
    if not has_curves(shown):
        return ()
    left_out = curves_left_out()
    content: Child = note(left_out) if left_out else handler("curves: page")(shown)
    return (("curves", "Curves", content),)
