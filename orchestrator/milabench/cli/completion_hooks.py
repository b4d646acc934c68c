"""The hooks by which options and arguments complete names; they import what they need when a shell asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def benchmark_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete benchmarks of the suite."""
    from milabench.cli.completion import complete_benchmark

    return complete_benchmark(ctx, param, incomplete)


def selections(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete benchmarks and tags, also in a comma list."""
    from milabench.cli.completion import complete_selection

    return complete_selection(ctx, param, incomplete)
