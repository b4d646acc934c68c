"""Which prepare.py must run before the benchmarks can: one step each, and the marker that says it was done."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from milabench.bench.api import Benchmark
from milabench.plan.environ import secret_names
from milabench.plan.model import Plan, SkippedBench, Step, digest

ALREADY = "already prepared"
MARKERS = ".prepared"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """A prepare step and the file that exists, on its node, once it passed."""

    step: Step
    marker: str

    @property
    def key(self) -> tuple[str, str]:
        """What tells it from all others: node and marker."""
        return self.step.node, self.marker


def prepare_step(
    bench: str,
    benchmark: Benchmark,
    definition: PurePath,
    *,
    argv: Sequence[str],
    env: Mapping[str, str],
    venv: str,
    cwd: str,
    python: str | None = None,
    config: Mapping[str, Any] | None = None,
    timeout_s: float | None = None,
    node: str = "local",
    rank: int | None = None,
) -> Step | None:
    """The step that runs the benchmark's prepare.py in its venv with the run's arguments; None when it has none to run.

    `argv` and `env` are those of the run, already rendered; `venv` is the environment's folder; `python` its interpreter, where
    that is not `bin/python`; `rank` the number of the node, where there are several.
    """
    if benchmark.prepare is None:
        return None
    suffix = "" if rank is None else f".node{rank}"
    return Step(
        id=f"{bench}{suffix}",
        bench=bench,
        phase="prepare",
        argv=(python or f"{venv}/bin/python", str(definition / benchmark.prepare), *argv),
        stem=quote(bench, safe="+") + suffix,
        group=bench,
        node=node,
        env=dict(env),
        secret_env=secret_names(env),
        cwd=cwd,
        venv=venv,
        config=dict(config or {}),
        timeout_s=timeout_s,
        needs_data=False,
    )


def prepare_digest(step: Step, files: Mapping[str, bytes], *, venv: str = "", source: str = "") -> str:
    """sha256 over all that decides what a preparation makes.

    `files` are those that it is made of (the Python files of the benchmark's folder), `venv` the digest of the
    environment, `source` the revision of the fetched program. The configuration and limits of the step are left out:
    they do not reach the data, except through argv and env.
    """
    return digest(
        {
            "argv": step.argv,
            "env": {name: value for name, value in step.env.items() if not value.startswith("@")},
            "cwd": step.cwd,
            "options": step.config.get("options", {}),
            "files": {name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())},
            "venv": venv,
            "source": source,
        }
    )


def marker_name(bench: str, prepared: str) -> str:
    """The marker, below the folder of the data, for the digest of `prepare_digest`: beside them, to go with them."""
    return f"{bench}/{MARKERS}/{prepared[:16]}"


def plan_prepare(
    preparations: Sequence[Preparation],
    *,
    markers: Collection[tuple[str, str]] = (),
    force: bool = False,
    skipped: Sequence[SkippedBench] = (),
    system: Mapping[str, Any] | None = None,
) -> Plan:
    """The preparations still to do: those whose key is not among `markers`, or all with `force`; the others are skipped.

    Benchmarks are prepared one after the other, each on all of its nodes at the same time.
    """
    todo = [each for each in preparations if force or each.key not in markers]
    done = [SkippedBench(bench=each.step.bench, why=ALREADY) for each in preparations if each not in todo]
    return Plan(
        phase="prepare",
        steps=tuple(replace(each.step, group=each.step.group or each.step.id) for each in todo),
        skipped=(*skipped, *done),
        system=dict(system or {}),
    )
