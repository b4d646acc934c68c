"""Valid input, from which the mutated one is made, and what stands beside it: a suite, a benchmark, runs, criteria."""

from __future__ import annotations

import functools
import json
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import yaml

from milabench.events.model import Config
from tests.drawn_runs import HOSTILE
from tests.fuzz import wire
from tests.hostile_agent import Message
from tests.old_runs import nccl, old_run
from tests.recorded_run import Recorded, RecordedShare, data, message, rates, record, record_shares

ROOT = Path(__file__).resolve().parents[2]
SEEDS = Path(__file__).parent / "seeds"
BENCHFILE = (
    'from milabench import Benchmark\n\nbenchmark = Benchmark(script="main.py", voirfile=None, options={"extra": 1})\n'
)
SUITE = """
include: base.yaml
profile: quick
"*": {weight: 1.0}
_t: {inherits: _base, tags: [fine], argv: {--lr: 0.1, --batch-size: "auto_batch(8)", --out: "{milabench_extra}/o"}}
one: {inherits: _t, env: {A: "1"}, validation: {usage: {gpu_load_threshold: 0.5}}, argv: {--lr: !delete }}
two: {inherits: _t, plan: {method: njobs, n: 2}, argv: [a, "{arch}", "expr({gpu_count} * 2)"], tags: {append: [x]}}
ranks: {inherits: _t, plan: {method: multinode, launcher: torchrun}, num_machines: 2, requires_capabilities: ["len(nodes) >= 1"]}
sweep:
  matrix: {bs: [1, 2], kind: [a, b]}
  job: {name: "sweep-{bs}-{kind}", inherits: _t, argv: {--bs: "{bs}"}}
web: {inherits: _t, server: {argv: [serve, "@port"], ready: {port: "@port", timeout: 3}}, client: {argv: [load]}}
swept: {inherits: web, serve: {model: /m, concurrency: [1, 2], rate: 3, slo: {ttft_p90_ms: 9}, input_tokens: {least: 1, most: 9}}}
said: {command: [echo, "loss 1"], metrics: {loss: {pattern: 'loss (\\d+)', units: x, reduce: mean, direction: lower}}, cwd: .}
boxed: {inherits: _t, container: {engine: podman, image: i, mounts: ["/data:/d:ro"]}, pip: {torch: "2.1"}, url: "${.group}"}
"""
BASE = "_base: {definition: ../fixed/bench, group: g, install_group: v, max_duration: 60, voir: {options: {stop: 9, skip: 2}}}\n"
SYSTEM = """
system:
  arch: cuda
  sshkey: ~/.ssh/id
  gpu: {count: 2, capacity: 80 GiB, name: H100}
  cpu_count: 8
  sync: [venv, data]
  docker_image: "r/i:${system.arch}"
  container: {engine: docker, args: [--privileged]}
  dirs: {data: /d, cache: "${oc.env:HOME}/c"}
  options: {sizer: {auto: 1, mult: 2, save: s.yaml}, torchrun: {port: 29400}, cpu: {auto: true}}
  costs: {price: 1e6, currency: CAD, years: 4, power_W: 900, pue: 1.2, electricity: 0.1}
  nodes:
    - {name: a, ip: 10.0.0.1, main: true, user: u, port: 2222, memory: 1 TiB, python: python3.9, proxy_jump: "u@h:22"}
    - {name: b, ip: 10.0.0.2, gpu: {count: 1, capacity: 40 GiB}, base: /b}
multirun:
  runs:
    - {name: "bs{sizer.mult}.{time}", matrix: {sizer.auto: 1, sizer.mult: [0.5, 2]}}
"""
CRITERIA = """
title: new nodes
defaults: {confidence: 0.9, device_spread: 3 %}
required: [bert]
failure_rate: 1 %
benchmarks:
  bert: {minimum: 1.2 x reference, energy: 0.4 J/image, allow: [short]}
  whisper: {of: first_step, maximum: 3.5 s, required: false, confidence: none, failure_rate: 0}
"""
TENDER = """
title: pilot
suite: ../fixed/suite.yaml
metric: ssi
reference: {run: ../fixed/other, nodes: 64}
benchmarks:
  bert: {weight: 2, tiers: [as-is, ported, optimized], figure_of_merit: rate * 1.5, reference: {nodes: 1}}
  whisper: {required: false, capability: 4, reference: {value: 2 items/s, nodes: 2}, size: tiny, work: 3 TFLOP}
terms: {currency: EUR, years: 5, interest: 5 %, electricity: 0.12 +- 0.02 EUR/kWh, pue: 1.3 +- 0.05, upkeep: 6 %,
        grid_carbon: 350 g/kWh, embodied_carbon: 1200 kg, utilization: 80 % +- 10 %}
limits: {budget: 10 M EUR, power: [300 kW, 400 kW], ssi: 0.5}
"""
OFFER = """
vendor: A
system: A-1000
tender: pilot
nodes: 32
price: {node: 30 k EUR +- 2 %, fixed: 1 M EUR}
power: {node: 1.2 kW, level: L1}
phases: [{nodes: 8, months: 6, name: first}, {nodes: 32, months: 54}]
stack: {torch: 2.13, notes: [a, b]}
benchmarks:
  bert: {run: ../fixed/good, tier: ported, changes: [model.py]}
  whisper: {value: 3 items/s +- 5 %, nodes: 4, copies: 2}
"""
PARTS = """
vendor: B
nodes: 16
power: {parts: [{count: 2, power: 350 W}, {power: 3 kW, name: switch}], cooling: air}
benchmarks:
  bert: {run: [../fixed/good, ../fixed/other], nodes: 8, measured: false, bound: a simulation}
"""
COSTS = "price: 1000000\nyears: 4\npower_W: 900\npue: 1.2\nelectricity: 0.1\ncurrency: CAD\n"
WEIGHTS = "weights: {bert: 2.0, whisper: 1}\nwork: {bert: 1e6}\n"
TASKS = r"""
[DEFAULT]
num_gpus = 0
[one]
patterns = ['Speed: (\d+\.\d+|\d+) samples/sec', 'accuracy=(\d+\.\d+|\d+)']
metrics = ['speed', 'acc']
compute_method = ['average', 'last']
command_to_execute = cat fixed/train.log --gpus 8
num_gpus = 2
 [two]
 patterns = ['cost: (\d+\.\d+|\d+)']
 metrics = ['cost']
 compute_method = ['total']
 command_to_execute = echo cost: 1
"""
LOG = "".join(f"[Epoch {n}] Speed: {800 + n}.5 samples/sec accuracy=0.{n} cost: 69.{n}\n" for n in range(20))


