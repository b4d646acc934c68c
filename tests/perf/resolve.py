"""What it costs to resolve a suite of 10,000 jobs, to plan it, and to hash the plan: CPU, over a bare event and append.

    python tests/perf/resolve.py

Also how that grows with the suite, its memory, and how it compares with OmegaConf job by job: the reference system merges and
resolves the configuration of every job with OmegaConf, which is what is timed here, for a sample of the jobs. Each repetition
is a process of its own, with the garbage collector as the commands set it.
"""

from __future__ import annotations

import gc
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rows import ROOT, Row, in_yardsticks, show, yardstick_ns

ROUNDS = 7
JOBS, FEW = 10_000, 1_000
SAMPLE = 200
EVENT = "a bare event and append"
GOALS_S = {"resolve": 1.0, "plan": 1.0, "hash": 0.2}
MEMORY_MB = 300
UNMET = {
    "resolve": "no part of a job takes more than an eighth any more (merging with its template, counting its values, putting in "
    "those of the matrix, making the value)",
    "plan": "placing, rendering, command, environment and configuration of a step are spread over forty functions, of which "
    "only the arguments take a fifth; what is left is to derive one job's step from another's, which is not worth its rules",
    "hash": "three fifths are to read a step's fields, to make them JSON by msgspec (1.9 kB) and to hash that; the rest looks "
    "for secrets, which no record may hold",
}

SUITE = """
_defaults:
  max_duration: 600
  install_variant: ${{system.arch}}
  voir:
    options: {{stop: 60, interval: "1s"}}
  validation:
    usage: {{gpu_load_threshold: 0.5, gpu_mem_threshold: 0.5}}
  num_machines: 1
  requires_capabilities:
    - "len(nodes) >= ${{..num_machines}}"

_torchvision:
  inherits: _defaults
  definition: benchmarks/torchvision
  group: torchvision
  install_group: torch
  tags: [vision]
  plan: {{method: per_gpu}}
  argv:
    --precision: tf32-fp16
    --lr: 0.01
    --no-stdout: true
    --epochs: 50
    --num-workers: "auto({{n_worker}}, 8)"
    --loader: pytorch
    --data: "{{milabench_data}}/FakeImageNet"

_resnet50:
  inherits: _torchvision
  tags: [classification, convnet, resnet]
  voir: {{options: {{stop: 30}}}}
  argv: {{--model: resnet50, --loader: synthetic}}

resnet:
  matrix:
    batch-size: [{batch_sizes}]
    workers: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    lr: [{rates}]
  job:
    name: "resnet50-bs{{batch-size}}-w{{workers}}-lr{{lr}}"
    inherits: _resnet50
    tags: [sweep]
    argv:
      --batch-size: "{{batch-size}}"
      --num-workers: "{{workers}}"
      --lr: "{{lr}}"
"""


