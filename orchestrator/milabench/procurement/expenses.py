"""The energy, money and carbon of a run's work, by the terms of a tender: for an item, a run, a year.

Everything is computed for a year of use and divided by the items of that year, so that shared inputs cancel. Energy and its
cost are of the time at work, without the power of an idle machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from milabench.analysis.ab_run import launches
from milabench.analysis.energy_per_item import energies, item_of, joules_per_item
from milabench.analysis.job_mix import Costs
from milabench.analysis.sample_statistics import mean
from milabench.analysis.summary_model import BenchSummary, Expense
from milabench.errors import ConfigError, Problem
from milabench.procurement.costs import (
    YEAR_HOURS,
    carbon_intensity,
    embodied_carbon,
    of_items,
    yearly_cost,
)
from milabench.procurement.metering import MeteredLaunch
from milabench.procurement.power_levels import PowerLevel
from milabench.procurement.tender import Terms
from milabench.procurement.uncertainty import Deviation, UncertainValue, constant, product

BOARD_LEVEL: Final = "device power, no EE HPC level"
PROVISIONED_LEVEL: Final = "as declared, not measured"
_ONE: Final = constant(1.0)
_Quantity = Literal["energy", "cost", "carbon"]
# Units of an amount for one item, and for more of them, with what the first is worth in the second.
_UNITS: Final[Mapping[str, tuple[str, str, float]]] = {"energy": ("J", "kWh", 1 / 3.6e6), "carbon": ("g", "kg", 1e-3)}


@dataclass(frozen=True, slots=True, kw_only=True)
class MeteredBench:
    """The meters' measurements of a benchmark, by replicate. `error` is their largest error, as their owner declares it.

    `level` is the lowest that they reached, None where a meter is not declared. Without windows, as of commands that milabench
    only starts, the repeats are from beginning to end.
    """

    launches: Mapping[int, MeteredLaunch] = field(default_factory=dict)
    error: float | None = None
    level: PowerLevel | None = None
    source: str = ""
    has_windows: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """The work of a benchmark: items a second, items of a repeat, kW of the system, and the sources of these numbers."""

    power_kw: UncertainValue
    power: Literal["meter", "node", "board", "provisioned"]
    level: str
    source: str
    rate: UncertainValue = _ONE
    items: float = 0.0

    def expense(
        self, bench: str, quantity: _Quantity, per: str, amount: UncertainValue, parts: tuple[str, ...], nodes: int = 1
    ) -> Expense:
        """Return an amount of this work as a summary has it."""
        return Expense(
            bench=bench,
            quantity=quantity,
            per=per,
            value=amount.value,
            ci95=amount.interval(),
            units=amount.units,
            parts=parts,
            power=self.power,
            level=self.level,
            source=self.source,
            nodes=nodes,
        )


def expenses(
    bench: BenchSummary,
    terms: Terms,
    costs: Costs,
    nodes: int,
    metered: MeteredBench | None = None,
    price: UncertainValue | None = None,
    power_kw: UncertainValue | None = None,
    whole: int | None = None,
    declared_by: str = "power_W of the system file",
) -> tuple[Expense, ...]:
    """Return the expenses of a benchmark's work. Empty where it has no valid rate in items, or no power is known.

    `costs` are of the system that ran, of `nodes` nodes, with an offer's `price` and power for as many. The terms win
    where both have a value. A year is of the `whole` system's nodes, all kept at work as those that ran. `declared_by`
    says where a power that nothing measured is from. Raises ConfigError for two currencies.
    """
    if power_kw is None and costs.power_w is not None:
        power_kw = constant(costs.power_w / 1000, "kW")
    work = _work(bench, metered, power_kw, declared_by)
    of_launch = _of_launch(bench, terms, metered)
    if work is None:
        return of_launch
    terms = _with_values_of(costs, terms)
    if price is None and costs.price is not None:
        price = constant(costs.price, terms.currency)
    used = terms.utilization or _ONE
    energy = product([(work.power_kw, 1), (terms.pue or _ONE, 1), (used, 1)], YEAR_HOURS, "kWh")
    pue = ("PUE",) if terms.pue is not None else ()
    of_year: list[tuple[_Quantity, UncertainValue, tuple[str, ...]]] = [("energy", energy, ("power at work", *pue))]
    if (money := _cost_of_year(terms, work.power_kw, energy, price)) is not None:
        of_year.append(("cost", *money))
    if terms.grid_carbon is not None:
        made = _made_of_year(terms, nodes)
        carbon = carbon_intensity(energy, terms.grid_carbon, made)
        parts = ("energy", "making the nodes") if made is not None else ("energy",)
        of_year.append(("carbon", product([(carbon, 1)], 1e-3, "kg"), parts))
    sizes = nodes, whole or nodes
    return *of_launch, *(expense for each in of_year for expense in _expenses(bench, work, used, sizes, *each))


def _with_values_of(costs: Costs, terms: Terms) -> Terms:
    """Return the terms, with the values of a system where they have none. Raises ConfigError for two currencies."""
    if terms.currency and costs.currency and terms.currency != costs.currency:
        what = f"prices in two currencies: {terms.currency} of the tender, {costs.currency} of the system"
        raise ConfigError(Problem("", "currency", what, "convert to the same currency"))
    return replace(
        terms,
        currency=terms.currency or costs.currency,
        years=terms.years or (None if costs.years is None else constant(costs.years)),
        electricity=terms.electricity or (None if costs.electricity is None else constant(costs.electricity)),
        pue=terms.pue or (None if costs.pue == 1 else constant(costs.pue)),
    )


def _of_launch(bench: BenchSummary, terms: Terms, metered: MeteredBench | None) -> tuple[Expense, ...]:
    """Return the meters' readings of repeats from begin to end, where no window says when they measured."""
    if metered is None or metered.has_windows or not metered.launches or bench.outcome != "passed":
        return ()
    joules = [launch.power_w * launch.seconds for launch in metered.launches.values()]
    pue = terms.pue or _ONE
    energy = product(
        [(_joules(bench, joules), 1), (_own_error(metered, metered.launches), 1), (pue, 1)], 1 / 3.6e6, "kWh"
    )
    work = _Work(power_kw=energy, power="meter", level=_level_text(metered), source=metered.source)
    parts = ("the whole launch", *(("PUE",) if terms.pue is not None else ()))
    return (work.expense(bench.bench, "energy", "run", energy, parts),)


