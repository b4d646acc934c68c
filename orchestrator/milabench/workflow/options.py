"""The options that several use cases share, as values: a command line fills them from its arguments, a program by hand."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteOptions:
    """Which suite and system, below which base, which benchmarks of it, in which environments; None: the default.

    `ask_nodes`: query the other nodes for their facts instead of trusting the system file. `environ` are the variables that
    suite and system file may use.
    """

    config_file: Path | None = None
    system_file: Path | None = None
    base: Path | None = None
    overrides: tuple[str, ...] = ()
    max_jobs: int | None = None
    arch: str | None = None
    select: str | None = None
    exclude: str | None = None
    use_current_env: bool = False
    ask_nodes: bool = False
    accept_new_host_keys: bool = False
    ignore_node_checks: bool = False
    # Not shown: it may hold tokens, and a traceback shows the options.
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How much is measured: how often, how long, how precisely, within how many seconds, against which other suite.

    `precision` is the relative half-width of a 95% interval; `ab` are the two suites of an A/B run. `seed` is that of the
    order in which benchmarks run; None: the time for a run, 0 for a plan.
    """

    repeat: int | None = None
    profile: str | None = None
    precision: float | None = None
    budget_s: float | None = None
    ab: tuple[Path, Path] | None = None
    # Empty where no run is made: `{run_name}` in the arguments of prepare.py is part of its marker's digest.
    run_name: str = ""
    seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeRequest:
    """A search for the largest batch size of a benchmark, between `least` and `most`; `save` is added what was observed."""

    bench: str
    least: int = 1
    most: int | None = None
    save: Path | None = None
    wait: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRequest:
    """How a timing audit is run; `shuffle`: in random order within each block of processes."""

    base: Path | None = None
    shuffle: bool = True
    use_current_env: bool = False
    wait: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRequest:
    """Which runs are reported, by name or path, by default the latest, and how.

    `reference` is a run or the JSON report of one, by default what each run's system file names. `score` is `index` or
    `compat`, the score of milabench 1.3. `from_db`: read summaries from the results store, at `location` or in the base,
    instead of records.
    """

    runs: tuple[str, ...] = ()
    base: Path | None = None
    reference: str | None = None
    weights: Path | None = None
    score: str = "index"
    validations: str | None = None
    from_db: bool = False
    location: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareRequest:
    """Which runs, or JSON reports of runs, are compared, by name or path, and how.

    Each of `runs` is a system: a run, several by commas, or a sequence of runs. `margin` is the relative difference below
    which nothing is called faster or slower. `per` is `system`, all instances together, or `instance`. `weights` and `costs`
    are YAML files that replace the suite's and the system files'. `why`: list what differs between the systems. `across`:
    compare also benchmarks whose arguments differ.
    """

    runs: tuple[str | Sequence[str], ...]
    base: Path | None = None
    margin: float = 0.01
    per: Literal["system", "instance"] = "system"
    weights: Path | Mapping[str, float] | None = None
    costs: Path | None = None
    validations: str | None = None
    why: bool = False
    across: bool = False
