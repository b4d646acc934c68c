"""The answers of a benchmark's processes -> which of them are wrong, or why nobody can say.

Equal devices that make the same steps from the same state get the same bits. A process that differs from most of the
others is wrong, and so is a process that does not repeat itself where the others do. Where most do not repeat
themselves, the program is not deterministic, and nothing is said of any of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from milabench.analysis.measure import RankAnswers
from milabench.analysis.step_results import StepResult
from milabench.analysis.summary_model import KeptAnswers
from milabench.events.model import Verdict, VerdictName
from milabench.shown import grouped

CHECK = "answers"
LEAST_VOICES = 3  # of which one can be outvoted


@dataclass(frozen=True, slots=True)
class _Voice:
    """The answers of a rank of a step: values of its first steps, from the first time and the second."""

    step: str
    answers: RankAnswers
    first: tuple[str, ...]
    again: tuple[str, ...]

    @property
    def name(self) -> str:
        """How a person finds it."""
        rank = "" if self.answers.rank is None else f" rank {self.answers.rank}"
        return f"{self.step}{rank} ({self.answers.device})"


def judged_by_answers(results: Sequence[StepResult]) -> tuple[tuple[StepResult, ...], tuple[KeptAnswers, ...]]:
    """Return the steps of a benchmark with a verdict on their answers, and the answers on which equal devices agree.

    Steps whose answers are wrong have failed.
    """
    tolerance = max((answers.tolerance for result in results for answers in result.measured.answers), default=0.0)
    compare = BitComparison(tolerance)
    losses = [voice for result in results for voice in _voices(result)]
    gradients = [voice for result in results for voice in _voices(result, of_gradients=True)]
    wrong: dict[str, str] = {}
    unknown: list[str] = []
    for voices, what in ((losses, "loss"), (gradients, "gradient norm")):
        found, why_not = compare.judge(voices, what)
        wrong = {**found, **wrong}
        unknown += why_not
    # After an all-reduce every rank of a job has the same gradients.
    for step in dict.fromkeys(voice.step for voice in gradients):
        own = [voice for voice in gradients if voice.step == step]
        if len(own) >= LEAST_VOICES:
            wrong = {**compare.outvoted(own, "gradient norm", "ranks"), **wrong}
    judged = tuple(_with_verdict(result, wrong.get(result.step.id, ""), unknown) for result in results)
    return judged, () if unknown else tuple(_agreed(judged, tolerance))


def _agreed(results: Sequence[StepResult], tolerance: float) -> Iterable[KeptAnswers]:
    """Return the answers of each device model and rank, of the first step that passed."""
    kept: dict[tuple[str, str, int | None], KeptAnswers] = {}
    passed = (own for result in results if result.outcome == "passed" for own in result.measured.answers)
    for own in passed:
        answers = KeptAnswers(
            device=own.device,
            software=own.software,
            rank=own.rank,
            losses=own.first,
            gradients=own.gradients.first,
            tolerance=tolerance,
        )
        kept.setdefault((own.device, own.software, own.rank), answers)
    return kept.values()


def _with_verdict(result: StepResult, wrong: str, unknown: Sequence[str]) -> StepResult:
    if not result.measured.answers:
        return result
    word: VerdictName = "fail" if wrong else "warn" if unknown else "pass"
    verdict = Verdict(step=result.step.id, check=CHECK, verdict=word, numbers={}, message=wrong or "; ".join(unknown))
    result = replace(result, verdicts=(*result.verdicts, verdict))
    if wrong and result.outcome == "passed":
        return replace(result, outcome="failed", why="wrong", detail=wrong)
    return result


def _voices(result: StepResult, *, of_gradients: bool = False) -> Iterator[_Voice]:
    for answers in result.measured.answers:
        own = answers.gradients if of_gradients else answers
        if own.first:
            yield _Voice(result.step.id, answers, own.first, own.again)


@dataclass(frozen=True, slots=True)
class BitComparison:
    """Compares answers bit by bit, or to within a relative tolerance where the suite declares it."""

    tolerance: float

    def first_difference(self, one: Sequence[str], other: Sequence[str]) -> int | None:
        """Return the number of the first step, from 1, at which two series differ. None where they do not."""
        pairs = enumerate(zip(one, other, strict=False), 1)
        apart = next((number for number, (a, b) in pairs if a != b and not self._is_near(a, b)), None)
        shorter = min(len(one), len(other))
        return apart if apart is not None or len(one) == len(other) else shorter + 1

    def _is_near(self, one: str, other: str) -> bool:
        if not self.tolerance or not one or not other:
            return False
        a, b = float.fromhex(one), float.fromhex(other)
        return abs(a - b) <= self.tolerance * max(abs(a), abs(b))

    def judge(self, voices: Sequence[_Voice], what: str) -> tuple[Mapping[str, str], list[str]]:
        """Return the errors by the step's id, and why the others cannot be checked."""
        wrong: dict[str, str] = {}
        unknown: list[str] = []
        groups = grouped(((voice.answers.device, voice.answers.rank), voice) for voice in voices)
        for (device, _), members in groups.items():
            unlike = {voice: at for voice in members if (at := self.first_difference(voice.first, voice.again))}
            if unlike and 2 * len(unlike) >= len(members):
                step = min(unlike.values())
                unknown.append(
                    f"{len(unlike)} of {len(members)} processes on {device} do not repeat their {what} from step {step} on: "
                    "the program or the device is not deterministic"
                )
                continue
            for voice, step in unlike.items():
                wrong[voice.step] = (
                    f"{voice.name} did not repeat its {what} from step {step} on, {len(members) - 1} others did"
                )
            wrong = {**self.outvoted(members, what, "processes"), **self._one_of_two(members), **wrong}
            unknown += self._undecided(members, what)
        return wrong, list(dict.fromkeys(unknown))

    def outvoted(self, voices: Sequence[_Voice], what: str, whom: str) -> Mapping[str, str]:
        """Return those that differ from most of the others."""
        most = self._most(voices)
        if most is None:
            return {}
        return {
            voice.step: f"{voice.name} differs from {sum(self._agree(other, most) for other in voices)} other {whom}: its {what} "
            f"from step {self.first_difference(voice.first, most.first)} on"
            for voice in voices
            if not self._agree(voice, most)
        }

    def _agree(self, one: _Voice, other: _Voice) -> bool:
        return self.first_difference(one.first, other.first) is None

    def _most(self, voices: Sequence[_Voice]) -> _Voice | None:
        """Return any voice of those that agree, where they are more than half of at least three."""
        agreeing = Counter({voice: sum(self._agree(voice, other) for other in voices) for voice in voices})
        for voice, count in agreeing.most_common(1):
            if len(voices) >= LEAST_VOICES and 2 * count > len(voices):
                return voice
        return None

    def _one_of_two(self, voices: Sequence[_Voice]) -> Mapping[str, str]:
        """Return both of two that began alike and differ later."""
        if len(voices) != LEAST_VOICES - 1:
            return {}
        step = self.first_difference(voices[0].first, voices[1].first)
        if step is None or step == 1:
            return {}
        names = f"{voices[0].name} and {voices[1].name}"
        sentence = f"{names} differ from step {step} on: one of them is wrong, and a third would show which"
        return {voice.step: sentence for voice in voices}

    def _undecided(self, voices: Sequence[_Voice], what: str) -> Iterator[str]:
        """Say why no vote decides, where the answers differ."""
        steps = [at for voice in voices if (at := self.first_difference(voice.first, voices[0].first))]
        if not steps or self._most(voices) is not None:
            return
        if min(steps) == 1:
            yield f"their first {what} differs already: they began from different states, and cannot be compared"
        elif len(voices) >= LEAST_VOICES:
            yield f"no majority of {len(voices)} processes agrees: their {what} differs from step {min(steps)} on"
