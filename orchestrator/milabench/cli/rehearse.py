"""`milabench rehearse`."""

from __future__ import annotations

import math
from pathlib import Path

import click

from milabench.cli.compare import margin_option, metric_option
from milabench.cli.formats import Destination, format_options
from milabench.cli.options import base_option, file_option, table_width, wide_option
from milabench.cli.progress_line import ProgressLine
from milabench.errors import DONE, UsageError

# The keys of procurement/noise.KEYS, and the usual word for the first.
NOISE_KEYS = ("launches", "nodes", "within", "outliers", "failures")
_FIRST_RATIO, _STEP, _OFFERS = 1.5, 1.02, 4
_MOST = 0.9


def _number(text: str, what: str) -> float:
    """Return `1%` or 0.01 as a number above or at zero. Raises UsageError."""
    try:
        number = float(text.strip().removesuffix("%")) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise UsageError(f"{what}: expected a number such as 0.01 or 1%, got '{text}'")
    return number


def _ratios(text: str | None, offers: int | None) -> tuple[float, ...]:
    if text is None:
        return tuple(_FIRST_RATIO * _STEP**at for at in range(offers or _OFFERS))
    ratios = tuple(_number(word, f"--true-ratios {text}") for word in text.split(","))
    if min(ratios) <= 0:
        raise UsageError(f"--true-ratios {text}: expected numbers above zero such as 1.50,1.53")
    if offers is not None and offers != len(ratios):
        raise UsageError(f"--offers {offers}: --true-ratios names {len(ratios)}; leave one of them out")
    return ratios


def _noise(texts: tuple[str, ...]) -> tuple[str | None, dict[str, float]]:
    """Return the run, and the shares by name, that `RUN` and `cv=1%,nodes=0.5%` name."""
    runs, shares = [text for text in texts if "=" not in text], dict[str, float]()
    if len(runs) > 1:
        raise UsageError(f"--noise: {runs[0]} and {runs[1]} are two runs; leave one out")
    for word in ",".join(text for text in texts if "=" in text).split(","):
        if not word:
            continue
        name, _, number = (part.strip() for part in word.partition("="))
        name = "launches" if name == "cv" else name
        if name not in NOISE_KEYS:
            raise UsageError(f"--noise {word}: expected {', '.join(f'{key}=1%' for key in NOISE_KEYS)}, or a run")
        shares[name] = _number(number, f"--noise {word}")
        if shares[name] > _MOST:
            raise UsageError(f"--noise {word}: at most {_MOST:.0%}")
    return next(iter(runs), None), shares


@click.command("rehearse")
@click.argument("tender", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--tenders", type=click.IntRange(1, 100_000), default=200, show_default=True, help="Tenders to simulate.")
@click.option("--offers", type=click.IntRange(1, 100), help="Offers in each, 2% apart from 1.5 on. Default: 4.")
@click.option(
    "--true-ratios",
    metavar="RATIO,...",
    help="What the offers truly are, one each: their speed over the reference, in every benchmark.",
)
@click.option("--nodes", type=click.IntRange(1, 100_000), default=64, show_default=True, help="Nodes of each system.")
@click.option(
    "--bad-nodes", type=click.IntRange(0), default=2, show_default=True, help="Bad nodes, in a second acceptance."
)
@click.option("--slowdown", default="10%", show_default=True, metavar="SHARE", help="How much slower a bad node is.")
@click.option(
    "--launches",
    type=click.IntRange(1, 1000),
    default=5,
    show_default=True,
    help="Launches of each benchmark, of offers and in the acceptance.",
)
@click.option(
    "--noise",
    multiple=True,
    metavar="RUN|KEY=SHARE,...",
    help="How numbers vary: as in this run, or as cv=1%, or launches=1%,nodes=0.5%,within=0.2%,outliers=0.1%,failures=0.1%. "
    "Both together: as stated, the rest as in the run. Default: as in the tender's reference run.",
)
@file_option("--criteria", help="Acceptance criteria (YAML), in which `x reference` is what the winner offered.")
@metric_option
@margin_option
@click.option("--seed", type=int, default=1, show_default=True, help="What is drawn, is drawn of it.")
@base_option
@format_options
@wide_option
def command(
    tender: Path,
    tenders: int,
    offers: int | None,
    true_ratios: str | None,
    nodes: int,
    bad_nodes: int,
    slowdown: str,
    launches: int,
    noise: tuple[str, ...],
    criteria: Path | None,
    metric: str | None,
    margin: float,
    seed: int,
    base: Path | None,
    destination: Destination,
    wide: bool,
) -> int:
    """Try a tender (procurement.yaml) on simulated offers whose truth is known: its score, its verdicts, its acceptance.

    Shows how often the right offer wins, verdicts are right, intervals hold the truth, and the acceptance passes bad systems
    or fails good ones; and what twice the launches would better. Writes nothing but the report.
    """
    from milabench.procurement.rehearsal_model import RehearsalPlan
    from milabench.report.rehearsal import render_rehearsal
    from milabench.workflow.rehearsals import rehearse_tender

    run, shares = _noise(noise)
    slower = _number(slowdown, "--slowdown")
    if slower > _MOST:
        raise UsageError(f"--slowdown {slowdown}: at most {_MOST:.0%}")
    plan = RehearsalPlan(
        ratios=_ratios(true_ratios, offers),
        tenders=tenders,
        nodes=nodes,
        bad_nodes=bad_nodes,
        slowdown=slower,
        launches=launches,
        seed=seed,
        metric=metric or "",
        margin=margin,
    )
    line = ProgressLine()

    def show(done: int, total: int) -> None:
        line.show("" if done == total else f"rehearsed: {100 * done // total} %")

    rehearsal = rehearse_tender(tender, base, plan, noise_of=run, shares=shares, criteria_file=criteria, progress=show)
    width = table_width(wide) if destination.output is None else None
    destination.write(render_rehearsal(rehearsal, destination.format, width))
    return DONE