@dataclass(frozen=True)
class Fixed:
    """The folder that commands see as `fixed`, and the valid inputs by kind."""

    folder: Path
    runs: tuple[Mapping[str, bytes], ...]
    archives: tuple[Mapping[str, bytes], ...]
    reports: tuple[Any, ...]
    baseline: Any
    imports: tuple[Mapping[str, bytes], ...]
    suites: tuple[Any, ...]
    suite_texts: tuple[bytes, ...]
    operators: tuple[Any, ...]
    traces: tuple[Any, ...]

    @functools.cached_property
    def messages(self) -> tuple[Message, ...]:
        """What a real agent says in a step."""
        return wire.record_messages()

    @functools.cached_property
    def answers(self) -> tuple[tuple[bytes, ...], ...]:
        """Answers of a model server: a head, and what follows it in pieces."""
        return wire.record_answers()

    @functools.cached_property
    def cluster(self) -> Mapping[str, bytes]:
        """What Slurm's commands print."""
        with tempfile.TemporaryDirectory() as folder:
            return wire.record_cluster(Path(folder))


def make(folder: Path) -> Fixed:
    """Write the folder."""
    from milabench.archives.bundle_runs import bundle_runs

    (folder / "bench").mkdir(parents=True)
    (folder / "bench" / "benchfile.py").write_text(BENCHFILE)
    (folder / "bench" / "main.py").write_text("print(1)\n")
    (folder / "bench" / "requirements.in").write_text("")
    texts = {
        "suite.yaml": SUITE,
        "base.yaml": BASE,
        "system.yaml": SYSTEM,
        "criteria.yaml": CRITERIA,
        "costs.yaml": COSTS,
    }
    texts |= {"weights.yaml": WEIGHTS, "tasks.cfg": TASKS, "train.log": LOG}
    texts |= {"procurement.yaml": TENDER, "offer.yaml": OFFER, "parts.yaml": PARTS}
    for name, text in texts.items():
        (folder / name).write_text(text)
    wire.write_commands(folder / "bin")
    runs = _runs(folder / "base")
    for name, run in zip(("good", "other"), runs, strict=False):
        (folder / name).symlink_to(run.relative_to(folder))
    for number, run in enumerate(runs[:2]):
        bundle_runs(folder / f"{number}.zip", folder / "base", (str(run),))
    reports = tuple(_answer("report", str(run), "--json") for run in runs)
    baseline = folder / "baseline.json"
    _answer("baseline", *map(str, runs[:2]), "-o", str(baseline), "--json")
    # Not the written report: its tags are values only for the reader of suites.
    suites = [_plain(text) for text in (SUITE, SYSTEM)]
    others = [path.read_text() for path in sorted((ROOT / "tests" / "suite").glob("*.yaml"))]
    suites += [_plain(text) for text in others]
    broken = [path.read_bytes() for path in sorted((ROOT / "tests" / "suite" / "broken").glob("*.yaml"))]
    configs = sorted((ROOT / "benchmarks" / "ops" / "configs").glob("*.json"))
    return Fixed(
        folder=folder,
        runs=tuple(_files(run) for run in runs),
        archives=tuple(_members(folder / f"{number}.zip") for number in range(2)),
        reports=reports,
        baseline=json.loads(baseline.read_text()),
        imports=_imports(folder / "foreign"),
        suites=tuple(suites),
        suite_texts=(SUITE.encode(), *(text.encode() for text in others), *broken),
        operators=tuple(json.loads(path.read_text()) for path in configs),
        traces=tuple(json.loads(path.read_text()) for path in sorted(SEEDS.glob("trace_*.json"))),
    )


