"""Shows plans: as text, as JSON, or as the difference from another plan's JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from milabench.errors import ConfigError, UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOutput:
    """A plan in both forms; `name` and `options` are those of its run where there are several."""

    value: Mapping[str, Any]
    text: str
    name: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


def show_plans(plans: Sequence[PlanOutput], *, as_json: bool, several: bool = False, other: Path | None = None) -> None:
    """Print the plan; the plans of a multirun one after the other, or below `runs`; or the difference from `other`."""
    if other is not None:
        from milabench.plan.diff import diff_text, plan_diff

        if several:
            raise UsageError(f"--diff compares one plan; the multirun of the system file makes {len(plans)}")
        diff = plan_diff(read_plan(other), json.loads(json.dumps(plans[0].value)))
        click.echo(json.dumps(diff.to_json(), indent=1) + "\n" if as_json else diff_text(diff), nl=False)
    elif not several:
        click.echo(json.dumps(plans[0].value, indent=1) + "\n" if as_json else plans[0].text, nl=False)
    elif as_json:
        runs = [{"name": each.name, "options": dict(each.options), "plan": each.value} for each in plans]
        click.echo(json.dumps({"schema": 1, "runs": runs}, indent=1))
    else:
        for number, each in enumerate(plans):
            chosen = ", ".join(f"{key}={value}" for key, value in each.options.items())
            click.echo(f"{chr(10) if number else ''}run {each.name}: {chosen}\n{each.text}", nl=False)


def read_plan(path: Path) -> Mapping[str, Any]:
    """The plan in a file that `milabench plan --json` made, or in a run's manifest. Raises ConfigError."""
    from milabench.plan.diff import is_plan

    hint = "give a file that `milabench plan --json` made, or a run's manifest.json"
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}; {hint}") from None
    except (ValueError, RecursionError):
        raise ConfigError(f"{path}: is no JSON; {hint}") from None
    if isinstance(value, dict) and isinstance(value.get("plan"), dict):
        value = value["plan"]
    if not is_plan(value):
        raise ConfigError(f"{path}: is no plan; {hint}")
    found: Mapping[str, Any] = value
    return found
