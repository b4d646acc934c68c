"""Which tier of allowed change each difference from a tender's own suite belongs to.

github lanl/benchmarks 7e0fdf9, introduction (ATS-5), and olcf.ornl.gov, OLCF-6 benchmarks: as-is allows options of
compilers, other libraries, another decomposition of the problem; ported a limited change of the source; optimized any
change that keeps the algorithm.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Final, Literal, NamedTuple

from milabench.analysis.comparison_model import System
from milabench.analysis.json_codec import JsonKey
from milabench.analysis.system_diff import all_differences
from milabench.procurement.offer import OfferBenchmark
from milabench.procurement.tender import Tier

TIERS: Final[tuple[Tier, ...]] = ("as-is", "ported", "optimized")
ChangeVerdict = Literal["allowed", "beyond the tier", "not declared"]


class TierRule(NamedTuple):
    """Differences whose names match belong to `tier`, None: to no tier, since the tender fixes them. `why` says so in words."""

    names: re.Pattern[str]
    tier: Tier | None
    why: str


def _rule(names: str, tier: Tier | None, why: str) -> TierRule:
    return TierRule(re.compile(names, re.IGNORECASE), tier, why)


# The first that matches holds. Names are those of analysis/system_diff.py.
RULES: Final[tuple[TierRule, ...]] = (
    _rule(r"size$", None, "the tender fixes the size of the problem"),
    _rule(r"(measure|voir)\.", None, "the tender fixes how is measured"),
    _rule(r"(serve|client)\.", None, "the tender fixes the requests of clients"),
    _rule(r"(lock file|package .*)$", "as-is", "other libraries"),
    _rule(r"(env\.|install_variant$|requires)", "as-is", "options of compilers and libraries"),
    _rule(r"plan\.", "as-is", "decomposition of the problem"),
    _rule(
        r"argv\..*(batch|accum|parallel|worker|thread|shard|rank|proc|nnodes|device|gpu)",
        "as-is",
        "decomposition of the problem",
    ),
    _rule(r"argv\.", "optimized", "another argument of the program, so check that the algorithm is kept"),
    _rule(r"program$", "ported", "changed source"),
    _rule(r"(command|server)\b", "ported", "another program"),
    _rule(r"", "ported", "a change that is no option of compilers or libraries"),
)
NO_LOCK: Final = _rule(r"lock file$", None, "nothing shows which packages ran")
"""For a run without its lock file."""
# What changes nothing of what is measured: the tender has weights of its own, and a name is a name.
_NO_CHANGE: Final = re.compile(
    r"(weight|enabled|max_duration|max_silence|max_records_mib|group|install_group|about|name|argv\..*(port|addr|out|log|cache|path).*)$"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TierChange:
    """A difference from the tender's suite. `needs` is the strictest tier that allows it, None: no tier does."""

    bench: str
    name: str
    asked: Annotated[str, JsonKey("tender")]
    found: Annotated[str, JsonKey("offer")]
    needs: Annotated[Tier | None, JsonKey("tier")]
    declared: Tier
    verdict: ChangeVerdict
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteCheck:
    """The differences of measured suites from a tender's own suite, `named`. For `unknown` benchmarks no suite is recorded."""

    named: str
    changes: tuple[TierChange, ...] = ()
    unknown: tuple[str, ...] = ()


def tier_of(name: str) -> TierRule | None:
    """Return the rule for a difference of this name. None for a difference without effect."""
    if _NO_CHANGE.match(name):
        return None
    return next(rule for rule in RULES if rule.names.match(name))


def tier_changes(own: System, offered: System, declared: OfferBenchmark) -> Iterator[TierChange]:
    """Yield how a benchmark that was measured differs from the tender's own suite, with the tier that each change belongs to.

    `own` holds the tender's suite in its manifest, as a run does. A change of the source has to be described, or
    it counts as undeclared.
    """
    for difference in all_differences([own, offered], [declared.name]):
        if difference.area not in ("benchmark", "environment"):
            continue
        asked, found = ("" if value is None else value for value in difference.values)
        yield from tier_change(difference.name, asked, found, declared)


def tier_change(name: str, asked: str, found: str, declared: OfferBenchmark) -> Iterator[TierChange]:
    """Yield the change of something that all benchmarks of a run share, by the same rules. Nothing where both are the same."""
    rule = tier_of(name)
    if rule is not None and asked != found:
        yield change_by(rule, name, asked, found, declared)


def change_by(rule: TierRule, name: str, asked: str, found: str, declared: OfferBenchmark) -> TierChange:
    """Return a change with the tier that a rule puts it into."""
    return TierChange(
        bench=declared.name,
        name=name,
        asked=asked,
        found=found,
        needs=rule.tier,
        why=rule.why,
        declared=declared.tier,
        verdict=_verdict(rule, declared),
    )


def lock_change(own: str, offered: str, declared: OfferBenchmark) -> Iterator[TierChange]:
    """Yield the change from a lock to another, with the packages whose versions differ. Nothing where none does."""
    asked, found = (dict(_pins(text.splitlines())) for text in (own, offered))
    differ = [name for name in sorted({*asked, *found}) if asked.get(name) != found.get(name)]
    before, after = (", ".join(f"{name} {pins.get(name, 'none')}" for name in differ) for pins in (asked, found))
    yield from tier_change("lock file", before, after, declared)


def _verdict(rule: TierRule, declared: OfferBenchmark) -> ChangeVerdict:
    if rule.tier is None or TIERS.index(rule.tier) > TIERS.index(declared.tier):
        return "beyond the tier"
    return "not declared" if rule.tier != "as-is" and not declared.changes else "allowed"


def _pins(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        if match := re.match(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?\s*==\s*([^\s;\\]+)", line):
            yield re.sub(r"[-_.]+", "-", match[1]).lower(), match[2]
