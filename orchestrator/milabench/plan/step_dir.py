"""The folder of a repeat: which steps have it, the path that replaces its token, and when it is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from milabench.plan.model import STEP_DIR, Step


def uses_step_dir(step: Step) -> bool:
    """Return whether a step works in its folder, or is told where it is."""
    return any(STEP_DIR in text for text in (step.cwd, *step.argv, *step.prerun, *step.env.values()))


def with_step_dir(step: Step, path: str) -> Step:
    """Return the step with the path of its folder wherever the token stands."""
    return replace(
        step,
        argv=tuple(word.replace(STEP_DIR, path) for word in step.argv),
        prerun=tuple(word.replace(STEP_DIR, path) for word in step.prerun),
        end_argv=tuple(word.replace(STEP_DIR, path) for word in step.end_argv),
        env={name: value.replace(STEP_DIR, path) for name, value in step.env.items()},
        cwd=step.cwd.replace(STEP_DIR, path),
        config=_replaced(step.config, path),
    )


def keeps_step_dir(policy: str, outcome: str) -> bool:
    """Return whether the folder stays after a repeat with this outcome."""
    return policy == "always" or (policy == "failed" and outcome != "passed")


def _replaced(value: object, path: str) -> Any:
    if isinstance(value, str):
        return value.replace(STEP_DIR, path)
    if isinstance(value, Mapping):
        return {key: _replaced(item, path) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_replaced(item, path) for item in value]
    return value
