"""The shares of a run: the parts of its plan that a job of a scheduler each carries out, as far as the run's journals go."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

from milabench.events.attempts import Attempt, attempts, last_word
from milabench.events.values import as_mapping, finite_number, mappings_in

# In names of files, of jobs and on command lines.
SHARE_NAME = re.compile(r"s[1-9][0-9]{0,8}")

JobStage = Literal["submitted", "pending", "running", "ended"]
_STAGES = get_args(JobStage)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareJob:
    """A job of a share, from the entries of orchestrators and of the job itself. Times are unix seconds.

    `began` and `ended` are of the job's process, from its own entries. `result` is how it ended, in the words of
    `execute.scheduler.JobResult`, empty where only its process said so. `state` and `reason` are the scheduler's words.
    """

    id: str
    stage: JobStage = "submitted"
    result: str = ""
    state: str = ""
    reason: str = ""
    nodes: tuple[str, ...] = ()
    exit_code: int | None = None
    began: float | None = None
    ended: float | None = None

    @property
    def is_ended(self) -> bool:
        """Whether it has ended, by its own word or the scheduler's."""
        return self.stage == "ended"

    @property
    def failure(self) -> str:
        """How it ended where it did not complete, with the scheduler's words. Empty while it has not ended.

        A job whose process came to its end did its part, also where some of its steps failed, for which the process exits with 1.
        """
        if self.result in ("", "completed") or (self.result == "failed" and self.ended is not None):
            return ""
        words = ", ".join(dict.fromkeys(word for word in (self.state, self.reason) if word not in ("", "None")))
        return f"{self.result} ({words})" if words else self.result


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A share: its steps and the nodes that they were planned for, its jobs in order, and its steps' attempts.

    Shares with the same `array` were submitted as the tasks of a job array. Empty: a separate job.
    `ran_on` are the nodes where it began, by its own word. None before.
    `attempts` has, for each step, the attempt under way or else the counted attempt. None for a step that has not begun.
    `is_submitting`: a submission began without a recorded job, so only the scheduler knows whether there
    is a job.
    """

    name: str
    steps: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    array: str = ""
    ran_on: tuple[str, ...] = ()
    jobs: tuple[ShareJob, ...] = ()
    attempts: Mapping[str, Attempt | None] = field(default_factory=dict)
    is_submitting: bool = False

    @property
    def job(self) -> ShareJob | None:
        """Its last job."""
        return self.jobs[-1] if self.jobs else None

    @property
    def is_ended(self) -> bool:
        """Whether its last job has ended. A share that was never submitted has not."""
        return not self.is_submitting and self.job is not None and self.job.is_ended

    @property
    def is_begun(self) -> bool:
        """Whether the process of its last job has begun."""
        return self.job is not None and self.job.began is not None

    @property
    def is_waiting(self) -> bool:
        """Whether its last job was submitted and is not known to have begun or ended."""
        return self.job is not None and not self.is_begun and not self.job.is_ended

    @property
    def unended(self) -> tuple[str, ...]:
        """The steps without an end: they have not begun, or are under way."""
        return tuple(step for step, tried in self.attempts.items() if tried is None or tried.outcome is None)

    @property
    def unpassed(self) -> tuple[str, ...]:
        """The steps that have not passed."""
        return tuple(step for step, tried in self.attempts.items() if tried is None or tried.outcome != "passed")


def share_number(name: str) -> int:
    """Return the number in the name of a share, by which shares are in order."""
    return int(name[1:])


def fold_shares(manifest: Mapping[str, object], journal: Sequence[Mapping[str, object]]) -> dict[str, Share]:
    """Return the shares of a run by name. Empty for a run that was not submitted.

    `manifest` is the run's with the work of its shares, `journal` the entries of all its journals.
    """
    planned = as_mapping(as_mapping(manifest.get("submission")).get("shares"))
    if not planned:
        return {}
    attempts_of = attempts(journal)
    folds = {name: _JobFold() for name in planned if SHARE_NAME.fullmatch(name)}
    for entry in journal:
        fold = folds.get(str(entry.get("share")))
        if fold is not None and "step" not in entry:
            fold.add(entry)
    every = mappings_in(as_mapping(manifest.get("plan")).get("steps"))
    node_of = {step.get("id"): str(step.get("node")) for step in every}
    shares = {}
    for name in sorted(folds, key=share_number):
        steps = _words(as_mapping(planned[name]).get("steps"))
        jobs = folds[name].jobs
        has_begun = any(job.began is not None for job in jobs)
        shares[name] = Share(
            name=name,
            steps=steps,
            nodes=_words(as_mapping(planned[name]).get("nodes")),
            array=str(as_mapping(planned[name]).get("array") or ""),
            ran_on=tuple(dict.fromkeys(node_of[step] for step in steps if step in node_of)) if has_begun else (),
            jobs=jobs,
            attempts={step: current_attempt(attempts_of.get(step, ())) for step in steps},
            is_submitting=folds[name].is_submitting,
        )
    return shares


def current_attempt(step_attempts: tuple[Attempt, ...]) -> Attempt | None:
    """Return the attempt under way, else the counted attempt: while an attempt is under way, the step is not finished."""
    if step_attempts and step_attempts[-1].outcome is None:
        return step_attempts[-1]
    return last_word(step_attempts)


class _JobFold:
    """The jobs of a share.

    Entries of the job and of the orchestrators were stamped by different clocks: the order between them is unknown.
    """

    def __init__(self) -> None:
        self._facts: dict[str, dict[str, Any]] = {}
        self._submitted: dict[str, None] = {}  # in order
        self._is_open = False

    def add(self, entry: Mapping[str, object]) -> None:
        """Take an entry about the share or its process into account."""
        job, state, transition, t = (entry.get(key) for key in ("job", "state", "run", "t"))
        if state == "submitting":
            self._is_open = True
        elif state in _STAGES and transition is None:
            self._is_open = False
        if not isinstance(job, str) or not job:
            return
        facts = self._facts.setdefault(job, {"stages": set()})
        if transition in ("started", "ended"):
            # Of a process that was started again, the last end counts.
            facts["began" if transition == "started" else "ended"] = finite_number(t)
            facts["stages"].add("running" if transition == "started" else "ended")
        elif state in _STAGES:
            facts["stages"].add(state)
            if state == "submitted":
                self._submitted[job] = None
            names = {"result": "result", "job_state": "state", "reason": "reason"}
            facts |= {name: str(entry[key]) for key, name in names.items() if entry.get(key) is not None}
            if isinstance(entry.get("exit_code"), int):
                facts["exit_code"] = entry["exit_code"]
            if hosts := _words(entry.get("hosts")):
                facts["nodes"] = hosts

    @property
    def is_submitting(self) -> bool:
        """Whether a submission was begun whose job is not known. A job known only from its own process counts as known."""
        return self._is_open and not (self._facts.keys() - self._submitted.keys())

    @property
    def jobs(self) -> tuple[ShareJob, ...]:
        """The jobs in the order of their submission. A job known only from its process is the last."""
        order = {**self._submitted, **self._facts}
        return tuple(self._job(job, dict(self._facts[job])) for job in order)

    def _job(self, job: str, facts: dict[str, Any]) -> ShareJob:
        stages = facts.pop("stages")
        stage = next((stage for stage in reversed(_STAGES) if stage in stages), "submitted")
        return ShareJob(id=job, stage=cast("JobStage", stage), **facts)


def _words(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list | tuple) else ()


# ------------------------------------------------------------------------------------------------ several journals as one


def merge_journals(
    own: Iterable[Mapping[str, object]], of_shares: Iterable[Iterable[Mapping[str, object]]]
) -> tuple[Mapping[str, Any], ...]:
    """Return the entries of the orchestrators' journal and of the shares' journals as a single journal, by time.

    Each journal keeps its own order, also where a clock jumped back. An entry without a time keeps its place. How an attempt
    ended is known best by the job in which it ran: an orchestrator that gave a job up, which then wrote an end after all, is
    not believed. But why a step was stopped the job may not know: then the orchestrator does, whichever of them wrote first.
    """
    ours, shares = list(own), [list(entries) for entries in of_shares]
    if not shares:
        return tuple(ours)
    ended = {_attempt_of(entry) for entries in shares for entry in entries if _is_own_end(entry)}
    ours = [entry for entry in ours if entry.get("state") != "ended" or _attempt_of(entry) not in ended]
    explained = {_attempt_of(entry) for entry in ours if entry.get("state") == "ended"}
    shares = [
        [entry for entry in entries if not _is_stop(entry) or _attempt_of(entry) not in explained] for entries in shares
    ]
    timed = (_timed(number, entries) for number, entries in enumerate([ours, *shares]))
    stamped = sorted((item for entries in timed for item in entries), key=lambda item: item[:2])
    return tuple(entry for _, _, entry in stamped)


def _is_own_end(entry: Mapping[str, object]) -> bool:
    """Return whether a job says that an attempt came to an end of its own, rather than was stopped."""
    return entry.get("state") == "ended" and not _is_stop(entry)


def _is_stop(entry: Mapping[str, object]) -> bool:
    return entry.get("state") == "ended" and (
        entry.get("outcome") == "cancelled" or entry.get("why") in ("signal", "lost-node")
    )


def _attempt_of(entry: Mapping[str, object]) -> tuple[Any, Any]:
    return (entry["step"], entry.get("attempt", 1)) if isinstance(entry.get("step"), str) else ("", entry.get("share"))


def _timed(number: int, entries: Iterable[Mapping[str, object]]) -> Iterable[tuple[float, int, Mapping[str, Any]]]:
    latest = 0.0
    for entry in entries:
        latest = max(latest, finite_number(entry.get("t")) or 0.0)
        yield latest, number, entry


def steps_and_nodes(
    manifests: Iterable[Mapping[str, object]],
) -> tuple[dict[str, Mapping[str, Any]], dict[str, Mapping[str, Any]]]:
    """Return the steps by id and the nodes by name of several manifests. Of the same one the last counts."""
    steps, nodes = dict[str, Mapping[str, Any]](), dict[str, Mapping[str, Any]]()
    for each in manifests:
        steps |= {str(step.get("id")): step for step in mappings_in(as_mapping(each.get("plan")).get("steps"))}
        nodes |= {str(node.get("name")): node for node in mappings_in(as_mapping(each.get("system")).get("nodes"))}
    return steps, nodes


def overlaid(manifest: Mapping[str, object], of_shares: Iterable[Mapping[str, object]]) -> Mapping[str, Any]:
    """Return the manifest of a run with the work and the place of its shares, instead of their plan.

    A planned node stays as long as a step is left that no share has begun there.
    """
    plan = as_mapping(manifest.get("plan"))
    done, nodes = steps_and_nodes(of_shares)
    if not done or "steps" not in plan:
        return manifest
    planned = mappings_in(plan["steps"])
    steps = [done.get(str(step.get("id")), step) for step in planned]
    used = {step.get("node") for step in steps}
    system = as_mapping(manifest.get("system"))
    stated = [node for node in mappings_in(system.get("nodes")) if node.get("name") not in nodes]
    kept = [node for node in stated if node.get("name") in used]
    system = {**system, "nodes": [*kept, *(node for name, node in nodes.items() if name in used)]}
    return {**manifest, "system": system, "plan": {**plan, "system": system, "steps": steps}}
