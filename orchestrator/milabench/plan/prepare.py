"""Which prepare.py must run before the benchmarks can: a step each, and the marker of its completion."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from urllib.parse import quote

from milabench.bench.api import Benchmark, ForeignBenchmark
from milabench.plan.canonical import digest
from milabench.plan.container import containerized
from milabench.plan.context import NodeBenchmark
from milabench.plan.environ import program_environment, started_environment
from milabench.plan.model import Plan, SkippedBench, Step
from milabench.plan.placeholders import names_for
from milabench.plan.render import AUTO_BATCH, render_benchmark
from milabench.plan.step import bench_config
from milabench.redaction import secret_names

ALREADY_PREPARED = "already prepared"
MARKERS = ".prepared"
SETTINGS = "MILABENCH_CONFIG"
"""The variable in which a program finds the settings of its benchmark, as JSON."""
_NOT_OF_DATA = frozenset({"voir", "weight", "tags", "max_duration", "validation", "validations", "enabled", "system"})
OWN_DATA = ".milabench"
"""The folder next to the data of benchmarks that records which data milabench made, and their users."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """A prepare step and the file that exists, on its node, once it passed. `portable` is the digest that it has on any base."""

    step: Step
    marker: str
    portable: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Identifies it: node and marker."""
        return self.step.node, self.marker


def has_preparation(declared: Benchmark) -> bool:
    """Return whether anything prepares a benchmark."""
    return declared.prepare is not None or (isinstance(declared, ForeignBenchmark) and bool(declared.preparing))


def prepare_step(bench: NodeBenchmark, *, rank: int | None = None) -> Step | None:
    """Return the step that runs the benchmark's prepare.py in its venv with the run's arguments. None without a prepare.py.

    `rank` is the number of the node, where there are several. Raises ConfigError for unresolved values.
    """
    config, declared = bench.config, bench.declared
    preparing = declared.preparing.get(bench.node.name) if isinstance(declared, ForeignBenchmark) else None
    if declared.prepare is None and preparing is None:
        return None
    # Data does not depend on the batch size, so one preparation does for every size.
    names = {name: value for name, value in names_for(bench).items() if name != AUTO_BATCH}
    rendered = render_benchmark(
        config,
        names,
        command=None if preparing is None else preparing.words,
        flags=frozenset(declared.flags),
        is_preparation=True,
    )
    own = {**started_environment(bench, preparing), **rendered.env}
    env = program_environment(bench, own)
    # Of prepare.py only: in front of a program that is somebody else's, a module of ours could hide one of its own.
    env["PYTHONPATH"] = ":".join(filter(None, (env["PYTHONPATH"], bench.modules)))
    suffix = "" if rank is None else f".node{rank}"
    step = Step(
        id=f"{config.name}{suffix}",
        bench=config.name,
        phase="prepare",
        argv=rendered.command
        if declared.prepare is None or preparing is not None
        else (bench.python, str(PurePath(bench.folder, declared.prepare)), *rendered.arguments),
        stem=quote(config.name, safe="+") + suffix,
        group=config.name,
        node=bench.node.name,
        env=env,
        secret_env=secret_names(env),
        cwd=bench.prepare_cwd if preparing is None else preparing.cwd,
        venv=bench.venv,
        config=bench_config(bench, rendered),
        timeout_s=config.max_duration,
        needs_data=False,
        keep_step_dir=config.keep_step_dir,
    )
    return containerized(step, bench)


def prepare_digest(
    step: Step, files: Mapping[str, bytes], *, venv: str = "", source: str = "", places: Mapping[str, str] | None = None
) -> str:
    """Return the sha256 over all inputs of a preparation's result.

    `files` are those that it is made of (the Python files of the benchmark's folder and of the modules that it shares),
    `venv` the digest of the environment, `source` the revision of the fetched program. The configuration and limits of the
    step are left out: they do not reach the data, except through argv, env and inputs of a sweep. `places` are folders of
    this machine with names that they have on every machine: with them the digest is the same below another base.
    """
    named = sorted((places or {}).items(), key=lambda place: -len(place[0]))  # a folder before the one that holds it

    def anywhere(text: str) -> str:
        for folder, name in named:
            text = text.replace(folder, name)
        return text

    sweep = step.config.get("serve", {})
    read = {name: anywhere(sweep[name]) for name in ("model", "tokenizer", "trace") if sweep.get(name)}
    return digest(
        {
            "argv": [anywhere(word) for word in step.argv],
            "env": {
                name: anywhere(_decisive(name, value)) for name, value in step.env.items() if not value.startswith("@")
            },
            "cwd": anywhere(step.cwd),
            "options": step.config.get("options", {}),
            **({"serve": read} if read else {}),
            "files": {name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())},
            "venv": venv,
            "source": source,
        }
    )


def _decisive(name: str, value: str) -> str:
    """Return the part of a variable that reaches the data: a benchmark's settings without measuring, checks and placement."""
    try:
        settings = json.loads(value) if name == SETTINGS else None
    except ValueError:
        return value
    if not isinstance(settings, dict):
        return value
    return json.dumps({key: settings[key] for key in sorted(settings) if key not in _NOT_OF_DATA})


def marker_name(bench: str, prepared: str) -> str:
    """Return the marker, below the folder of the data, for the digest of `prepare_digest`: next to them, to go with them."""
    return f"{bench}/{MARKERS}/{prepared[:16]}"


def data_mark(data: Path, bench: str) -> Path:
    """Return the mark that milabench made the folder of a benchmark's data. Without it, the folder is somebody's own."""
    return data / OWN_DATA / f"{bench}.made"


def data_lock(data: Path, bench: str) -> Path:
    """Return the file whose lock the users of a benchmark's data hold."""
    return data / OWN_DATA / f"{bench}.lock"


def plan_prepare(
    preparations: Sequence[Preparation],
    *,
    markers: Collection[tuple[str, str]] = (),
    force: bool = False,
    skipped: Sequence[SkippedBench] = (),
    system: Mapping[str, object] | None = None,
) -> Plan:
    """Return the preparations still to do: those whose key is not among `markers`, or all with `force`; the others are skipped.

    Benchmarks are prepared in sequence, each on all of its nodes at the same time.
    """
    todo = [preparation for preparation in preparations if force or preparation.key not in markers]
    done = [
        SkippedBench(bench=passed.step.bench, why=ALREADY_PREPARED) for passed in preparations if passed not in todo
    ]
    return Plan(
        phase="prepare",
        steps=tuple(preparation.step for preparation in todo),
        skipped=(*skipped, *done),
        system=dict(system or {}),
    )
