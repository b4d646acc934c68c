"""The verdict on a run, criterion by criterion: a value that reports show, whoever has decided it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

from milabench.analysis.json_codec import NOT_WRITTEN, OPTIONAL, JsonKey, to_json_value

Verdict = Literal["FAIL", "INCONCLUSIVE", "PASS"]
WORST_FIRST: tuple[Verdict, ...] = get_args(Verdict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CriterionResult:
    """A criterion: the requirement, the measurement, the verdict. `missing` is the evidence that an INCONCLUSIVE one lacks.

    `bench` is empty for requirements on the whole run. `value` is in the units that `requirement` names, or the ratio to
    the reference. `bounds` are its one-sided bounds, the second at the corrected confidence. `where` is its line in the file.
    `briefly` is the measurement in the words of a narrow table, empty where it is `measured`.
    """

    bench: Annotated[str, JsonKey(write=lambda bench: bench or None)] = ""
    criterion: str
    verdict: Verdict
    requirement: Annotated[str, JsonKey("asked")]
    measured: Annotated[str, JsonKey("found")]
    missing: str = ""
    value: float | None = None
    bounds: tuple[float, float] | None = None
    where: str = ""
    briefly: Annotated[str, NOT_WRITTEN] = ""

    def to_json(self) -> dict[str, Any]:
        """Return an entry of `checks` as `accept --format json` has it."""
        return dict(to_json_value(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """The verdict on a run, criterion by criterion. `notes` are further sentences, not used for the decision.

    `accepted_on` is when the run began that rechecks are counted from.
    """

    title: str
    run: str
    reference: str | None
    file: Annotated[str, JsonKey("criteria", followed_by=("verdict",))]
    checks: tuple[CriterionResult, ...]
    accepted_on: Annotated[str, NOT_WRITTEN] = ""
    notes: Annotated[tuple[str, ...], OPTIONAL] = ()

    @property
    def verdict(self) -> Verdict:
        """FAIL when anything failed, INCONCLUSIVE when anything could not be decided, else PASS."""
        verdicts = {check.verdict for check in self.checks}
        return next((verdict for verdict in WORST_FIRST if verdict in verdicts), "PASS")

    def to_json(self) -> dict[str, Any]:
        """Return the output of `accept --format json`."""
        return {"schema": 1, **to_json_value(self)}
