"""The texts that every report shows: failed steps, checks, the score, the next step."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from milabench.analysis.intervals import LEAST_LAUNCHES
from milabench.analysis.summary_model import SOUND, BenchSummary, Summary, some_names, validity_words
from milabench.events.attempts import with_node
from milabench.events.doubts import Doubt
from milabench.events.run_files import parse_stem
from milabench.report.curves import messages_of_curve
from milabench.report.document import Entry, Statement
from milabench.report.labels import format_number, percents, replicates_text
from milabench.report.rerun import is_of_commands, line_about_run, rerun_line
from milabench.shown import counted, grouped, some_of


def validity_text(bench: BenchSummary) -> str:
    """Return whether the number of a benchmark is trustworthy, or why there is none that counts."""
    if bench.outcome != "passed":
        return bench.outcome
    flaky = ", flaky" if bench.flaky else ""
    if bench.validity is None:
        return f"{_why_no_number(bench)}{flaky}"
    return validity_words(bench.validity, bench.doubts, bench.uncertainty) + flaky


def _why_no_number(bench: BenchSummary) -> str:
    """Return why a benchmark that passed has no number. For a sweep: no point is the best."""
    if (curve := bench.serving) is None or curve.best:
        return "no rate"
    is_measured = any(point.state == "measured" for point in curve.points)
    if curve.has_few_requests:
        return validity_words("suspect", (Doubt.FEW_REQUESTS,))
    return "no point meets the SLO" if is_measured and curve.slo else "no point has all repeats"


def not_passed(bench: BenchSummary) -> int:
    """Return how many of a benchmark's steps failed, were cancelled or never ended."""
    return sum(bench.counts.get(outcome, 0) for outcome in ("failed", "cancelled", "missing"))


def half_width(bench: BenchSummary) -> str:
    """Return `± 4.1 %`: half of the interval in which the undisturbed number lies. Empty where none was computed."""
    return "" if bench.uncertainty is None else bench.uncertainty.half_width


def is_reference_doubtful(bench: BenchSummary) -> bool:
    """Return whether a benchmark is compared with a number of the reference whose uncertainty nobody knows."""
    return bench.ratio is not None and bench.reference_validity.partition("(")[0].strip() not in SOUND


def reference_ratio_text(bench: BenchSummary, digits: int) -> str:
    """Return the ratio to the reference, with a sign where the reference's number is not valid. Empty when there is none."""
    if bench.ratio is None:
        return ""
    low, high = bench.ratio_ci95 or (None, None)
    half = "" if low is None or high is None else f" ± {percents((high - low) / (2 * bench.ratio))}"
    return f"{bench.ratio:.{digits}f}{half} {'?' if is_reference_doubtful(bench) else ' '}"


def in_milliseconds(bench: BenchSummary) -> tuple[float, str]:
    """Return the factor that a benchmark's number is shown with, and its units: seconds below 1 are milliseconds."""
    return (1e3, "ms") if bench.units == "s" and (bench.perf or 1.0) < 1 else (1.0, bench.units)


# By the stage of a job: when it was last heard of, for a report says what the records do.
_NOT_ENDED = {"submitted": "has not begun", "pending": "has not begun", "running": "has not ended"}
JOBS_TITLE = "jobs that have not done their part"
INCOMPLETE = Statement(text="this run is incomplete or still running: the report has the results so far")

_WORDS: Mapping[str, str] = {each: each.meaning for each in Doubt}
# Also of a check's word, where one message does not stand for all.
_IN_GENERAL = {**_WORDS, "sensor-lost": "the machine was read too rarely, or a sensor stopped answering"}
_QUICK = "profile quick measures for a few seconds only"
_NAMED_REPEATS = 4


def ordered(benches: Iterable[BenchSummary]) -> list[BenchSummary]:
    """Return the benchmarks by name, those without any number last: the order of a run is shuffled and says nothing."""
    return sorted(benches, key=lambda bench: (bench.outcome == "skipped", bench.bench))


def unfinished_jobs(summary: Summary) -> list[Entry]:
    """Return each job that has not done its part of the run: its id, its nodes, and why not, in the scheduler's words."""
    entries = []
    for job in summary.jobs:
        if not job.unpassed or (job.stage == "ended" and not job.failure):
            continue
        where = f" on {some_names(job.nodes)}" if job.nodes else ""
        code = f", exit code {job.exit_code}" if job.exit_code and job.failure else ""
        what = job.failure or _NOT_ENDED.get(job.stage, "was not submitted")
        what += f" ({job.reason})" if job.reason and job.stage == "pending" else ""
        left = f"{len(job.unpassed)} of {len(job.steps)} steps did not pass"
        entries.append(Entry(name=f"job {job.job}" if job.job else job.share, text=f"{what}{where}{code}; {left}"))
    return entries