def _plain(text: str) -> Any:
    """Return a suite as values that JSON has; our own tags are left out."""
    return yaml.safe_load(text.replace("!delete ", '"@own@"').replace("!delete,", '"@own@",'))


def _answer(*argv: str) -> Any:
    """Run a command of the program, and return the JSON that it prints."""
    from click.testing import CliRunner

    from milabench.cli.verbs import verbs

    done = CliRunner().invoke(verbs, argv, standalone_mode=False, catch_exceptions=False)
    return json.loads(done.stdout)


def _runs(base: Path) -> list[Path]:
    """Write runs of few records, with everything that a run may hold."""
    sample = {"memory": [900, 81559], "load": 0.5, "power_W": 400.0, "sm_clock_MHz": 1755, "temperature": 40}
    throttled = {**sample, "throttle": ["hw_thermal"]}
    seen = (
        *rates(100.0, 101.0, 102.0, time=3.0),
        data(task="main", gpudata={"0": sample}, time=2.0),
        data(task="main", gpudata={"0": throttled}, time=3.0),
        data(task="train", loss=0.5),
        data(metric="memory_reserved_peak", value=62000 * 2**20, units="B"),
        data(progress=[1, 3], task="early_stop"),
        message("a message"),
    )
    metrics = {"loss": {"pattern": r"loss (\d+)", "units": "x", "reduce": "mean"}}
    logged = Config(step="", data={"metrics": metrics, "measure": {"window_steps": 1, "window_s": 0}})
    good = record(
        base,
        Recorded(bench="bert", tag="D0", events=seen),
        Recorded(bench="bert", tag="D1", devices=(1,), events=seen, reasons=("throttled",)),
        Recorded(bench="bert", tag="D0", repeat=1, events=rates(99.0, 100.5)),
        Recorded(bench=HOSTILE, events=rates(5.0, units="items/s")),
        Recorded(
            bench="whisper", outcome="failed", why="out-of-memory", detail="79 of 80 GiB", stderr="no <b>luck</b>"
        ),
        Recorded(bench="llama", method="multinode", group="llama", node="a", events=rates(7.0)),
        Recorded(bench="llama", method="multinode", group="llama", node="b", events=rates(7.5)),
        name="good",
        skipped=[{"bench": "opt", "why": "needs 8 devices"}],
    )
    other = record(base, Recorded(bench="bert", tag="D0", events=rates(110.0, 111.0, 112.0)), name="other")
    driven = record(
        base, Recorded(bench="said", tag="0", events=(logged,), stderr="loss 3"), name="driven", is_ended=False
    )
    passed = RecordedShare(steps=(Recorded(bench="bert", tag="D0", events=seen),))
    stopped = Recorded(bench=HOSTILE, outcome="cancelled", events=rates(5.0, units="items/s"))
    timed_out = RecordedShare(steps=(stopped,), job="102", node="n2", result="time-limit", state="TIMEOUT")
    jobs = record_shares(base, passed, timed_out)
    return [good.path, other.path, driven.path, jobs.path]


def _files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def _members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def _imports(folder: Path) -> tuple[Mapping[str, bytes], ...]:
    """Return results of other programs: a run of milabench 1.3, the JSON of nccl-tests."""
    old = old_run(folder / "runs" / "old.2024-08-27_14:37:04.123456", "resnet50", rates=(300.0, 301.0, 299.0), lines=1)
    return {f"old/{name}": content for name, content in _files(old).items()}, {"nccl.json": json.dumps(nccl()).encode()}


def tar(name: str, content: bytes) -> bytes:
    """Return an archive of one file."""
    target = BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as file:
        info = tarfile.TarInfo(name)
        info.size = len(content)
        file.addfile(info, BytesIO(content))
    return target.getvalue()
