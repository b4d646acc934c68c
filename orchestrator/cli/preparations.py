"""Which prepare.py have yet to run with these arguments, program and environment."""

from __future__ import annotations

from pathlib import Path, PurePath

from orchestrator.cli.environments import decide_install
from orchestrator.cli.inputs import Inputs
from orchestrator.errors import EnvironmentFailed
from orchestrator.plan.model import Plan, SkippedBench
from orchestrator.plan.prepare import (
    MARKERS,
    Preparation,
    marker_name,
    plan_prepare,
    prepare_digest,
    prepare_step,
)
from orchestrator.plan.run import Ready, preparation_of


def decide(inputs: Inputs, *, force: bool = False) -> Plan:
    """The preparations that have not passed with these arguments, program and environment."""
    data = Path(inputs.where.dirs.data)
    found = {path.relative_to(data).as_posix() for path in data.glob(f"*/{MARKERS}/*")}
    benches = [bench for bench in inputs.benches if bench.declared is not None]
    skipped = [
        SkippedBench(bench=bench.config.name, why="not fetched") for bench in inputs.benches if bench.declared is None
    ]
    return plan_prepare(preparations(inputs, benches), markers=found, force=force, skipped=skipped)


def preparations(inputs: Inputs, benches: list[Ready]) -> list[Preparation]:
    """The prepare steps with their markers."""
    digests = {}
    if inputs.where.current_env is None:
        digests = {bench: venv.digest for venv in decide_install(inputs).venvs for bench in venv.benches}
    found = []
    for bench in benches:
        assert bench.declared is not None
        if bench.declared.prepare is None:
            continue
        script = Path(bench.folder, bench.declared.prepare)
        if not script.is_file():
            raise EnvironmentFailed(
                f"{bench.config.name}: {script}: no such file; its benchfile says prepare.py stands there"
            )
        argv, env, cwd, venv, config = preparation_of(bench, inputs.where)
        step = prepare_step(
            bench.config.name,
            bench.declared,
            PurePath(bench.folder),
            argv=argv,
            env=env,
            venv=venv,
            cwd=cwd,
            python=inputs.where.current_python,
            config=config,
            timeout_s=bench.config.max_duration,
        )
        assert step is not None
        source = bench.declared.source.folder if bench.declared.source is not None else ""
        files = {path.name: path.read_bytes() for path in script.parent.glob("*.py")}
        digest = prepare_digest(step, files, venv=digests.get(bench.config.name, ""), source=source)
        found.append(Preparation(step=step, marker=marker_name(bench.config.name, digest)))
    return found
