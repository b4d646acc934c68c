"""What resolving a suite costs: prints how it grows with the suite, how it compares with OmegaConf job by job, and
its memory.

    python tests/perf/resolve.py

Every figure comes from this one run, so that ratios mean something on any machine. Each size is resolved in a
process of its own. The reference system merges and resolves the configuration of every job with OmegaConf; that is
what is timed here as OmegaConf, for a sample of the jobs.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

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


def ours(path: Path) -> dict[str, Any]:
    """CPU seconds for reading and resolving the suite, imports left out, and the peak memory of the process in MiB."""
    from milabench.config.read import read_suite

    started = time.process_time()
    suite = read_suite([path], env={}, detected_arch="cuda")
    elapsed = time.process_time() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"jobs": len(suite.benchmarks), "seconds": elapsed, "peak_MiB": peak}


def planned(path: Path) -> dict[str, Any]:
    """CPU seconds for the plan of the suite, and for its hash, on one node with one accelerator."""
    from milabench.bench.api import Benchmark
    from milabench.config.read import read_suite
    from milabench.facts.model import Device, Node, SystemFacts
    from milabench.plan.context import PlanContext, ResolvedBenchmark, dirs_under
    from milabench.plan.profile import PROFILES
    from milabench.plan.run import plan_run

    suite = read_suite([path], env={}, detected_arch="cuda")
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
    started = time.process_time()
    plan = plan_run(benches, where)
    made = time.process_time()
    assert plan.hash
    return {"steps": len(plan.steps), "seconds": made - started, "hash_seconds": time.process_time() - made}


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
    answer = subprocess.run(
        command, check=True, capture_output=True, text=True, cwd=Path(__file__).resolve().parents[2]
    )
    result: dict[str, Any] = json.loads(answer.stdout)
    return result


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as name:
        small, large = written(Path(name), 1_000), written(Path(name), 10_000)
        thousand = min((measured("ours", small) for _ in range(3)), key=lambda one: one["seconds"])
        ten_thousand = min((measured("ours", large) for _ in range(2)), key=lambda one: one["seconds"])
        plan = min((measured("planned", large) for _ in range(2)), key=lambda one: one["seconds"])
        reference = measured("omegaconf", small)["seconds_per_job"]
    per_job = ten_thousand["seconds"] / ten_thousand["jobs"]
    print(f"resolve 1,000 jobs            {thousand['seconds']:.3f} s")
    print(f"resolve 10,000 jobs           {ten_thousand['seconds']:.3f} s   {per_job * 1e6:.0f} us a job")
    print(
        f"10,000 over 1,000             {ten_thousand['seconds'] / thousand['seconds']:.1f}x   (promised: at most 12x)"
    )
    times = plan["seconds"] / ten_thousand["seconds"]
    print(
        f"plan {plan['steps']:,} steps             {plan['seconds']:.3f} s   and {plan['hash_seconds']:.3f} s for its hash"
    )
    print(f"planning over resolving       {times:.1f}x   (promised: at most 2x)")
    print(f"OmegaConf, job by job         {reference * 1e6:.0f} us a job")
    print(f"ours against OmegaConf        {reference / per_job:.1f}x faster   (promised: at least 15x)")
    print(f"peak memory at 10,000 jobs    {ten_thousand['peak_MiB']:.0f} MiB   (promised: under 300 MB)")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
        target = Path(sys.argv[2])
        measures = {"ours": ours, "planned": planned, "omegaconf": lambda path: omegaconf(path, 200)}
        print(json.dumps(measures[sys.argv[1]](target)))
    else:
        main()
