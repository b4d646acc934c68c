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

HIDDEN = ""
"""The group of verbs that other programs call: neither listed nor completed."""
# feature -> group on the page of `milabench --help-all` -> verb, of one or two words -> its line there;
# `<feature>/<verb>_command.py` has the command
VERBS: dict[str, dict[str, dict[str, str]]] = {
    "quickstart": {"Set up": {"quickstart": "Install, prepare, run and report a small suite"}},
    "scaffold": {
        "Set up": {
            "init": "Copy the shipped suites and benchmarks, to edit them",
            "new": "Create a benchmark from a template",
        }
    },
    "pinning": {"Set up": {"pin": "Write the lock files of benchmarks from their requirements"}},
    "doctor": {
        "Set up": {
            "doctor": "Check whether this machine can run a suite",
            "nodes": "Check the machines of a system",
        }
    },
    "listing": {"Set up": {"list": "List the benchmarks of a suite"}},
    "following": {
        "Follow and manage runs": {
            "runs": "List runs with their verdicts",
            "status": "Show the progress of a run",
            "logs": "Show the output of a step",
            "replay": "Replay a recorded run",
            "cancel": "End an active run",
        }
    },
    "suite_check": {"Set up": {"config": "Show, explain or check the configuration of a suite"}},
    "dev": {
        "Set up": {"dev": "Open a shell or run a command in a benchmark's environment"},
        "Measure": {"ops": "Time operators, record and replay execution traces"},
    },
    "jobs": {HIDDEN: {"job": "Carry out a share of a run, inside the job that was submitted for it"}},
    "capsule": {"Set up": {"capsule": "Pack a suite with all it needs, for machines without a network"}},
    "compat13": {"Set up": {"import-suite": "Turn benchmarks of milabench 1.3 into ours"}},
    "images": {"Set up": {"image": "Write the recipe of a container image"}},
    "bench_command": {"Measure": {"bench": "Measure any command, or compare several"}},
    "own_program": {"Measure": {"try": "Measure a program of your own for half a minute, as it is"}},
    "batch_size": {"Measure": {"size": "Find the largest batch size that fits"}},
    "driver": {"Measure": {"driver": "Run a task of a .cfg file and extract metrics from its log"}},
    "ci": {"Measure": {"ci": "Do the steps of a build server's job: doctor to exit code"}},
    "timing_audit": {"Measure": {"timing-audit": "Compare methods of timing the calls of a model"}},
    "acceptance": {"Report, compare and decide": {"accept": "Check a run against acceptance criteria"}},
    "procurement": {
        "Report, compare and decide": {
            "accept plan": "Plan the repeats that acceptance criteria take",
            "accept recheck": "Check a run against the accepted run",
            "accept looks": "Check a growing run repeat by repeat",
            "offer": "Pack, verify and compare offers to a tender",
            "tender": "Check a tender, explain every number of a score",
            "budget": "Number of nodes that match a system, a budget or a power",
            "project": "Project measured nodes or devices to larger counts",
            "import-meter": "Add a power meter's readings to a run",
        }
    },
    "fleet": {
        "Report, compare and decide": {
            "baseline": "Compute the expected numbers of a fleet's machines",
            "outliers": "Find the nodes and devices that differ from a baseline",
        }
    },
    "archives": {
        "Report, compare and decide": {
            "bundle": "Create a tamper-evident archive of runs",
            "verify": "Verify an archive of runs",
        }
    },
    "hangs": {"Follow and manage runs": {"stacks": "Show where a step's processes are, and who waits for whom"}},
    "garbage": {
        "Follow and manage runs": {
            "gc": "Show the disk space of a base, and remove unused files",
            "gc processes": "Kill processes left by crashed runs",
        }
    },
    "history": {
        "Report, compare and decide": {
            "history": "Show the trend of a benchmark over runs",
            "db": "Keep and query the results of many runs",
            "import": "Convert results of other programs into runs",
            "export": "Write results for Parquet, Prometheus or OpenTelemetry",
        }
    },
}
# what the core hands over, mostly an option of a command -> (the feature that does it, the function)
HANDLERS = {
    "answers": ("answers", "answers.vote:judged_by_answers"),
    "accept": ("acceptance", "acceptance.accept_runs:accept_run"),
    "answers of a reference": ("answers", "answers.reference:compared_with"),
    "accept --every": ("procurement", "procurement.recheck_calendar:recheck_note"),
    "report --format xlsx": ("workbooks", "workbooks.xlsx:render"),
    "compare --format xlsx": ("workbooks", "workbooks.xlsx:render_comparison"),
    "compare --tender": ("procurement", "procurement.comparison_by_tender:score_by_tender"),
    "compute use": ("compute_use", "compute_use.compute_use:with_compute_use"),
    "peaks of a reference": ("compute_use", "compute_use.compute_use:with_peaks_of"),
    "driver": ("driver", "driver.suite_tasks:with_task"),
    "driver: task file": ("driver", "driver.tasks:parse_tasks"),
    "meters": ("procurement", "procurement.run_expenses:with_energy"),
    "meters of a bundle": ("procurement", "procurement.run_expenses:metered_benches"),
    "report --tender": ("procurement", "procurement.run_expenses:with_expenses_of_runs"),
    "schema acceptance": ("acceptance", "acceptance.criteria:criteria_schema"),
    "schema offer": ("procurement", "procurement.offer:offer_schema"),
    "schema tender": ("procurement", "procurement.tender:tender_schema"),
    "verify --offer": ("procurement", "procurement.offer_command:show_verified_offer"),
    "new --from FOLDER": ("compat13", "compat13.import_suite_command:new_from_folder"),
    "new --from PROGRAM": ("own_program", "own_program.new_from_program:new_from_program"),
    "report --from-db": ("history", "history.results_store:stored_summaries"),
    "a bundle": ("archives", "archives.opened_bundles:bundled_report"),
    "records of a bundle": ("archives", "archives.opened_bundles:opened_bundle"),
    "the suite of a capsule": ("capsule", "capsule.contents:unpacked_digest"),
    "--engine slurm": ("slurm", "slurm.run_nodes:hold_nodes"),
    "nodes still held": ("slurm", "slurm.run_nodes:jobs_that_hold"),
    "give nodes back": ("slurm", "slurm.run_nodes:give_back"),
    "claim recorded nodes": ("slurm", "slurm.run_nodes:claim_recorded"),
    "dead requests for nodes": ("slurm", "slurm.held_nodes:requests_of_dead_processes"),
    "end a request": ("slurm", "slurm.held_nodes:end_request"),
    "script that holds nodes": ("slurm", "slurm.held_nodes:holder_script"),
    "nodes of a partition": ("slurm", "slurm.jobs:nodes_of_partition"),
    "scheduler here": ("slurm", "slurm.srun:scheduler_here"),
    "transport srun": ("slurm", "slurm.srun:connect_srun"),
    "loss of a job": ("slurm", "slurm.srun:describe_job_loss"),
    "install partition": ("slurm", "slurm.install_partition:run_in_install_partition"),
    "doctor: slurm": ("slurm", "slurm.findings:check_slurm"),
    "attach to a run": ("following", "following.run_view:attach_to_run"),
    "run --submit": ("jobs", "jobs.submission:for_jobs"),
    "jobs of a run": ("jobs", "jobs.job_runs:submit_runs"),
    "scripts of jobs": ("jobs", "jobs.job_scripts:job_scripts"),
    "resume of jobs": ("jobs", "jobs.job_runs:resume_jobs"),
    "cancel of jobs": ("jobs", "jobs.job_runs:cancel_jobs"),
    "ends of jobs": ("jobs", "jobs.follow_jobs:ask_about"),
    "install --from": ("capsule", "capsule.install:install_from"),
    "report --site": ("site", "site.write:write_site"),
    "serve": ("sweeps", "sweeps.suite_check:is_whole_sweep"),
    "serve.trace": ("sweeps", "sweeps.suite_check:check_conversations"),
    "curves: fold": ("sweeps", "sweeps.fold:SweepFold"),
    "curves: launches": ("sweeps", "sweeps.launches:over_launches"),
    "curves: messages": ("sweeps", "sweeps.curve:curve_messages"),
    "curves: comparison": ("sweeps", "sweeps.comparison:compare_curves"),
    "curves: tables": ("sweeps", "sweeps.report:blocks_of_curves"),
    "curves: page": ("sweeps", "sweeps.page:curve_content"),
    "curves: test case": ("sweeps", "sweeps.tables:case_of_curve"),
    "criteria on curves": ("sweeps", "sweeps.curve_numbers:curve_number"),
    "hangs": ("hangs", "hangs.judgement:hang_sentence"),
}
# name of a format of reports -> (the feature that writes it, the module that does: a `Renderer` of report/registry.py)
FORMATS = {
    "html": ("pages", "pages"),
    "junit": ("ci", "ci.junit"),
}
# what agents on nodes run for a feature -> the feature, the module; its folder goes to the nodes with the agent
ON_NODES = {
    "collector": ("hangs", "hangs.on_node.collecting"),
}
# name in `system.engine`, manifests and journals -> the feature that is the batch scheduler, and its `JobSystem`
SCHEDULERS = {
    "slurm": ("slurm", "slurm.jobs:SLURM"),
}
# name that a benchfile of another system assigns at module level -> (the feature that understands it, the module that reads it)
BENCHFILES = {
    "__pack__": ("compat13", "compat13.milabench13"),
}
# what people type for another program, as ours: a feature, and the module that knows
SPELLINGS = (("compat13", "compat13.spellings"),)
FEATURES = frozenset(VERBS) | {
    feature
    for feature, _ in (
        *HANDLERS.values(),
        *FORMATS.values(),
        *SCHEDULERS.values(),
        *ON_NODES.values(),
        *BENCHFILES.values(),
        *SPELLINGS,
    )
}


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


