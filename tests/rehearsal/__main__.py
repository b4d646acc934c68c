"""Try a tender before it is sent: `python -m tests.rehearsal procurement.yaml --noise 1% --nodes 128`.

Prints how often the best offer wins, verdicts are right, intervals hold the truth, and the acceptance is right.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

from milabench.acceptance.accept_runs import read_criteria
from milabench.procurement.tender import read_tender
from milabench.procurement.tenders import reference_system
from tests.rehearsal.model import Rehearsal, RehearsalPlan
from tests.rehearsal.noise import RunNoise
from tests.rehearsal.tenders import rehearse


def _share(text: str) -> float:
    return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)


def _ratios(text: str) -> tuple[float, ...]:
    return tuple(map(float, text.split(",")))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tests.rehearsal", description=__doc__)
    parser.add_argument("tender", type=Path, help="procurement.yaml")
    parser.add_argument("--noise", type=_share, default=0.01, help="how launches vary (1%%)")
    parser.add_argument("--between-nodes", type=_share, default=0.0, help="how nodes differ (0%%)")
    parser.add_argument("--true-ratios", type=_ratios, default=(1.5, 1.53, 1.5606), help="speed of each offer")
    parser.add_argument("--tenders", type=int, default=200, help="simulated tenders (200)")
    parser.add_argument("--nodes", type=int, default=64, help="nodes of each system (64)")
    parser.add_argument("--bad-nodes", type=int, default=2, help="bad nodes in a second acceptance (2)")
    parser.add_argument("--slowdown", type=_share, default=0.1, help="how much slower a bad node is (10%%)")
    parser.add_argument("--launches", type=int, default=5, help="launches of each benchmark (5)")
    parser.add_argument("--criteria", type=Path, help="acceptance criteria; `x reference` is what the winner offered")
    parser.add_argument("--seed", type=int, default=1)
    return parser


def rates_text(rehearsal: Rehearsal) -> str:
    """Return a line for each rate, with its exact 95 % interval."""
    lines = [
        f"{offer.name} ({offer.ratio:g}): wins {offer.won.hits} of {offer.won.trials}" for offer in rehearsal.offers
    ]
    for group, rates in rehearsal.groups.items():
        for rate in rates:
            low, high = rate.interval or (0.0, 1.0)
            stated = f", stated: {rate.stated}" if rate.stated else ""
            lines.append(f"{group}: {rate.name}: {rate.share:.1%} ({low:.1%} to {high:.1%}) of {rate.trials}{stated}")
    return "\n".join([*lines, *rehearsal.notes])


def main(argv: list[str] | None = None) -> None:
    """Rehearse one tender."""
    asked = _parser().parse_args(argv)
    plan = RehearsalPlan(
        ratios=asked.true_ratios,
        tenders=asked.tenders,
        nodes=asked.nodes,
        bad_nodes=asked.bad_nodes,
        slowdown=asked.slowdown,
        launches=asked.launches,
        seed=asked.seed,
    )
    tender = read_tender(asked.tender)
    noise = dict.fromkeys(tender.benchmarks, RunNoise(launches=asked.noise, nodes=asked.between_nodes))
    criteria = None if asked.criteria is None else read_criteria(asked.criteria, "the offer")
    reference = reference_system(asked.tender.parent, tender)
    print(rates_text(rehearse(tender, noise, plan, random.Random(plan.seed), reference, criteria)))


if __name__ == "__main__":
    main()
