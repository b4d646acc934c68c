"""The verbs with their help texts, in groups: `--help` and completion import nothing else, least of all the verbs."""

from __future__ import annotations

PROGRAM = "milabench"
GROUPS = {
    "Measure": {
        "install": "Install the environments and programs of the selected benchmarks.",
        "prepare": "Download or generate the data and models of the selected benchmarks.",
        "run": "Run and measure the selected benchmarks.",
        "resume": "Resume an incomplete run, or rerun what failed in it.",
        "plan": "Show what install, prepare or run would do.",
        "size": "Find the largest batch size of a benchmark that fits.",
    },
    "Read results": {
        "report": "Report on runs.",
        "history": "Show a benchmark's trend over runs, and where its level changed.",
        "db": "Keep and query the results of many runs.",
        "import": "Convert results of milabench 1.3 and of nccl-tests into runs.",
        "export": "Write the results of runs to a Parquet file.",
        "bundle": "Create a tamper-evident archive of runs.",
        "verify": "Check that an archive has not been modified.",
    },
    "Compare and decide": {
        "compare": "Compare systems: which is faster, by how much, with what confidence.",
        "accept": "Check a run against acceptance criteria.",
        "baseline": "Compute what is expected of the nodes and devices of a fleet.",
        "outliers": "Find the nodes and devices that differ from a baseline.",
    },
    "Manage runs": {
        "runs": "List the runs with their verdicts.",
        "status": "Show a run's progress.",
        "logs": "Show a step's output.",
        "replay": "Replay a recorded run.",
        "cancel": "End an active run.",
        "cleanup": "Kill processes left by crashed runs.",
    },
    "Environment": {
        "list": "List the benchmarks of the suite.",
        "config": "Show, explain or check the suite's configuration.",
        "nodes": "Check the machines of a system.",
        "doctor": "Check whether this machine can run the suite.",
        "dev": "Open a shell, or run a command, in a benchmark's environment.",
    },
    "Tools": {
        "new": "Create a benchmark from a template.",
        "pin": "Write the lock files of the selected benchmarks.",
        "driver": "Run a task of a .cfg file and extract its metrics from its log.",
        "timing-audit": "Show how the method of timing a model's call changes the result.",
        "ops": "Time operators, record and replay execution traces.",
        "completion": "Print a shell's completion script.",
    },
}
COMMANDS = {verb: text for verbs in GROUPS.values() for verb, text in verbs.items()}
