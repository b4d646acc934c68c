"""Does all stages of a suite in a single command, from install to report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from milabench.execute.retry_policy import RetryPolicy
from milabench.workflow.context import read_context
from milabench.workflow.device_use import require_free_devices
from milabench.workflow.install import install
from milabench.workflow.options import Extent, ReportRequest, Session, SuiteOptions
from milabench.workflow.prepare import prepare
from milabench.workflow.report_runs import render_report
from milabench.workflow.run_suite import RunSettings, execute_runs, prepare_runs

Say = Callable[[str], object]
"""Called with the text of each stage, for standard output."""


def first_look(
    options: SuiteOptions, extent: Extent, session: Session, say: Say, width: int | None = None, *, wait: bool = False
) -> int:
    """Install, prepare, run and report a suite. Return the highest exit code of its runs.

    With `wait` it waits for devices that are held, instead of failing. `width` is the terminal's width for the report, None for
    any width.
    """
    about = ": a first look. --profile default can give valid numbers"
    settings = RunSettings(retry=RetryPolicy(wait=wait))
    runs, code = measure_suite(options, replace(extent, run_name="quickstart"), settings, session, say, about=about)
    report_runs(ReportRequest(runs=runs), session, say, width)
    return code


def measure_suite(
    options: SuiteOptions, extent: Extent, settings: RunSettings, session: Session, say: Say, *, about: str = ""
) -> tuple[tuple[str, ...], int]:
    """Install, prepare and run. Return the runs, and their highest exit code.

    `about` is printed for a run with a short profile. Raises Unreachable for a device that is held, before all else.
    """
    sides = extent.sides(options)
    contexts = [read_context(replace(side, ask_nodes=False), session, extent, warn=False) for side in sides]
    for context in contexts:
        require_free_devices(context, wait=settings.retry.wait)
    is_short = contexts[0].plan_context.profile.short
    say("== milabench install: environments and programs")
    for side in sides:
        install(side, session)
    say("== milabench prepare: data and models")
    for side in sides:
        prepare(read_context(side, session))
    say(f"== milabench run{about if is_short else ''}")
    settings = replace(settings, is_reported=True)
    finished = execute_runs(prepare_runs(options, extent, settings, session), session)
    return tuple(str(run) for run, _ in finished), max(code for _, code in finished)


def report_runs(request: ReportRequest, session: Session, say: Say, width: int | None) -> None:
    """Say the report on some runs."""
    say("== milabench report")
    say(render_report(request, "brief", session, width).removesuffix("\n"))
