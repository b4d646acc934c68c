"""The only module of the core that names features: what each of them adds, as references that are resolved when they are used.

A feature is a room, a package that can be left out: `MILABENCH_WITHOUT=site,history` leaves out its lines here.
A reference is `package.module:name`, below `milabench`.
Imports next to nothing, for `milabench --help` waits for it.
"""

from __future__ import annotations

import os

# feature -> verb -> (its group on the page of `milabench --help`, its line there, its click command)
VERBS: dict[str, dict[str, tuple[str, str, str]]] = {
    "images": {"image": ("Set up", "Write the recipe of a container image", "images.image_command:command")},
    "timing_audit": {
        "timing-audit": (
            "Measure",
            "Compare methods of timing the calls of a model",
            "timing_audit.timing_audit_command:command",
        ),
    },
    "driver": {
        "driver": (
            "Measure",
            "Run a task of a .cfg file and extract metrics from its log",
            "driver.driver_command:command",
        ),
    },
    "bench_command": {
        "bench": ("Measure", "Measure any command, or compare several", "bench_command.bench_command:command"),
    },
}
FEATURES = frozenset(VERBS)


def left_out() -> frozenset[str]:
    """Return the features that MILABENCH_WITHOUT names, between commas."""
    return frozenset(filter(None, os.environ.get("MILABENCH_WITHOUT", "").split(",")))


def verbs() -> dict[str, tuple[str, str, str]]:
    """Return the verbs of the features that take part."""
    without = left_out()
    return {verb: each for feature, added in VERBS.items() if feature not in without for verb, each in added.items()}


def feature_of_verb(verb: str) -> str | None:
    """Return the feature that adds this verb, also where it is left out."""
    return next((feature for feature, added in VERBS.items() if verb in added), None)


def resolved(reference: str) -> object:
    """Import what a reference names."""
    import importlib

    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(f"milabench.{module}"), name)
