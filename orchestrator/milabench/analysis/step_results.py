"""The steps of a run as they were planned and as they ended, also of milabench 1.3, which wrote no plan."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Protocol, cast, get_args

from milabench.analysis.measure import Measurement, measure
from milabench.events.attempts import Attempt, last_word
from milabench.events.doubts import Doubt
from milabench.events.model import Error, Line, OutcomeName, StepEvent, Verdict
from milabench.events.run_files import parse_stem
from milabench.events.rundir import Run
from milabench.events.stored_json import Whole
from milabench.events.values import as_mapping, finite_number, mappings_in, one_line

_OUTCOMES = get_args(OutcomeName)
# The methods whose steps are one job, for manifests that do not record it for each step, and for foreign runs.
_ONE_JOB = ("multigpu", "multinode")
# Whys of attempts under which the nodes were taken away: they say nothing of the step. A time limit or a lack of memory may be
# its own doing.
_TAKEN_AWAY: Final[frozenset[str]] = frozenset(("preempted", "node-failed", "job-cancelled", "job-lost"))
# How a program ends that milabench 1.3 told to, since it had all that it wanted: by SIGTERM, on which launchers exit with 1.
_CODES_OF_A_STOP = (-15, 0, 1)
_SKIP = re.compile(r"Skip \S+ because (?:the following capability is not satisfied: )?(?P<why>.+)", re.DOTALL)

SharedClocks = Mapping[str, tuple[str, float]]
"""Of each step that was released together with steps on other nodes: its group, and the seconds its node's clock is ahead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SupersededAttempt:
    """An attempt at a step that does not count, because a later attempt passed or was made: how it ended, and its log."""

    number: Whole
    outcome: OutcomeName
    why: str
    detail: str
    log: str | None
    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStep:
    """A step of the plan, or for a run of milabench 1.3 of the names of its files and its records.

    `one_job`: the steps of a replicate give a single measurement. Else each is an instance that has its own. The steps
    of a `group` run together.
    """

    id: str
    bench: str
    tag: str = ""
    repeat: int = 0
    node: str = "local"
    devices: tuple[int, ...] = ()
    one_job: bool = False
    group: str = ""
    weight: float | None = None
    flops_per_item: float | None = None
    precision: str = ""
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """A step as it ended: the last attempt that passed, else the last, without its single observations.

    `verdicts` are from our checks and `check_doubts` are why they make the number suspect, `others` the attempts that do not
    count. `node` is the attempt's, empty where it was given to none. The step has the planned node.
    """

    step: PlannedStep
    outcome: OutcomeName
    why: str = ""
    detail: str = ""
    log: str | None = None
    doubts: tuple[str, ...] = ()
    measured: Measurement
    verdicts: tuple[Verdict, ...] = ()
    check_doubts: tuple[str, ...] = ()
    attempt: int = 1
    node: str = ""
    others: tuple[SupersededAttempt, ...] = ()

    @property
    def is_flaky(self) -> bool:
        """Whether it passed although another attempt at it failed, through its own fault."""
        return self.outcome == "passed" and any(
            attempt.outcome == "failed" and attempt.why not in _TAKEN_AWAY for attempt in self.others
        )


def planned_steps(run: Run) -> tuple[PlannedStep, ...]:
    """Return the steps that should have run: the steps of the plan, or without a plan the steps that left a file."""
    steps = as_mapping(run.manifest.get("plan")).get("steps")
    if isinstance(steps, list):
        return tuple(_planned(as_mapping(step)) for step in steps)
    planned = []
    for step, stem in run.files.items():
        parts = parse_stem(stem)
        device = (int(parts.tag[1:]),) if parts.tag.startswith("D") else ()
        node = parts.node or "local"
        planned.append(
            PlannedStep(id=step, bench=parts.bench, tag=parts.tag, repeat=parts.repeat, node=node, devices=device)
        )
    return tuple(planned)


class StepCheck(Protocol):
    """The part of a check that is needed here: its verdict on the measurements of a step.

    `component` is the component of the uncertainty whose size is the verdict's number `slowed`; empty where it has none.
    """

    component: ClassVar[str]

    def verdict(self, measured: Measurement) -> Verdict:
        """Return the verdict on the measurements of the step, with the single observations and readings."""

    def doubt_for(self, verdict: Verdict) -> str | None:
        """Return why the verdict makes the step's number suspect, None when it does not."""


ChecksOf = Callable[[str], Sequence[StepCheck]]
"""The checks of a step, by its id."""


def unchecked(_: str) -> Sequence[StepCheck]:
    """Return no checks."""
    return ()


CourseOf = Callable[[Measurement], object]
"""Draws a step by its measurements, with the single observations and readings."""