def failures(summary: Summary) -> list[Entry]:
    """Return everything that should have passed and did not: why, its log, and the command that runs it again, if any does."""
    entries = []
    for bench in ordered(summary.benchmarks):
        rerun = () if summary.is_of_milabench13 else (("rerun", rerun_line(summary, bench.bench)),)
        for failure in bench.failures:
            entries.append(Entry(name=failure.name, text=failure.reason, details=(*_log(failure.log), *rerun)))
    return entries


def grouped_failures(summary: Summary) -> list[Entry]:
    """Return the failures with the first of their logs. Equal failures of a benchmark are merged into one entry."""
    entries = []
    for bench in ordered(summary.benchmarks):
        rerun = () if summary.is_of_milabench13 else (("rerun", rerun_line(summary, bench.bench)),)
        alike = grouped((failure.reason, failure) for failure in bench.failures)
        for text, failed in alike.items():
            names = some_names([failure.name for failure in failed])
            last = rerun if text == [*alike][-1] else ()
            entries.append(Entry(name=names, text=text, details=(*_log(failed[0].log), *last)))
    return entries


def _log(path: str | None) -> tuple[tuple[str, str], ...]:
    return (("log", path),) if path else ()


def skips(summary: Summary) -> list[tuple[str, str]]:
    """Return the skipped steps (by id) or benchmarks, and why."""
    benches = ordered(summary.benchmarks)
    return [(skip.step or bench.bench, skip.detail) for bench in benches for skip in bench.skipped]


def flaky(summary: Summary) -> list[Entry]:
    """Return each step that passed although another attempt failed, with the log of the failure."""
    entries = []
    for bench in ordered(summary.benchmarks):
        for step in bench.flaky:
            for attempt in step.others:
                ending = ": ".join(filter(None, (attempt.why, attempt.detail))) or attempt.outcome
                text = f"passed at attempt {step.attempt}. Attempt {attempt.number}: {ending}"
                entries.append(Entry(name=with_node(step.step, attempt.node), text=text, details=_log(attempt.log)))
    return entries


def validations(summary: Summary) -> list[tuple[str, str]]:
    """Return the checks' verdicts on each step: passed ones by name, the others with their message; and the overlap."""
    rows = []
    for bench in ordered(summary.benchmarks):
        for step, verdicts in grouped((check["step"], check) for check in bench.validations).items():
            passed = [check["check"] for check in verdicts if check["verdict"] == "pass"]
            others = [check for check in verdicts if check["verdict"] != "pass"]
            texts = [f"{check['verdict']} {check['check']} ({check['message']})" for check in others]
            rows.append((step, "; ".join([*texts, *([f"pass {', '.join(passed)}"] if passed else [])])))
        if bench.overlap is not None:
            rows.append((bench.bench, f"overlap of the instances' windows {bench.overlap:.1%}"))
    return rows


def warnings_of(bench: BenchSummary, profile: str = "") -> dict[str, str]:
    """Return why a number is imprecise or suspect, and other findings of its checks, in words and with their repeats."""
    meanings = {**_WORDS, Doubt.SHORT: _QUICK} if profile == "quick" else _WORDS
    seen: dict[str, dict[str, list[int]]] = {}
    for check in bench.validations:
        if check["verdict"] != "pass":
            repeats = seen.setdefault(check["check"], {}).setdefault(check["message"], [])
            repeats.append(parse_stem(check["step"]).repeat)
    words = {} if bench.imprecision is None else {"imprecise": bench.imprecision.words}
    for doubt in bench.doubts:
        texts = seen.pop(doubt, {meanings.get(doubt, ""): []})
        text = _IN_GENERAL.get(doubt, "") if len(texts) > 1 else next(iter(texts))
        words[doubt] = _in_launches(bench, bench.doubt_repeats.get(doubt, ())) + text if text else ""
    left = {check: _seen_text(bench, texts) for check, texts in seen.items()}
    unsaid = [doubt for doubt, text in words.items() if not text]
    if len(unsaid) == 1 and left:  # it is called otherwise than the check that gave it
        words[unsaid[0]], left = "; ".join(left.values()), {}
    return {doubt: text or _IN_GENERAL.get(doubt, "") for doubt, text in words.items()} | left


def _seen_text(bench: BenchSummary, texts: Mapping[str, Sequence[int]]) -> str:
    """Return the finding of a check: the message of all repeats, or the first message and the number of others."""
    (text, repeats), *others = texts.items()
    return _in_launches(bench, repeats, sum(len(more) for _, more in others)) + text


