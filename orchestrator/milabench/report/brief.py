"""The report that a terminal shows: a table that fits it, the doubts in words, and what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milabench.events.reasons import REASONS
from milabench.report import document, model
from milabench.report.document_renderer import DocumentRenderer, ab_blocks
from milabench.report.text import document_text

if TYPE_CHECKING:
    from milabench.analysis.summary_model import Summary

COLUMNS = ("bench", "fail", "processes", "perf", "units", "sem%", "mde%", "ratio", "validity")
_OPTIONAL = ("sem%", "mde%", "ratio")
_WORDS = {str(reason): text for reason, text in REASONS.items()}
# Of what a report says of a run and its machines.
_LEFT_OUT = ("created", "memory", "os", "software", "harness")
_LEGEND = (
    "perf: rate of one instance (a device, a job); sem%: its standard error over launches",
    "mde%: the difference that two runs like this one would find in 80 of 100 cases",
)


def brief_document(summary: Summary) -> document.Document:
    """Return what decides whether the numbers are good enough, and the command that shows the rest."""
    (label, run), *properties = model.system_lines(summary)
    kept = (pair for pair in properties if pair[0].rpartition(" ")[2] not in _LEFT_OUT)
    table = model.main_table(summary.benchmarks, columns=COLUMNS)
    return (
        document.Title(text=run, label=label),
        document.Properties(pairs=(("result", model.result_text(summary)), *kept)),
        *(() if summary.is_ended else (model.CUT_OFF,)),
        table.without_empty(_OPTIONAL)[0],
        document.Value(name="score", text=_score(summary)),
        document.Notes(lines=_LEGEND),
        *ab_blocks(summary),
        *document.section("failures", model.failures(summary)),
        *document.section("flaky", model.flaky(summary)),
        *document.section("skipped", model.skips(summary)),
        *document.section("replicates", model.replicate_lines(summary)),
        *document.section("doubts", doubts(summary)),
        *document.section("messages", model.messages(summary)),
        document.Notes(lines=next_lines(summary), name="next"),
    )


def _score(summary: Summary) -> str:
    is_relative = summary.score.reference is not None or summary.score.is_compat
    # A mean of tokens, images and Tflops a second is of no use by itself.
    return model.score_line(summary) if is_relative else "none without a reference: `milabench report --reference RUN`"


def doubts(summary: Summary) -> list[tuple[str, str]]:
    """Return the reasons that mark numbers: whose, and in words; what a check saw, where it said so."""
    marked: dict[tuple[str, str], list[str]] = {}
    for bench in model.ordered(summary.benchmarks):
        seen = {check["check"]: check["message"] for check in bench.validations if check["verdict"] != "pass"}
        words = {reason: seen.pop(reason, _WORDS.get(reason, "")) for reason in bench.reasons} | seen
        for reason in words.items():
            marked.setdefault(reason, []).append(bench.bench)
    return [(reason, f"{', '.join(benches)}: {text}") for (reason, text), benches in marked.items()]


def next_lines(summary: Summary) -> tuple[str, ...]:
    """Return the commands that lead on from this report."""
    launches = max((len(bench.processes) for bench in summary.benchmarks), default=0)
    lines = []
    if summary.profile == "quick":
        lines.append(f"`{model.rerun_line(summary, profile='default')}` measures long enough for valid numbers")
    elif launches and launches < 3:
        lines.append(f"`{model.rerun_line(summary, repeat=3)}` measures how far launches differ")
    elif not any(bench.reasons for bench in summary.benchmarks):
        lines.append(f"`milabench compare {summary.run} OTHER` compares with another run")
    return (*lines, "`milabench report --full` shows windows, validations and further metrics")


_RENDERER = DocumentRenderer(write=document_text, document=brief_document)
render, render_comparison = _RENDERER.render, _RENDERER.render_comparison
render_acceptance = _RENDERER.render_acceptance