def written(folder: Path, jobs: int) -> Path:
    """A suite of that many jobs: a multiple of 100."""
    sizes = ", ".join(str(8 * (number + 1)) for number in range(10))
    rates = ", ".join(f"0.{number:05d}1" for number in range(jobs // 100))
    path = folder / f"suite-{jobs}.yaml"
    path.write_text(SUITE.format(batch_sizes=sizes, rates=rates), encoding="utf-8")
    return path


class Timed:
    """CPU seconds of what was called, by name, each beside the yardstick of its moment."""

    def __init__(self) -> None:
        gc.set_threshold(COLLECT_AFTER)
        self.seconds: dict[str, float] = {}
        self.yardsticks: dict[str, float] = {}

    def call(self, name: str, function: Callable[[], Any]) -> Any:
        self.yardsticks[name] = yardstick_ns()
        started = time.process_time()
        result = function()
        self.seconds[name] = time.process_time() - started
        return result


def costs(path: Path) -> dict[str, Any]:
    """What the suite costs, imports left out: to resolve it, to plan it on one node with one accelerator, to hash the plan."""
    import msgspec.json  # noqa: F401

    from milabench.bench.api import Benchmark
    from milabench.config.read import read_suite
    from milabench.facts.model import Device, Node, SystemFacts
    from milabench.plan.context import PlanContext, ResolvedBenchmark, dirs_under
    from milabench.plan.profile import PROFILES
    from milabench.plan.run import plan_run

    timed = Timed()
    suite = timed.call("resolve", lambda: read_suite([path], env={}, detected_arch="cuda"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    node = Node(cpu_count=8, devices=(Device(index=0, uuid="0", name="accelerator", arch="cuda"),))
    where = PlanContext(
        facts=SystemFacts(arch="cuda", nodes=(node,)),
        system=suite.system,
        dirs=dirs_under("/base", {}),
        profile=PROFILES["quick"],
    )
    program = Benchmark(script="main.py")
    benches = [
        ResolvedBenchmark(config=bench, folder="/folder", declared=program) for bench in suite.benchmarks.values()
    ]
    plan = timed.call("plan", lambda: plan_run(benches, where))
    assert timed.call("hash", lambda: plan.hash)
    return {
        "jobs": len(suite.benchmarks),
        "seconds": timed.seconds,
        "ratios": {name: seconds * 1e9 / timed.yardsticks[name] for name, seconds in timed.seconds.items()},
        "peak_B": peak,
    }


def omegaconf(path: Path, sample: int) -> dict[str, Any]:
    """CPU seconds per job for merging a job with its three ancestors and resolving it, all of it in OmegaConf."""
    import yaml
    from omegaconf import OmegaConf

    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    job = content["resnet"]["job"]
    system = {"system": {"arch": "cuda"}}
    chain = [content[name] for name in ("_defaults", "_torchvision", "_resnet50")]
    started = time.process_time()
    for number in range(sample):
        own = {**job, "name": f"job{number}", "argv": {**job["argv"], "--batch-size": str(number)}}
        merged = OmegaConf.merge(*[OmegaConf.create(layer) for layer in (system, *chain, own)])
        OmegaConf.to_container(merged, resolve=True)
    return {"seconds_per_job": (time.process_time() - started) / sample}


def measured(what: str, path: Path) -> dict[str, Any]:
    """One measurement in a process of its own."""
    command = [sys.executable, str(Path(__file__).resolve()), what, str(path)]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    result: dict[str, Any] = json.loads(answer.stdout)
    return result


def rows_of(many: list[dict[str, Any]], few: list[dict[str, Any]], omegaconf_s: float) -> list[Row]:
    """The rows of the table, from one measurement a round of each size."""

    def seconds(name: str) -> list[float]:
        return [one["seconds"][name] for one in many]

    shown = {name: f"{statistics.median(seconds(name)):.2f} s" for name in GOALS_S}
    what = {"resolve": f"resolve a suite of {JOBS:,} jobs", "plan": "plan it", "hash": "the hash of its plan"}
    rows = [
        Row(
            f"{what[name]}, CPU",
            EVENT,
            tuple(one["ratios"][name] for one in many),
            in_yardsticks(goal),
            shown[name],
            unmet=UNMET[name],
        )
        for name, goal in GOALS_S.items()
    ]
    growth = [one / other["seconds"]["resolve"] for one, other in zip(seconds("resolve"), few, strict=True)]
    faster = [omegaconf_s * JOBS / one for one in seconds("resolve")]
    peaks = [one["peak_B"] / 1e6 for one in many]
    return [
        *rows,
        Row(f"resolve {JOBS:,} jobs, CPU", f"{FEW:,} jobs", tuple(growth), 12, shown["resolve"]),
        Row(
            "merge and resolve job by job in OmegaConf, CPU",
            "all of ours",
            tuple(faster),
            15,
            f"{omegaconf_s * 1e6:.0f} us and {statistics.median(seconds('resolve')) / JOBS * 1e6:.0f} us a job",
            more_is_better=True,
        ),
        Row(
            f"peak memory of resolving {JOBS:,} jobs",
            f"{MEMORY_MB} MB",
            tuple(peak / MEMORY_MB for peak in peaks),
            1.0,
            f"{statistics.median(peaks):.0f} MB",
        ),
    ]


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as name:
        small, large = written(Path(name), FEW), written(Path(name), JOBS)
        pairs = [(measured("costs", large), measured("costs", small)) for _ in range(ROUNDS)]
        reference = measured("omegaconf", small)["seconds_per_job"]
    show(rows_of([many for many, _ in pairs], [few for _, few in pairs], reference))


if __name__ == "__main__":
    if len(sys.argv) == 3:
        from milabench.cli import COLLECT_AFTER

        target = Path(sys.argv[2])
        measures = {"costs": costs, "omegaconf": lambda path: omegaconf(path, SAMPLE)}
        print(json.dumps(measures[sys.argv[1]](target)))
    else:
        main()
