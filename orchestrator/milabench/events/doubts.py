"""Reasons why a number is suspect or invalid, besides findings of checks. See docs/reference/protocol.md, section 5.

To add a reason: a member of `Doubt`, and the code that has it in the `doubts` of a throughput, a step or a benchmark.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class Doubt(StrEnum):
    """A reason for a warning: its word in records and criteria, its meaning, and its remedy.

    A program may give words of its own as a metric's `reasons`. These are the ones that milabench and its instruments give.
    """

    meaning: str
    remedy: str

    def __new__(cls, word: str, meaning: str, remedy: str) -> Self:
        """Return the member with its texts."""
        member = str.__new__(cls, word)
        member._value_ = word
        member.meaning, member.remedy = meaning, remedy
        return member

    ABORT_AT_EXIT = (
        "abort-at-exit",
        "all ranks sent their final record and then aborted while exiting",
        "check the disk and the step's log, then measure again",
    )
    ABOVE_PEAK = (
        "above-peak",
        "more operations a second than the device can do: `flops_per_item`, `precision`, its name or the rate is wrong",
        "correct `flops_per_item` or `precision`, and check that the loop is not timed before its work is done",
    )
    CASES_DIFFER = (
        "cases-differ",
        "repeats are means over different cases",
        "run the same cases in every repeat",
    )
    CLIENT_BOUND = (
        "client-bound",
        "the client of a server did not keep the load of a point: it sent late, or had too little in flight",
        "give it processors or a node of its own, or use fewer or lower points",
    )
    CLIENT_DIFFERS = (
        "client-differs",
        "the client's own summary of a point differs by more than 1 % from the figures of its requests",
        "check whether it counts tokens or pieces of the stream, or use another client",
    )
    CLOCKS_DISAGREE = (
        "clocks-disagree",
        "the device's clock and the host's differ by more than 0.5 % over the same steps",
        "see docs/explanation/timing-audit.md, and fix the probe",
    )
    COMPAT = (
        "compat",
        "the harmonic mean of rates that milabench 1.3 recorded without items and seconds, of a window nobody knows",
        "measure again, or compare such numbers only with each other",
    )
    CONTENDED = (
        "contended",
        "other programs used the device meanwhile",
        "end them, and measure again",
    )
    CUT_OFF = (
        "cut-off",
        "the records end before the step did",
        "check the disk and the step's log, then measure again",
    )
    DROPPED = (
        "dropped",
        "records were lost",
        "check the disk and the step's log, then measure again",
    )
    FEW_REQUESTS = (
        "few-requests",
        "a point of a sweep has too few requests to show whether it keeps the SLO",
        "more requests at this point, or more repeats",
    )
    INCONSISTENT = (
        "inconsistent",
        "a moment counts twice or never, items are of a declared pause, a rank is several processes: it is invalid",
        "observe a single loop of a single process: `when=` of the probe, `RANK`, `probes.pause` around a validation",
    )
    MIXED = (
        "mixed",
        "steps of the same job used different units, or the run was resumed after a change",
        "measure it in a single run",
    )
    NODES_DIFFER = (
        "nodes-differ",
        "repeats, or the two sides of a pair, ran on different nodes",
        "measure all of them in the same allocation, or on the same node",
    )
    NONFINITE = (
        "nonfinite",
        "observations were not numbers, or their durations were not above zero",
        "fix the program or its probe",
    )
    OUTPUT_DIFFERS = (
        "output-differs",
        "the server's answers differ in length from the request: it did different work",
        "make the server heed `ignore_eos` and `max_tokens` (the note of the point has an example)",
    )
    OVERLAP = (
        "overlap",
        "ranks or instances measured together for less than 95 % of the time",
        "find out why some started late or ended early",
    )
    POINTS_MISSING = (
        "points-missing",
        "points of a sweep failed or were skipped, so that the best of the others may not be the best",
        "read the cause under the table, then use a larger `max_duration`, `on_server_exit: restart`, or a longer context",
    )
    PROGRAM_CLOCK = (
        "program-clock",
        "the harmonic mean of rates that the program measured itself: only the program knows what its clock includes",
        "observe its loop with a voirfile, or trust its clock",
    )
    REQUEST_ERRORS = (
        "request-errors",
        "requests to a server failed, and its SLO has no limit for errors: only the other requests count",
        "read the note of the point, and set `error_rate` in `slo` if some may fail",
    )
    SHORT = (
        "short",
        "the window has fewer steps or seconds than the profile asks for, or the profile is quick",
        "use `--profile default`, and give the program more work if it ends too soon",
    )
    TAIL = (
        "tail",
        "while the last requests of the best point were answered none was sent, which makes its rate more than 2 % too small",
        "use larger `seconds` for rates, more `rounds` for a concurrency",
    )
    TOKENS_UNKNOWN = (
        "tokens-unknown",
        "a server did not say how many tokens its answers have: the tokenizer counted them in their texts",
        "make the server send it (`stream_options.include_usage`)",
    )
    UNCONVERGED = (
        "unconverged",
        "a metric's spread was still above its limit when measuring ended",
        "measure longer, or on a quieter machine",
    )
    WRONG = (
        "wrong",
        "a result of the device differs from what it must be, in a bit or by more than its tolerance: it is invalid",
        "repeat it on another device. For an operator, state the tolerance that its number format needs",
    )
    ZEROS = (
        "zeros",
        "the inputs were zeros, with which devices use less power and may be faster",
        "give the operator other inputs",
    )


INVALID = frozenset((Doubt.INCONSISTENT, Doubt.WRONG))
"""Reasons that make a number invalid. Others make it suspect."""