def step_result(
    run: Run,
    planned: PlannedStep,
    attempts: tuple[Attempt, ...] = (),
    checks: ChecksOf = unchecked,
    course: CourseOf | None = None,
) -> StepResult:
    """Return how a step ended, its measurements and its checks' findings. `attempts` are its attempts in the journal.

    Raises RecordError when its records cannot be read.
    """
    attempt_that_counts = last_word(attempts)
    number = attempt_that_counts.number if attempt_that_counts is not None else 1
    entry = None if attempt_that_counts is None else attempt_that_counts.entry
    measured = measure(planned.id, _records(run, planned.id, number, entry))
    if course is not None:
        course(measured)
    has_records = bool(measured.start or measured.end)
    verdicts = [(check, check.verdict(measured)) for check in checks(planned.id)] if has_records else []
    measured = measured.without_single_values()
    # milabench 1.3 wrote no plan: what a step was is only known from its own records.
    if not run.manifest:
        planned = _placed_by_1_3(_with_config(planned, measured.config), measured.config)
    outcome, why, detail, doubts = _ending(run, entry, measured)
    measured = replace(measured, messages=(*measured.messages, *_overlooked_by_1_3(run, outcome, measured)))
    # The agent says so; agents of earlier versions did not.
    if outcome == "passed" and measured.unusable and not measured.has_number:
        outcome, why, detail = "failed", "invalid", f"none of its {measured.unusable} observations is a number"
    measured = _with_effects(measured, verdicts)
    return StepResult(
        step=planned,
        outcome=outcome,
        why=why,
        detail=one_line(detail or _first_error(measured.errors)),
        log=_log(run, planned.id, number),
        # The journal knows that it passed; of its records, observations may be missing as well as the end.
        doubts=(*doubts, Doubt.CUT_OFF) if outcome == "passed" and measured.end is None else doubts,
        measured=measured,
        verdicts=(*(verdict for _, verdict in verdicts), *_inconsistencies(measured)),
        check_doubts=_check_doubts(verdicts, measured),
        attempt=number,
        node="" if attempt_that_counts is None else attempt_that_counts.node,
        others=tuple(_try(run, attempt) for attempt in attempts if attempt.number != number),
    )


def _with_effects(measured: Measurement, verdicts: Iterable[tuple[StepCheck, Verdict]]) -> Measurement:
    """Return the measurement with what its rate may have lost, by the checks."""
    slowed = {
        check.component: size
        for check, verdict in verdicts
        if check.component and (size := finite_number(verdict.numbers.get("slowed")))
    }
    if measured.throughput is None or not slowed:
        return measured
    effects = {**measured.throughput.effects, **slowed}
    return replace(measured, throughput=replace(measured.throughput, effects=effects))


def _check_doubts(verdicts: Iterable[tuple[StepCheck, Verdict]], measured: Measurement) -> tuple[str, ...]:
    """Return the warnings of checks and of broken laws of conservation."""
    of_checks = (doubt for check, verdict in verdicts if (doubt := check.doubt_for(verdict)))
    return (*of_checks, *((Doubt.INCONSISTENT,) if measured.inconsistencies else ()))


def _inconsistencies(measured: Measurement) -> Iterable[Verdict]:
    for sentence in measured.inconsistencies:
        yield Verdict(step=measured.step, check="inconsistent", verdict="fail", numbers={}, message=sentence)


def _records(run: Run, step: str, number: int, entry: Mapping[str, object] | None) -> Iterable[StepEvent]:
    """Return the events of an attempt. Those of a cancelled attempt lack its output, which need not be searched."""
    events = run.batches(step, number)
    if entry is None or entry.get("outcome") != "cancelled":
        return events
    return (event for event in events if not isinstance(event, Line))


def _try(run: Run, attempt: Attempt) -> SupersededAttempt:
    return SupersededAttempt(
        number=attempt.number,
        outcome=attempt.outcome or "missing",
        why=attempt.why,
        detail=one_line(attempt.detail),
        log=_log(run, attempt.step, attempt.number),
        node=attempt.node,
    )


def _log(run: Run, step: str, attempt: int) -> str | None:
    log = run.log(step, attempt)
    return None if log is None else str(log)


def _ending(
    run: Run, entry: Mapping[str, object] | None, measured: Measurement
) -> tuple[OutcomeName, str, str, tuple[str, ...]]:
    """Return outcome, why, detail, warnings: from the journal, else from the last record, else there was no end."""
    if _is_of_1_3(run, measured):  # also when it was imported: an earlier version may have judged it by other rules
        return *_ending_of_1_3(measured), ()
    if entry is not None and entry.get("outcome") in _OUTCOMES:
        outcome = cast(OutcomeName, entry["outcome"])
        return outcome, str(entry.get("why") or ""), str(entry.get("detail") or ""), _words(entry.get("reasons"))
    end = measured.end
    if end is None:
        return "missing", "", _not_ended(measured), ()
    return end.outcome, end.why or "", end.detail, _words(as_mapping(end.extra.get("data")).get("reasons"))


def _not_ended(measured: Measurement) -> str:
    return "did not end" if measured.start else "did not start"


def _is_of_1_3(run: Run, measured: Measurement) -> bool:
    """Return whether milabench 1.3 wrote the records. Our own, whose manifest may be lost, have the time of a step."""
    return run.is_of_milabench13 and (measured.end is None or measured.end.wall_s is None)


