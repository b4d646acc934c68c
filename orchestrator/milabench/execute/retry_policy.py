"""The policy for held devices and failed steps. Standard library only, because the command line imports it for its options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Whether to wait for devices, retries of a failed step, and the number of failures after which nothing starts.

    A group with a failed step is retried up to `max_retries` times as a whole: its steps are measured concurrently. Without
    `wait`, a device in use is an error. `attempts` are those that a resumed run has behind it, by step, and `passed` its
    steps that have passed. `markers` are files to create, by step, when it has passed: they say that it need not be done
    again.
    """

    wait: bool = False
    max_retries: int = 0
    max_failures: int | None = None
    attempts: Mapping[str, int] = field(default_factory=dict)
    passed: frozenset[str] = frozenset()
    # An agent makes them itself when the step passes: a control plane that is killed loses no finished step.
    markers: Mapping[str, str] = field(default_factory=dict)


NO_RETRIES = RetryPolicy()
