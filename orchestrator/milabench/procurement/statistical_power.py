"""How many nodes and repeats show that a bound is kept: the power of acceptance's one-sided t test.

Acceptance passes a number whose one-sided lower bound, mean - t s / sqrt(n) of logarithms, is at or above the bound. With a true
value that is better by `distance` (of logarithms), the statistic is Student's t with a non-centrality of distance / error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from milabench.analysis.intervals import t_quantile
from milabench.procurement.gauss_legendre import normal_tail, scaled_rule

MOST_LAUNCHES = 1_000
"""Repeats in sequence: more than this is no plan."""
_POINTS = 96


def noncentral_t_tail(x: float, freedom: float, noncentrality: float) -> float:
    """Return P(T > x) of the non-central t distribution: a normal of mean `noncentrality` over an independent chi / sqrt(df).

    By integration over the chi. The error is below 1e-9.
    """
    # With u = chi / sqrt(df), P(T > x) is the mean of P(Z > x u - noncentrality). ln u has the variance 1 / (2 df), about.
    front = math.log(2) + freedom / 2 * math.log(freedom / 2) - math.lgamma(freedom / 2)
    half = 12 / math.sqrt(2 * freedom)
    low = -half if freedom > 30 else -40 / freedom - half  # the left tail of ln u falls as exp(df ln u) only
    high = min(half, math.log1p(10 / math.sqrt(freedom)))

    def density(log_u: float) -> float:
        return math.exp(front + freedom * log_u - freedom / 2 * math.exp(2 * log_u))

    # In panels, because the normal tail may change within a fraction of u where few degrees of freedom make u vary a lot.
    panels = math.ceil(high - low)
    total = 0.0
    for index in range(panels):
        ends = (low + (high - low) * index / panels, low + (high - low) * (index + 1) / panels)
        total += math.fsum(
            weight * density(at) * normal_tail(x * math.exp(at) - noncentrality)
            for at, weight in scaled_rule(*ends, _POINTS)
        )
    return total


def power_of_bound(distance: float, error: float, freedom: float, confidence: float = 0.95) -> float:
    """Return the probability that a one-sided bound at this confidence is kept.

    `distance` is how far the true logarithm is on the good side of the bound, `error` the standard error of the measurement, and
    `freedom` the degrees of freedom of this error. At a distance of 0 it is 1 - confidence.
    """
    if not error > 0:
        return 1.0 if distance >= 0 else 0.0
    return noncentral_t_tail(t_quantile(confidence, freedom), freedom, distance / error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """The relative spreads that a pilot showed, as standard deviations of logarithms.

    `between_nodes` is the spread of nodes' own speeds, `between_launches` of repeats on a node.
    """

    between_nodes: float
    between_launches: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerQuestion:
    """With which probability, `power`, a value (or a ratio) that is expected to be this is shown to keep a bound.

    Whether `bound` is a minimum or a maximum follows from the side on which `expected` lies. `reference_error` is
    the error of the logarithm of its reference. Its own degrees of freedom are taken to be as many.
    """

    expected: float
    bound: float
    power: float = 0.95
    confidence: float = 0.95
    reference_error: float = 0.0

    @property
    def distance(self) -> float:
        """From the bound, of logarithms."""
        return abs(math.log(self.expected / self.bound))


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """A number of nodes with repeats on each, and their power. `launches` are of all nodes together."""

    nodes: int
    launches_per_node: int
    power: float

    @property
    def launches(self) -> int:
        """Repeats on all nodes."""
        return self.nodes * self.launches_per_node


def launch_plan(question: PowerQuestion, noise: Noise, nodes: int, launches_per_node: int) -> LaunchPlan:
    """Return the power of these nodes and repeats.

    Nodes are the sample: the error of the mean is sqrt((between_nodes^2 + between_launches^2 / repeats) / nodes), with
    nodes - 1 degrees of freedom. A single node represents itself: its repeats are the sample then.
    """
    if nodes == 1:
        variance, freedom = noise.between_launches**2 / launches_per_node, launches_per_node - 1
    else:
        variance = (noise.between_nodes**2 + noise.between_launches**2 / launches_per_node) / nodes
        freedom = nodes - 1
    error = math.sqrt(variance + question.reference_error**2)
    power = power_of_bound(question.distance, error, freedom, question.confidence)
    return LaunchPlan(nodes=nodes, launches_per_node=launches_per_node, power=power)


def fewest_launches(
    question: PowerQuestion, noise: Noise, least: int = 2, most: int = MOST_LAUNCHES
) -> LaunchPlan | None:
    """Return the plan with the fewest repeats, at least `least`, of all nodes at once. None where `most` do not have the power.

    Such nodes represent themselves: the spread between them plays no part.
    """
    return _fewest(lambda launches: launch_plan(question, noise, 1, launches), question.power, least, most)


def _fewest(plan: Callable[[int], LaunchPlan], power: float, least: int, most: int) -> LaunchPlan | None:
    """Return the plan of the smallest size with this power, which grows with the size: double, then halve."""
    if most < least:
        return None
    low, high = least - 1, least
    while plan(high).power < power:
        if high >= most:
            return None
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if plan(middle).power < power else (low, middle)
    return plan(high)


def cheapest_plan(question: PowerQuestion, noise: Noise, most_nodes: int, most_launches: int = 30) -> LaunchPlan | None:
    """Return the plan with the fewest repeats in all that has the power, of those the one on the fewest nodes, two at least.

    None where all nodes and repeats that there are do not have it.
    """
    plans: list[LaunchPlan] = []
    for launches in range(1, most_launches + 1):
        sized = partial(launch_plan, question, noise, launches_per_node=launches)
        plan = _fewest(sized, question.power, 2, plans[-1].nodes - 1 if plans else most_nodes)
        plans += [plan] if plan is not None else []
    return min(plans, key=lambda plan: (plan.launches, plan.nodes), default=None)
