"""The words for why a number is suspect or invalid, besides those of checks; docs/reference/protocol.md, section 5."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Reason = Literal[
    "abort-at-exit",
    "above-peak",
    "cases-differ",
    "client-bound",
    "client-differs",
    "clocks-disagree",
    "compat",
    "contended",
    "cut-off",
    "dropped",
    "few-requests",
    "inconsistent",
    "mixed",
    "nodes-differ",
    "nonfinite",
    "output-differs",
    "overlap",
    "points-missing",
    "program-clock",
    "request-errors",
    "short",
    "tail",
    "tokens-unknown",
    "unconverged",
    "wrong",
    "zeros",
]

# A program may give words of its own as a metric's `reasons`; these are the ones that milabench and its instruments give.
REASONS: Mapping[Reason, str] = {
    "abort-at-exit": "all ranks sent their final record and then aborted while exiting",
    "above-peak": "more operations a second than the device can do: `flops_per_item`, `precision`, its name or the rate is wrong",
    "cases-differ": "replicates are means over different cases",
    "client-bound": "the client of a server did not keep the load of a point: it sent late, or had too little in flight",
    "client-differs": "the client's own summary of a point is more than 1 % from what its requests come to",
    "clocks-disagree": "the device's clock and the host's differ by more than 0.5 % over the same steps",
    "compat": "the harmonic mean of rates that milabench 1.3 recorded without items and seconds, of a window nobody knows",
    "contended": "other programs used a device that should have been measured alone",
    "cut-off": "the records end before the step did",
    "dropped": "records were lost",
    "few-requests": "a point of a sweep has too few requests to show whether it keeps the SLO",
    "inconsistent": "a moment counts twice or never, items are of a declared pause, a rank is several processes: it is invalid",
    "mixed": "steps of one job measured in different units, or the run was resumed although something had changed",
    "nodes-differ": "replicates, or the two sides of a pair, ran on different nodes",
    "nonfinite": "observations were not numbers, or their durations were not above zero",
    "output-differs": "answers of a server had another length than asked: it did other work than one that keeps to it",
    "overlap": "ranks or instances measured together for less than 95 % of the time",
    "points-missing": "points of a sweep failed or were skipped, so that the best of the others may not be the best",
    "program-clock": "the harmonic mean of rates that the program measured itself: what its clock includes, only it knows",
    "request-errors": "requests to a server failed, and its SLO has no limit for errors: the numbers are those of the others",
    "short": "the window is not complete: fewer steps or seconds than the profile asks for, quick, or none recorded",
    "tail": "while the last requests of the best point were answered none was sent, which makes its rate more than 2 % too small",
    "tokens-unknown": "a server did not say how many tokens its answers have: the tokenizer counted them in their texts",
    "unconverged": "a metric's spread was still above its limit when measuring ended",
    "wrong": "a result of the device differs from what it must be, in a bit or by more than its tolerance: it is invalid",
    "zeros": "the inputs were zeros, with which devices use less power and may be faster",
}
# Nothing can be said of a number that has one of these.
INVALIDATING: frozenset[Reason] = frozenset({"inconsistent", "wrong"})
