"""What can go wrong before and while operators are measured, in words for the person who wrote the configuration."""

from __future__ import annotations

from benchmate.errors import BenchmateError


class OpsError(BenchmateError):
    """A mistake in a configuration, an option or a name: nothing runs, exit code 2."""


class OperatorFailed(BenchmateError):
    """An operator that could not be built, fed or run with one input: its record says so and the run goes on."""


class OperatorSkipped(BenchmateError):
    """An operator that this machine cannot have (a package, an accelerator, a second process); the message is the reason."""
