"""Offers written down in a test: the tender's own suite, vendors' copies of it, runs of these, the files that name them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from milabench.archives.bundle_runs import LOCK_FILES
from milabench.events.rundir import Run
from milabench.procurement.offer_archives import create_offer
from milabench.workflow.context import read_context
from milabench.workflow.options import CollectingReporter, Session, SuiteOptions
from milabench.workflow.planning import suite_values
from milabench.workflow.saved_options import program_digests
from tests.recorded_run import SYSTEM, Recorded, data, rates, record

SUITE = """\
profile: default
_it: {install_variant: cpu, weight: 1.0, plan: {method: per_gpu}}
bert: {inherits: _it, definition: bert, argv: {--batch-size: 8, --hidden: 64}}
llama: {inherits: _it, definition: llama, argv: {--batch-size: 4}}
"""
BENCHFILE = 'from milabench import Benchmark\n\nbenchmark = Benchmark(script="main.py", voirfile=None, prepare=None)\n'
HASH = "--hash=sha256:" + "0" * 64
LOCK = f"numpy==2.4.0 {HASH}\nrich==13.9.4 {HASH}\n"
TENDER: dict[str, Any] = {
    "title": "pilot",
    "suite": "suite/suite.yaml",
    "metric": "ssi",
    "reference": {"nodes": 64},
    "benchmarks": {
        "bert": {
            "weight": 2,
            "reference": {"value": "100 items/s", "nodes": 2},
            "tiers": ["as-is", "ported", "optimized"],
        },
        "llama": {"reference": {"value": "50 items/s", "nodes": 4}},
    },
    "terms": {
        "currency": "EUR",
        "years": 5,
        "interest": "5 %",
        "electricity": "0.12 +- 0.02 EUR/kWh",
        "pue": "1.3 +- 0.05",
        "upkeep": "6 %",
        "utilization": "80 %",
        "grid_carbon": "350 g/kWh",
        "embodied_carbon": "1200 kg",
    },
    "limits": {"budget": "40 M EUR", "power": "900 kW", "ssi": 1},
}

# D leads, so that it is first, beside which the others are compared.
LED_BY_D = ("D", "A", "B", "C")
# Items/s of one device with bert, and the nodes that are offered.
VENDORS = {"A": (120.0, 640), "B": (150.0, 500), "C": (90.0, 700), "D": (124.0, 640)}


def own_suite(folder: Path) -> Path:
    """The tender's own suite, below a folder; its file."""
    for bench in ("bert", "llama"):
        (folder / "suite" / bench).mkdir(parents=True)
        files = {"benchfile.py": BENCHFILE, "main.py": f"# {bench}\n", "requirements.in": "numpy\nrich\n"}
        for name, text in {**files, "requirements.cpu.txt": LOCK}.items():
            (folder / "suite" / bench / name).write_text(text)
    (folder / "suite" / "suite.yaml").write_text(SUITE)
    return folder / "suite" / "suite.yaml"


def tender_file(folder: Path, **changes: Any) -> Path:
    """The tender, next to its suite."""
    if not (folder / "suite").exists():
        own_suite(folder)
    (folder / "procurement.yaml").write_text(yaml.safe_dump({**TENDER, **changes}, sort_keys=False))
    return folder / "procurement.yaml"


def vendor_run(
    base: Path,
    suite: Path,
    speeds: Mapping[str, float],
    *,
    edits: Mapping[str, str] | None = None,
    overrides: Sequence[str] = (),
    lock: str = LOCK,
    power_w: float | None = None,
    manifest: Mapping[str, Any] | None = None,
    name: str = "offered",
    nodes: int = 1,
    reasons: Sequence[str] = (),
) -> Run:
    """A run of a vendor's copy of the suite: `edits` are files of it that were rewritten, `overrides` keys of the suite.

    `speeds` are items/s of one of a node's two devices; each launch differs by a per mille. Its environments had the `lock`.
    `reasons` make the number of bert suspect.
    """
    copied = base / "copied"
    if not copied.exists():
        shutil.copytree(suite.parent, copied)
    for file, text in (edits or {}).items():
        (copied / file).write_text(text)
    options = SuiteOptions(config_file=copied / suite.name, base=base, arch="cpu", overrides=tuple(overrides))
    context = read_context(options, Session(CollectingReporter()), warn=False)
    names = ["local"] if nodes == 1 else [f"n{node}" for node in range(nodes)]
    # Each launch takes three seconds.
    energy = [] if power_w is None else [data(metric="energy", value=3 * power_w, units="J", direction="lower")]
    steps = [
        Recorded(
            bench=bench,
            node=node,
            tag=f"D{device}",
            devices=(device,),
            repeat=repeat,
            events=(*energy, *rates(*[speed * (1 + 0.001 * repeat)] * 3, units="items/s")),
            reasons=tuple(reasons) if bench == "bert" else (),
        )
        for bench, speed in speeds.items()
        for repeat in range(3)
        for node in names
        for device in (0, 1)
    ]
    digest = "f" * 64
    told = {
        "system": {**SYSTEM, "arch": "cpu", "nodes": [{**SYSTEM["nodes"][0], "name": node} for node in names]},
        "suite": json.loads(json.dumps(suite_values(context))),
        "programs": program_digests(context),
        "options": {"base": str(base)},
        "locks": dict.fromkeys(speeds, digest),
        "profile": "default",
        **(manifest or {}),
    }
    for bench in speeds:
        folder = base / "venv" / ".store" / f"{bench}-{digest[:16]}"
        folder.mkdir(parents=True, exist_ok=True)
        for file in LOCK_FILES:
            (folder / file).write_text(lock if file == ".requirements.txt" else "{}")
    return record(base, *steps, name=name, manifest=told)


def offer_file(folder: Path, vendor: str, benchmarks: Mapping[str, Any], **more: Any) -> Path:
    """A declaration: 640 nodes at 40 thousand EUR, 1 kW each by design, unless it says otherwise."""
    value: dict[str, Any] = {
        "vendor": vendor,
        "system": f"{vendor}-1000",
        "nodes": 640,
        "price": {"node": "40 k EUR", "fixed": "1 M EUR"},
        "power": {"node": "1 kW +- 2 %", "level": "provisioned"},
        **more,
        "benchmarks": dict(benchmarks),
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "offer.yaml").write_text(yaml.safe_dump(value, sort_keys=False))
    return folder / "offer.yaml"


def make_offers(folder: Path, **tender: Any) -> tuple[Path, Path]:
    """A folder with the archives of four offers, of which C changed its source without a word, and their tender."""
    asked = tender_file(folder / "tender", **tender)
    (folder / "offers").mkdir()
    for vendor, (speed, nodes) in VENDORS.items():
        suite = asked.parent / "suite" / "suite.yaml"
        edits = {"bert/main.py": "# faster\n"} if vendor == "C" else {}
        speeds = {"bert": speed, "llama": speed / 2}
        run = vendor_run(folder / vendor, suite, speeds, edits=edits, power_w=300.0, name=f"run-{vendor}").path
        declared = offer_file(folder / vendor, vendor, {bench: {"run": str(run)} for bench in speeds}, nodes=nodes)
        target = folder / "offers" / f"{vendor}.zip"
        create_offer(asked, declared, target, None)
    (folder / "offers" / "README").write_text("four offers")
    return folder / "offers", asked