def _own_error(metered: MeteredBench, repeats: Iterable[int]) -> UncertainValue:
    """Return 1 with the errors of the meters, of their clocks, and of the sampled nodes."""
    launches = [metered.launches[repeat] for repeat in repeats]
    by_clock = max(launch.clock_share for launch in launches)
    drawn = [launch.drawn for launch in launches if launch.drawn is not None and launch.drawn.sd]
    doubts = [Deviation(by_clock, source="clock of the meter")] if by_clock else []
    # The same nodes stand for all in every launch: their error does not average out.
    doubts += [max(drawn, key=lambda each: each.sd)] if drawn else []
    if metered.error is not None:
        doubts += UncertainValue.within(1.0, metered.error, source="error of the meter").deviations or ()
    return UncertainValue(value=1.0, deviations=tuple(doubts))


def metered_node_kw(metered: MeteredBench, nodes: int) -> UncertainValue | None:
    """Return the power of each node that meters showed in the repeats of a benchmark. None where they covered no repeat."""
    if not metered.launches:
        return None
    watts = UncertainValue.of_launches([launch.power_w for launch in metered.launches.values()], "W")
    return product([(watts, 1), (_own_error(metered, metered.launches), 1)], 1e-3 / nodes, "kW")


def _level_text(metered: MeteredBench) -> str:
    return "not declared" if metered.level is None else metered.level.label


def _work(
    bench: BenchSummary, metered: MeteredBench | None, declared_kw: UncertainValue | None, declared_by: str
) -> _Work | None:
    rates = launches(bench)
    is_usable = bench.outcome == "passed" and bench.validity != "invalid" and bench.direction == "higher"
    if not (rates and is_usable and bench.units.endswith("/s")):
        return None
    rate = UncertainValue.of_launches(list(rates.values()), bench.units, f"{bench.bench}:rate")
    powered = _metered(bench, rates, rate, metered) or _by_boards(bench, rates, rate)
    if powered is None:
        if declared_kw is None:
            return None
        # Of the declared power's error alone: how much the rate varies is no part of it.
        powered = _Work(power_kw=declared_kw, power="provisioned", level=PROVISIONED_LEVEL, source=declared_by)
    items = dict.fromkeys(rates, 0.0)
    for process in bench.processes:
        done = math.fsum([*(total.items for total in process.throughput.totals), process.throughput.left_out])
        items[process.repeat] = items.get(process.repeat, 0.0) + done
    return replace(powered, rate=rate, items=mean([items[repeat] for repeat in rates]))