def require(feature: str, what: str) -> None:
    """Raise UsageError where a feature is left out that something needs."""
    if feature in features_left_out():
        from milabench.errors import UsageError

        raise UsageError(f"{what} {_needs(feature)}")


def _needs(feature: str) -> str:
    return f"needs the feature {feature}, which MILABENCH_WITHOUT leaves out"


def spellings() -> list[Any]:
    """Return the modules that know what people type for other programs."""
    without = features_left_out()
    return [resolved(module) for feature, module in SPELLINGS if feature not in without]


def takes_part(what: str) -> bool:
    """Return whether the feature takes part that a handler is of."""
    return HANDLERS[what][0] not in features_left_out()


def module_on_nodes(what: str) -> str:
    """Return the module, below `milabench`, that agents run; empty where its feature is left out."""
    feature, module = ON_NODES[what]
    return "" if feature in features_left_out() else module


def folders_on_nodes() -> list[str]:
    """Return the folders, below `milabench`, that go to the nodes with the agent."""
    return sorted(
        {module.rpartition(".")[0].replace(".", "/") for what in ON_NODES if (module := module_on_nodes(what))}
    )


def missing(what: str) -> str:
    """Return that a handler needs its feature, where that is left out; empty where it takes part."""
    return "" if takes_part(what) else _needs(HANDLERS[what][0])


def handler(option: str) -> Callable[..., Any]:
    """Return the function that does what an option of the core says. Raises UsageError where its feature is left out."""
    feature, reference = HANDLERS[option]
    require(feature, option)
    function = resolved(reference)
    assert callable(function)
    return function


def format_module(name: str) -> object:
    """Return the module that writes a format of reports. Raises UsageError where its feature is left out."""
    feature, module = FORMATS.get(name, ("", f"report.{name}"))
    require(feature, f"--format {name}")
    return resolved(module)


def resolved(reference: str) -> object:
    """Import what a reference names: something in a module, or a module."""
    import importlib

    module, _, name = reference.partition(":")
    imported = importlib.import_module(f"milabench.{module}")
    return getattr(imported, name) if name else imported
