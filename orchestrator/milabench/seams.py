"""The only module of the core that names features: what each of them adds, as references that are resolved when they are used.

A feature is a room, a package that can be left out: `MILABENCH_WITHOUT=site,history` leaves out its lines here.
A reference is `module:name`, below `milabench`.
Imports next to nothing, for `milabench --help` waits for it.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # as of typing, which takes longer to import than all of this
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# feature -> group on the page of `milabench --help-all` -> verb -> its line there; `<feature>/<verb>_command.py` has the command
VERBS: dict[str, dict[str, dict[str, str]]] = {
    "capsule": {"Set up": {"capsule": "Pack a suite with all it needs, for machines without a network"}},
    "images": {"Set up": {"image": "Write the recipe of a container image"}},
    "bench_command": {"Measure": {"bench": "Measure any command, or compare several"}},
    "driver": {"Measure": {"driver": "Run a task of a .cfg file and extract metrics from its log"}},
    "timing_audit": {"Measure": {"timing-audit": "Compare methods of timing the calls of a model"}},
    "history": {
        "Report, compare and decide": {
            "history": "Show the trend of a benchmark over runs",
            "db": "Keep and query the results of many runs",
            "import": "Convert results of other programs into runs",
            "export": "Write results for Parquet, Prometheus or OpenTelemetry",
        }
    },
}
# option of a command of the core -> (the feature that does what it says, the function)
HANDLERS = {
    "report --from-db": ("history", "history.results_store:stored_summaries"),
    "install --from": ("capsule", "capsule.install:install_from"),
    "report --site": ("site", "site.write:write_site"),
}
# name in `system.engine`, manifests and journals -> the batch scheduler, a `JobSystem` of schedulers/scheduler.py
SCHEDULERS = {
    "slurm": "schedulers.slurm.jobs:SLURM",
}
FEATURES = frozenset(VERBS) | {feature for feature, _ in HANDLERS.values()}


def features_left_out() -> frozenset[str]:
    """Return the features that MILABENCH_WITHOUT names, between commas."""
    return frozenset(filter(None, os.environ.get("MILABENCH_WITHOUT", "").split(",")))


def feature_of_verb(verb: str) -> str | None:
    """Return the feature that adds this verb, also where it is left out."""
    return next((feature for feature, groups in VERBS.items() for verbs in groups.values() if verb in verbs), None)


def verbs_of(group: str) -> dict[str, str]:
    """Return the verbs that the features which take part add to a group, with their lines."""
    without = features_left_out()
    added = (groups.get(group, {}) for feature, groups in VERBS.items() if feature not in without)
    return {verb: line for verbs in added for verb, line in verbs.items()}


def handler(option: str) -> Callable[..., Any]:
    """Return the function that does what an option of the core says. Raises UsageError where its feature is left out."""
    feature, reference = HANDLERS[option]
    if feature in features_left_out():
        from milabench.errors import UsageError

        raise UsageError(f"{option} needs the feature {feature}, which MILABENCH_WITHOUT leaves out")
    function = resolved(reference)
    assert callable(function)
    return function


def resolved(reference: str) -> object:
    """Import what a reference names."""
    import importlib

    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(f"milabench.{module}"), name)