def _in_launches(bench: BenchSummary, repeats: Sequence[int], others: int = 0) -> str:
    """Return `repeat 2: `. Empty for all repeats of a benchmark."""
    known = sorted(set(repeats))
    if not known or bench.replicates < 2 or (len(known) >= bench.replicates and not others):
        return ""
    alike = f" (similar in {others} more)" if others else ""
    return f"repeat {some_of(list(map(str, known)), _NAMED_REPEATS)}{alike}: "


def messages(summary: Summary) -> list[tuple[str, str]]:
    """Return the messages of benchmarks and checks, but for those that stand below a curve."""
    rows = []
    for bench in ordered(summary.benchmarks):
        of_curve = messages_of_curve(bench)
        rows += [(bench.bench, text) for text in bench.messages if text not in of_curve]
    return rows


def grouped_messages(summary: Summary) -> list[tuple[str, str]]:
    """Return each message once, with the benchmarks that sent it."""
    shown = [bench for bench in summary.benchmarks if bench.messages]
    return [
        ("all" if len(names) == len(summary.benchmarks) == len(shown) > 1 else ", ".join(dict.fromkeys(names)), text)
        for text, names in grouped((text, bench) for bench, text in messages(summary)).items()
    ]


def result_text(summary: Summary) -> str:
    """Return `6 of 6 steps passed, 0 valid (quick: a first look)`: how they ended, and how many benchmarks' numbers are valid."""
    others = (f"{count} {outcome}" for outcome, count in summary.counts.items() if count and outcome != "passed")
    passed = f"{summary.counts['passed']} of {counted(sum(summary.counts.values()), 'step')} passed"
    endings = ", ".join((passed, *others))
    judged = [bench.validity for bench in summary.benchmarks if bench.validity is not None]
    swept = [
        bench for bench in summary.benchmarks if bench.serving and bench.outcome == "passed" and bench.validity is None
    ]
    endings = "; ".join((endings, *(f"{bench.bench}: {_why_no_number(bench)}" for bench in swept)))
    if not judged:
        return endings
    # Of a benchmark that failed, the table says that, and no word of its number.
    valid = sum(bench.validity == "valid" and bench.outcome == "passed" for bench in summary.benchmarks)
    if summary.profile == "quick":
        return f"{endings}, {valid} valid (quick: a first look)"
    return f"{endings}; {valid} of {len(judged)} numbers valid"


def shown_score(summary: Summary) -> float | None:
    """Return the value of the score: there is none but relative to a reference, or of milabench 1.3."""
    score = summary.score
    # Reports in JSON by earlier versions have the mean of the raw rates.
    is_shown = summary.ab is None and (score.reference is not None or score.is_compat)
    return score.value if is_shown else None


def score_line(summary: Summary) -> str:
    """Return the score in a sentence: value, interval, coverage and reference."""
    score = summary.score
    if summary.ab is not None:
        return "none (A and B are compared in pairs, below)"
    covers = coverage(summary)
    weights = f"by the weights of {score.weights_of}" if score.weights_of else ""
    if score.reference is None and not score.is_compat:
        line = "none without a reference: `milabench report --reference RUN`"
        return f"{line} ({weights}; {covers})" if weights else line
    if score.value is None:
        relative = f"relative to {score.reference}" if score.reference else ""
        return f"none ({'; '.join(filter(None, (weights, relative, covers)))})"
    if score.is_compat:
        caveat = (
            "compat: the score of milabench 1.3, which depends on units and hides failures; benchmarks of the suite that are not "
            "in the run are left out, and count 0 there"
        )
        return f"{format_number(score.value)} ({'; '.join(filter(None, (caveat, weights, covers)))})"
    interval = "" if score.ci95 is None else f" [{format_number(score.ci95[0])}, {format_number(score.ci95[1])}]"
    mean = "weighted geometric mean" if score.is_weighted else "unweighted geometric mean, all weights are zero"
    mean = f"{mean} {weights}".rstrip()
    return f"{format_number(score.value)}{interval} ({mean}, relative to {score.reference}; {covers})"


def coverage(summary: Summary) -> str:
    """Return how many benchmarks count in the score, and with which caveats."""
    counted, wanted = summary.score.complete
    covers = f"{counted} of {wanted} benchmarks" + ("" if counted == wanted else ", INCOMPLETE")
    return covers + (f", {summary.score.suspects} of them suspect" if summary.score.suspects else "")


def benchmark_lines(summary: Summary) -> list[tuple[str, str]]:
    """Return the workload that each benchmark represents, as far as recorded."""
    return [(bench.bench, bench.about) for bench in ordered(summary.benchmarks) if bench.about]


def without_ratio(summary: Summary) -> list[tuple[str, str]]:
    """Return the benchmarks whose number has no ratio to the reference, and why."""
    return [(bench.bench, bench.no_ratio) for bench in ordered(summary.benchmarks) if bench.no_ratio]


