"""The only module of the core that names features: the additions of each, as references that are resolved when they are used.

A reference is `module:name`, or a module, below `milabench`. Its first word is the feature: a package that can be left out.
`MILABENCH_WITHOUT=site,history` leaves out the lines of two. Imports next to nothing, for `milabench --help` waits for it.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # as of typing, which takes longer to import than all of this
if TYPE_CHECKING:
    from typing import Any, TypeVar

    T = TypeVar("T")

# groups of verbs on the page of `milabench --help-all`; HIDDEN are called by other programs: neither listed nor completed
SET_UP, MEASURE, RUNS, DECIDE = "Set up", "Measure", "Follow and manage runs", "Report, compare and decide"
HIDDEN = ""
# verb, of one or two words -> its feature, in whose `<verb>_command.py` it is; its group; its line there
VERBS = {
    "quickstart": ("quickstart", SET_UP, "Install, prepare, run and report a small suite"),
    "init": ("scaffold", SET_UP, "Copy the shipped suites and benchmarks, to edit them"),
    "new": ("scaffold", SET_UP, "Create a benchmark from a template"),
    "pin": ("pinning", SET_UP, "Write the lock files of benchmarks from their requirements"),
    "doctor": ("doctor", SET_UP, "Check whether this machine can run a suite"),
    "nodes": ("doctor", SET_UP, "Check the machines of a system"),
    "list": ("listing", SET_UP, "List the benchmarks of a suite"),
    "runs": ("following", RUNS, "List runs with their verdicts"),
    "status": ("following", RUNS, "Show the progress of a run"),
    "logs": ("following", RUNS, "Show the output of a step"),
    "replay": ("following", RUNS, "Replay a recorded run"),
    "cancel": ("following", RUNS, "End an active run"),
    "config": ("suite_check", SET_UP, "Show, explain or check the configuration of a suite"),
    "dev": ("dev", SET_UP, "Open a shell or run a command in a benchmark's environment"),
    "ops": ("dev", MEASURE, "Time operators, record and replay execution traces"),
    "job": ("jobs", HIDDEN, "Carry out a share of a run, inside the job that was submitted for it"),
    "capsule": ("capsule", SET_UP, "Pack a suite with all it needs, for machines without a network"),
    "import-suite": ("compat13", SET_UP, "Turn benchmarks of milabench 1.3 into ours"),
    "image": ("images", SET_UP, "Write the recipe of a container image"),
    "bench": ("bench_command", MEASURE, "Measure any command, or compare several"),
    "try": ("own_program", MEASURE, "Measure a program of your own for half a minute, as it is"),
    "size": ("batch_size", MEASURE, "Find the largest batch size that fits"),
    "driver": ("driver", MEASURE, "Run a task of a .cfg file and extract metrics from its log"),
    "ci": ("ci", MEASURE, "Do the steps of a build server's job: doctor to exit code"),
    "timing-audit": ("timing_audit", MEASURE, "Compare methods of timing the calls of a model"),
    "accept": ("acceptance", DECIDE, "Check a run against acceptance criteria"),
    "accept plan": ("procurement", DECIDE, "Plan the repeats that acceptance criteria need"),
    "accept recheck": ("procurement", DECIDE, "Check a run against the accepted run"),
    "accept looks": ("procurement", DECIDE, "Check a growing run repeat by repeat"),
    "offer": ("procurement", DECIDE, "Pack, verify and compare offers to a tender"),
    "tender": ("procurement", DECIDE, "Check a tender, or explain the numbers of a score"),
    "budget": ("procurement", DECIDE, "Compute how many nodes match a system, budget or power"),
    "project": ("procurement", DECIDE, "Estimate a larger system from runs on smaller ones"),
    "import-meter": ("procurement", DECIDE, "Add a power meter's readings to a run"),
    "baseline": ("fleet", DECIDE, "Compute the expected numbers of a fleet's machines"),
    "outliers": ("fleet", DECIDE, "Find the nodes and devices that differ from a baseline"),
    "bundle": ("archives", DECIDE, "Create a tamper-evident archive of runs"),
    "verify": ("archives", DECIDE, "Verify an archive of runs"),
    "stacks": ("hangs", RUNS, "Show where a step's processes are, and who waits for whom"),
    "gc": ("garbage", RUNS, "Show the disk space of a base, and remove unused files"),
    "gc processes": ("garbage", RUNS, "Kill processes left by crashed runs"),
    "history": ("history", DECIDE, "Show the trend of a benchmark over runs"),
    "db": ("history", DECIDE, "Keep and query the results of many runs"),
    "import": ("history", DECIDE, "Convert results of other programs into runs"),
    "export": ("history", DECIDE, "Write results for Parquet, Prometheus or OpenTelemetry"),
}
# what the core hands over, mostly an option of a command -> the function that does it, or the module of several
HANDLERS = {
    "answers": "answers.vote:judged_by_answers",
    "accept": "acceptance.accept_runs:accept_run",
    "answers of a reference": "answers.reference:compared_with",
    "accept --every": "procurement.recheck_calendar:recheck_note",
    "--format xlsx": "workbooks.xlsx",
    "compare --tender": "procurement.tender_command:score_by_tender",
    "compute use": "compute_use.compute_use",
    "driver": "driver.suite_tasks:with_task",
    "meters": "procurement.run_expenses",
    "report --tender": "procurement.run_expenses:with_expenses_of_runs",
    "schema acceptance": "acceptance.criteria:criteria_schema",
    "schema offer": "procurement.offer:offer_schema",
    "schema tender": "procurement.tender:tender_schema",
    "verify --offer": "procurement.offer_command:show_verified_offer",
    "new --from FOLDER": "compat13.import_suite_command:new_from_folder",
    "new --from PROGRAM": "own_program.new_from_program:new_from_program",
    "report --from-db": "history.results_store:stored_summaries",
    "a bundle": "archives.opened_bundles:bundled_report",
    "records of a bundle": "archives.opened_bundles:opened_bundle",
    "the suite of a capsule": "capsule.contents:unpacked_digest",
    "--engine slurm": "slurm.held_nodes:hold_nodes",
    "recorded nodes": "slurm.held_nodes",
    "requests for nodes": "slurm.held_nodes",
    "nodes of a partition": "slurm.scheduler:nodes_of_partition",
    "srun": "slurm.srun",
    "install partition": "slurm.install_partition:run_in_install_partition",
    "doctor: slurm": "slurm.findings:check_slurm",
    "attach to a run": "following.run_view:attach_to_run",
    "run --submit": "jobs.submission:for_jobs",
    "jobs of a run": "jobs.job_runs",
    "scripts of jobs": "jobs.submission:job_scripts",
    "ends of jobs": "jobs.follow_jobs:ask_about",
    "install --from": "capsule.install:install_from",
    "report --site": "site.write:write_site",
    "serve": "sweeps.suite_check:is_whole_sweep",
    "curves: fold": "sweeps.fold:SweepFold",
    "curves: launches": "sweeps.launches:over_launches",
    "curves: messages": "sweeps.curve:curve_messages",
    "curves: comparison": "sweeps.comparison:compare_curves",
    "curves: tables": "sweeps.report:blocks_of_curves",
    "curves: page": "sweeps.page:curve_content",
    "curves: test case": "sweeps.tables:case_of_curve",
    "criteria on curves": "sweeps.curve_numbers:curve_number",
    "hangs": "hangs.judgement:hang_sentence",
    "stragglers": "hangs.stragglers:with_stragglers",
}
# name of a format of reports -> the module that writes it: a `Renderer` of report/registry.py
FORMATS = {"html": "pages", "junit": "ci.junit"}
# what agents on nodes run -> the module; its folder goes to the nodes with the agent
ON_NODES = {"collector": "hangs.on_node.collecting"}
# name in `system.engine`, manifests and journals -> the batch scheduler: its `JobSystem`
SCHEDULERS = {
    "slurm": "slurm.scheduler:SLURM",
}
# name that a benchfile of another system assigns at module level -> the module that reads it
BENCHFILES = {"__pack__": "compat13.milabench13"}
# modules that know what people type for another program
SPELLINGS = ("compat13.spellings",)


def feature_of(reference: str) -> str:
    """Return the feature that a reference is of."""
    return reference.partition(":")[0].partition(".")[0]


FEATURES = {feature for feature, _, _ in VERBS.values()} | {
    feature_of(reference)
    for references in (HANDLERS, FORMATS, ON_NODES, SCHEDULERS, BENCHFILES)
    for reference in (*references.values(), *SPELLINGS)
}


def features_left_out() -> frozenset[str]:
    """Return the features that MILABENCH_WITHOUT names, between commas."""
    return frozenset(filter(None, os.environ.get("MILABENCH_WITHOUT", "").split(",")))


def verbs_of(group: str) -> dict[str, str]:
    """Return the verbs that the features which take part add to a group, with their lines."""
    without = features_left_out()
    return {verb: line for verb, (feature, own, line) in VERBS.items() if own == group and feature not in without}


def missing(what: str) -> str:
    """Return that a handler, reference or feature needs its feature, where that is left out; empty where it takes part."""
    feature = feature_of(HANDLERS.get(what, what))
    return f"needs the feature {feature}, which MILABENCH_WITHOUT leaves out" if feature in features_left_out() else ""


def takes_part(what: str) -> bool:
    """Return whether the feature takes part of a handler, or a reference."""
    return not missing(what)


def require(reference: str, what: str) -> None:
    """Raise UsageError where the feature of a reference, or a feature, is left out that something needs."""
    if lacking := missing(reference):
        from milabench.errors import UsageError

        raise UsageError(f"{what} {lacking}")


def handler(option: str) -> Any:
    """Return what does what an option of the core says, as in HANDLERS. Raises UsageError where its feature is left out."""
    require(option, option)
    return resolved(HANDLERS[option])


def made_by(option: str, otherwise: T, *values: object, **named: object) -> T:
    """Return the result of the handler of an option for some values. `otherwise` where its feature is left out."""
    made: T = handler(option)(*values, **named) if takes_part(option) else otherwise
    return made


def spellings() -> list[Any]:
    """Return the modules that know spellings of other programs."""
    return [resolved(module) for module in SPELLINGS if takes_part(module)]


def module_on_nodes(what: str) -> str:
    """Return the module, below `milabench`, that agents run. Empty where its feature is left out."""
    return ON_NODES[what] if takes_part(ON_NODES[what]) else ""


def resolved(reference: str) -> Any:
    """Import the object of a reference: a name in a module, or a module."""
    import importlib

    module, _, name = reference.partition(":")
    imported = importlib.import_module(f"milabench.{module}")
    return getattr(imported, name) if name else imported
