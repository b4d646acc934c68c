"""The only module of the core that names features: what each of them adds, as references that are resolved when they are used.

A feature is a room, a package that can be left out: `MILABENCH_WITHOUT=site,history` leaves out its lines here.
A reference is `module:name`, below `milabench`.
Imports next to nothing, for `milabench --help` waits for it.
"""

from __future__ import annotations

import os

# feature -> verb -> (its group on the page of `milabench --help`, its line there); the command is that of `<feature>/<verb>_command.py`
VERBS: dict[str, dict[str, tuple[str, str]]] = {
    "images": {"image": ("Set up", "Write the recipe of a container image")},
    "timing_audit": {"timing-audit": ("Measure", "Compare methods of timing the calls of a model")},
    "driver": {"driver": ("Measure", "Run a task of a .cfg file and extract metrics from its log")},
    "bench_command": {"bench": ("Measure", "Measure any command, or compare several")},
}
FEATURES = frozenset(VERBS)


def left_out() -> frozenset[str]:
    """Return the features that MILABENCH_WITHOUT names, between commas."""
    return frozenset(filter(None, os.environ.get("MILABENCH_WITHOUT", "").split(",")))


def feature_of_verb(verb: str) -> str | None:
    """Return the feature that adds this verb, also where it is left out."""
    return next((feature for feature, added in VERBS.items() if verb in added), None)


def verbs() -> dict[str, tuple[str, str]]:
    """Return the verbs of the features that take part."""
    without = left_out()
    return {verb: each for feature, added in VERBS.items() if feature not in without for verb, each in added.items()}


def resolved(reference: str) -> object:
    """Import what a reference names."""
    import importlib

    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(f"milabench.{module}"), name)