# What an imprecise number needs, by its largest component; more launches where nothing stands here.
_AGAIN = {
    "others": "again, on an idle machine",
    "throttling": "again, once cooling and power supply are enough",
    "power limit": "again, with the default power limit",
    "stalls": "again, once the cause of the pauses is found",
    "order": "again, once the machine is warm from the first repeat on",
    **dict.fromkeys(("slow stretches", "pattern", "drift"), "again, without heat, other jobs or input that grows"),
}
_READ_MORE = ("gaps", "observing", "clocks")


def next_line(summary: Summary) -> str:
    """Return the command that improves this run most, and its effect."""
    launches, run = max((len(bench.processes) for bench in summary.benchmarks), default=0), summary.run
    if not summary.is_ended:
        return f"`{line_about_run(summary, 'resume', run)}`: continues this run"
    other = f"`{line_about_run(summary, 'compare', run, 'OTHER')}`: compares with another run"
    page = f"`{line_about_run(summary, 'report', run, '-o', 'report.html')}`: a page to send"
    if summary.is_of_milabench13:
        old = line_about_run(summary, "report", run, "--score", "compat")
        return other if summary.score.is_compat else f"`{old}`: with the figures of milabench 1.3, which made this run"
    if any(not_passed(bench) for bench in summary.benchmarks):
        return f"`{line_about_run(summary, 'resume', run)}`: runs the steps that did not pass"
    if summary.profile == "quick":
        return f"`{rerun_line(summary, profile='default')}`: aims at valid numbers"
    if launches and launches < LEAST_LAUNCHES:
        return f"`{rerun_line(summary, repeat=LEAST_LAUNCHES)}`: how far repeats differ"
    if summary.ab is not None and summary.ab.verdict != "INCONCLUSIVE":
        return page
    return _about_doubts(summary, launches) or (page if summary.ab or summary.score.reference else other)


def _about_doubts(summary: Summary, launches: int) -> str:
    """Return the remedy for the largest cause of an imprecise number, else for suspect numbers. Empty where there are none."""
    more = f"`{line_about_run(summary, 'report', summary.run, '--full')}`"
    imprecise = [
        bench for bench in summary.benchmarks if bench.imprecision is not None and bench.imprecision.components
    ]
    if not imprecise:
        suspects = sum(bench.validity in ("suspect", "invalid") for bench in summary.benchmarks)
        return (
            f"{more}: why {'1 number is' if suspects == 1 else f'{suspects} numbers are'} suspect" if suspects else ""
        )
    known = {bench.bench: bench.imprecision for bench in imprecise if bench.imprecision is not None}
    largest = {name: uncertainty.cause for name, uncertainty in known.items()}
    name = max(largest, key=lambda bench: known[bench].expanded or 0.0)
    cause = largest[name]
    same = [bench for bench, component in largest.items() if component.name == cause.name]
    # Of several benchmarks that lack the same, what the user selected is measured again.
    alone = name if len(same) == 1 < len(summary.benchmarks) and not is_of_commands(summary) else None
    where = f" ({name}: {cause.where})" if cause.where and cause.name not in ("launches", "others") else ""
    if cause.name in _READ_MORE:
        return f"{more}: the windows in which {name} has {cause.name}{where}"
    if cause.name in _AGAIN:
        return f"`{rerun_line(summary, alone)}`: {_AGAIN[cause.name]}{where}"
    asked = known[name].asked
    if asked is None or summary.aim.get("precision") or is_of_commands(summary):
        again = rerun_line(summary, alone, repeat=2 * launches, precision=None, budget=None)
        return f"`{again}`: twice as many repeats"
    again = rerun_line(summary, alone, precision=f"{100 * asked:g}%", repeat=None)
    return f"`{again}`: as many repeats as {percents(asked)} needs"


def replicate_lines(summary: Summary) -> list[tuple[str, str]]:
    """Return how often each benchmark was run, why, and the precision that was reached."""
    reached = {
        bench.bench: known.half_width + (f". More do not help: {known.cause.title}" if known.is_lasting else "")
        for bench in summary.benchmarks
        if (known := bench.uncertainty) is not None
    }
    if summary.ab is not None:
        intervals = {pair.bench: pair.ci95 for pair in summary.ab.pairs}
        reached = {
            name: f"± {percents(math.sqrt(ci[1] / ci[0]) - 1)}" for name, ci in intervals.items() if ci is not None
        }
    return [
        (name, replicates_text(decision, summary.aim) + (f"; reached {reached[name]}" if name in reached else ""))
        for name, decision in sorted(summary.replicates.items())
    ]