def _metered(
    bench: BenchSummary, rates: Mapping[int, float], rate: UncertainValue, metered: MeteredBench | None
) -> _Work | None:
    """Return the meters' power, with their error and their clocks' error. None unless they covered every repeat."""
    if metered is None or not metered.has_windows or not rates.keys() <= metered.launches.keys():
        return None
    taken = [metered.launches[repeat].power_w / rate for repeat, rate in rates.items()]
    power_kw = product([(_joules(bench, taken), 1), (_own_error(metered, rates), 1), (rate, 1)], 1e-3, "kW")
    return _Work(power_kw=power_kw, power="meter", level=_level_text(metered), source=metered.source)


def _by_boards(bench: BenchSummary, rates: Mapping[int, float], rate: UncertainValue) -> _Work | None:
    """Return the power from the sensors of the devices. None unless all were read."""
    by_step = energies(bench)
    known: dict[int, list[float]] = {repeat: [] for repeat in rates}
    for process in bench.processes:
        joules = joules_per_item(process, by_step)
        if joules is None and process.repeat in known:
            return None
        known.setdefault(process.repeat, []).append(joules or 0.0)
    of_launches = _joules(bench, [mean(known[repeat]) for repeat in rates])
    power_kw = product([(of_launches, 1), (rate, 1)], 1e-3, "kW")
    return _Work(power_kw=power_kw, power="board", level=BOARD_LEVEL, source="sensors of the devices")


def _joules(bench: BenchSummary, of_launches: Sequence[float]) -> UncertainValue:
    return UncertainValue.of_launches(of_launches, "J", f"{bench.bench}:joules")


def _made_of_year(terms: Terms, nodes: int) -> UncertainValue | None:
    """Return the carbon in g of making the nodes for a year of their life. For a life below a year, the whole carbon."""
    years = terms.years
    if terms.embodied_carbon is None or years is None:
        return None
    lifetime_h = years.value * YEAR_HOURS
    all_nodes = product([(terms.embodied_carbon, 1)], 1000 * nodes, "g")
    made = embodied_carbon(all_nodes, reserved_h=min(YEAR_HOURS, lifetime_h), lifetime_h=lifetime_h)
    return product([(made, 1), (years, -1)], years.value, "g") if years.value > 1 else made


def _cost_of_year(
    terms: Terms, power_kw: UncertainValue, energy: UncertainValue, price: UncertainValue | None
) -> tuple[UncertainValue, tuple[str, ...]] | None:
    """Return the cost of a year and its parts. None where the price of energy is not known."""
    if terms.electricity is None:
        return None
    owned = None if price is None else terms.ownership(product([(price, 1)], 1.0, terms.currency), power_kw)
    if owned is None:
        return product([(energy, 1), (terms.electricity, 1)], 1.0, terms.currency), ("energy",)
    return yearly_cost(owned).total, ("price", *(("upkeep",) if terms.upkeep else ()), "energy")


def _expenses(
    bench: BenchSummary,
    work: _Work,
    used: UncertainValue,
    sizes: tuple[int, int],
    quantity: _Quantity,
    of_year: UncertainValue,
    parts: tuple[str, ...],
) -> Iterator[Expense]:
    single, several, worth = _UNITS.get(quantity, (of_year.units, of_year.units, 1.0))
    of_item = of_items(of_year, work.rate, used=used)
    item = item_of(bench.units)
    ran, whole = sizes
    amounts = (
        (item, product([(of_item, 1)], 1 / worth, single)),
        (f"1M {item}s", product([(of_item, 1)], 1e6, several)),
        ("run", product([(of_item, 1)], work.items, several) if work.items else None),
        ("node year", product([(of_year, 1)], 1 / ran, of_year.units)),
        ("year", product([(of_year, 1)], whole / ran, of_year.units)),
    )
    for per, amount in amounts:
        if amount is not None:
            yield work.expense(bench.bench, quantity, per, amount, parts, whole)