def _ending_of_1_3(measured: Measurement) -> tuple[OutcomeName, str, str]:
    """Return outcome, why and detail of a step by the rules of milabench 1.3.

    A step stopped because it had all its observations has passed however it ended, and so has the part of a job on a node
    that records nothing. Else exit code 0, a rate of the task train and no loss that is no number are needed.
    """
    end = measured.end
    if end is None:
        skip = next(filter(None, map(_SKIP.match, measured.messages)), None)
        if skip is not None and not measured.start:
            return "skipped", "", skip["why"]
        return "missing", "", _not_ended(measured)
    if measured.is_stopped or _is_nolog(measured):
        return "passed", "", ""
    if end.outcome != "passed":
        return end.outcome, end.why or "exit", end.detail  # where it was interrupted itself, it wrote no code
    if measured.losses.nonfinite:
        return "failed", "invalid", f"{measured.losses.nonfinite} of {measured.losses.count} losses are no number"
    if not measured.train_rates:
        return "failed", "no-data", "exit code 0 without a rate of the task train"
    return "passed", "", ""


def _overlooked_by_1_3(run: Run, outcome: OutcomeName, measured: Measurement) -> Iterable[str]:
    """Yield recorded problems of a step that milabench 1.3 still counts as a success."""
    if outcome != "passed" or not _is_of_1_3(run, measured):
        return
    error, code = _first_error(measured.errors), measured.end and measured.end.return_code
    whose = "ended with exit code 0"
    if _is_nolog(measured):
        whose = "is of a node that records no rates"
    elif measured.is_stopped:
        whose = "was stopped, for it had all its observations"
    problems = [error] if error else []
    if not error and code not in (_CODES_OF_A_STOP if measured.is_stopped else (0,)):
        problems.append("no exit code" if code is None else f"exit code {code}")
    if measured.is_stopped and not measured.train_rates:
        problems.append("no rate of the task train")
    for problem in problems:
        yield f"{problem}: of a step that {whose}, which milabench 1.3 counts as a success"


def _is_nolog(measured: Measurement) -> bool:
    tag = measured.config.get("tag")
    return isinstance(tag, list) and "nolog" in tag


def _words(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list | tuple) else ()


def _first_error(errors: Sequence[Error]) -> str:
    return next((error.headline for error in errors if error.is_failure), "")


def _planned(step: Mapping[str, object]) -> PlannedStep:
    config = as_mapping(step.get("config"))
    devices, repeat = step.get("devices"), step.get("repeat")
    planned = PlannedStep(
        id=str(step.get("id", "")),
        bench=str(step.get("bench", "")),
        tag=str(step.get("tag") or ""),
        repeat=repeat if isinstance(repeat, int) else 0,
        one_job=step.get("one_job") is True,
        group=str(step.get("group") or ""),
        node=str(step.get("node") or "local"),
        devices=tuple(device for device in devices if isinstance(device, int)) if isinstance(devices, list) else (),
    )
    return _with_config(planned, {key: value for key, value in config.items() if key != "name"})


def _with_config(planned: PlannedStep, config: Mapping[str, object]) -> PlannedStep:
    """Return the step with the values of its benchmark's configuration."""
    weight, name = finite_number(config.get("weight")), config.get("name")
    operations, precision = finite_number(config.get("flops_per_item")), config.get("precision")
    return replace(
        planned,
        bench=name if isinstance(name, str) and name else planned.bench,
        one_job=planned.one_job or as_mapping(config.get("plan")).get("method") in _ONE_JOB,
        weight=planned.weight if weight is None else weight,
        flops_per_item=operations if operations and operations > 0 else planned.flops_per_item,
        tags=_words(config.get("tags")) or planned.tags,
        precision=precision if isinstance(precision, str) else planned.precision,
    )


def _placed_by_1_3(planned: PlannedStep, config: Mapping[str, object]) -> PlannedStep:
    """Return the step where milabench 1.3 says that it ran: by its tag, `[name, R1, D0]` or `[name, node]`, and its devices."""
    tag, found = config.get("tag"), config.get("devices")
    nodes = [node.get("name") for node in mappings_in(as_mapping(config.get("system")).get("nodes"))]
    # Only the first is a name; what comes after it says which of the benchmark's steps it is.
    for part in map(str, tag[1:]) if isinstance(tag, list) else ():
        if part in nodes:
            planned = replace(planned, node=part)
        elif re.fullmatch(r"R[0-9]{1,9}", part):
            planned = replace(planned, repeat=planned.repeat or int(part[1:]))
        elif re.fullmatch(r"D[0-9]+|[0-9]+", part):
            planned = replace(planned, tag=planned.tag or part)
    # Earlier versions wrote them as texts.
    numbers = [str(device) for device in found] if isinstance(found, list) else []
    devices = tuple(int(number) for number in numbers if re.fullmatch(r"[0-9]{1,9}", number))
    return replace(planned, devices=devices or planned.devices)
