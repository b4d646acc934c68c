"""The screens of the main commands, on two recorded systems of six benchmarks: `python -m tests.screens` prints their sizes.

`python -m tests.screens NAME` prints one of them.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.commands import milabench_in
from tests.recorded_run import SYSTEM, Recorded, data, message, rates, record

BENCHES: Mapping[str, tuple[float, str]] = {
    "bert-bf16": (1450.0, "items/s"),
    "digits": (8100.0, "images/s"),
    "llama": (310.0, "tokens/s"),
    "resnet50": (2300.0, "images/s"),
    "sft-lora": (5100.0, "tokens/s"),
    "whisper-train": (95.0, "items/s"),
}
FASTER: Mapping[str, float] = {"bert-bf16": 1.31, "digits": 1.002, "llama": 1.12, "resnet50": 0.94, "sft-lora": 1.018}
SLOWER: Mapping[str, float] = dict.fromkeys(BENCHES, 0.8)
LIMITS: Mapping[str, Any] = {"budget": "12 M EUR", "power": "260 kW", "ssi": 1}
TERMS: Mapping[str, Any] = {
    "currency": "EUR",
    "years": 5,
    "interest": "5 %",
    "electricity": "0.12 +- 0.02 EUR/kWh",
    "pue": "1.3 +- 0.05",
    "upkeep": "6 %",
    "grid_carbon": "350 g/kWh",
    "embodied_carbon": "1200 kg",
    "utilization": "80 %",
}


def _steps(name: str, faster: Mapping[str, float], repeats: int, spread: float) -> Iterable[Recorded]:
    draw = random.Random(name)
    for bench, (level, units) in BENCHES.items():
        for repeat in range(repeats):
            factor = 1 + draw.gauss(0, spread)
            for device in (0, 1):
                slow = 0.9 if (bench, repeat, device, name) == ("sft-lora", 1, 1, "new") else 1.0
                value = round(level * faster.get(bench, 1.0) * factor * slow * (1 + draw.gauss(0, 0.001)), 3)
                failed = name == "new" and bench == "whisper-train" and repeat == 2
                yield Recorded(
                    bench=bench,
                    tag=f"D{device}",
                    devices=(device,),
                    repeat=repeat,
                    outcome="failed" if failed else "passed",
                    why="out-of-memory" if failed else None,
                    detail="79 of 80 GiB were in use" if failed else "",
                    reasons=("contended",) if (bench, repeat, name) == ("digits", 3, "new") else (),
                    events=()
                    if failed
                    else (
                        *rates(*[value * drift for drift in (0.998, 1.001, 1.002) * 4], units=units),
                        data(metric="energy", value=2800.0, units="J", direction="lower"),
                        message("no power sensor: energy is estimated"),
                    ),
                )


def _system(base: Path, name: str, faster: Mapping[str, float], repeats: int = 5, spread: float = 0.004) -> Path:
    node = {**SYSTEM["nodes"][0], "name": "local", "hostname": f"{name}-01"}
    manifest = {
        "name": name,
        "system": {**SYSTEM, "nodes": [node]},
        "suite": {bench: {"argv": {"--batch-size": 32}} for bench in BENCHES},
        "argv": ["milabench", "run", "--config", "pilot.yaml", "--base", str(base), "--select", "nlp", "--repeat", "5"],
        "options": {"config_file": "pilot.yaml", "base": str(base), "select": "nlp", "repeat": 5},
    }
    verdict = "failed" if name == "new" else "passed"
    return record(base, *_steps(name, faster, repeats, spread), name=name, manifest=manifest, verdict=verdict).path


def write_systems(folder: Path) -> None:
    """Write two systems with a reference, and the tender, offers and criteria that are about them."""
    for name, faster in (("reference", SLOWER), ("old", {}), ("new", FASTER)):
        path = _system(folder, name, faster)
        path.rename(path.with_name(name))
    tender = {
        "title": "pilot",
        "metric": "ssi",
        "reference": {"run": "runs/reference", "nodes": 64},
        "benchmarks": {bench: {"weight": 2 if bench == "llama" else 1} for bench in BENCHES},
        "terms": TERMS,
        "limits": LIMITS,
    }
    (folder / "procurement.yaml").write_text(yaml.safe_dump(tender, sort_keys=False))
    for vendor, run, nodes in (("A", "old", 100), ("B", "new", 96)):
        offer = {
            "vendor": vendor,
            "system": f"{vendor}-1000",
            "tender": "pilot",
            "nodes": nodes,
            "price": {"node": "70 k EUR", "fixed": "300 k EUR"},
            "power": {"node": "1.6 kW", "level": "provisioned"},
            "benchmarks": {
                bench: {"run": f"runs/{run}"} for bench in BENCHES if (bench, vendor) != ("whisper-train", "B")
            },
        }
        if vendor == "B":
            offer["benchmarks"]["whisper-train"] = {"value": "95 items/s", "nodes": 1}
        (folder / f"vendor-{vendor.lower()}.yaml").write_text(yaml.safe_dump(offer, sort_keys=False))
    criteria = {"title": "pilot", "defaults": {"minimum": "0.97 x reference", "device_spread": "1.5 %"}}
    (folder / "criteria.yaml").write_text(yaml.safe_dump({**criteria, "required": [*BENCHES]}, sort_keys=False))
    (folder / "offers").mkdir()
    for name in "ab":
        words = ["--offer", f"vendor-{name}.yaml", "-o", f"offers/{name}.zip", "--base", "."]
        screen(folder, "offer", "create", "--tender", "procurement.yaml", *words)
    screen(folder, "baseline", "reference", "old", "-o", "baseline.json", "--base", ".")


NEXT_TO_SYSTEMS: Mapping[str, tuple[str, ...]] = {
    "report": ("report", "new"),
    "compare": ("compare", "old", "new"),
    "compare-tender": ("compare", "vendor-a.yaml", "vendor-b.yaml", "--tender", "procurement.yaml"),
    "accept": ("accept", "new", "--criteria", "criteria.yaml", "--reference", "reference"),
    "offer-compare": ("offer", "compare", "offers", "--tender", "procurement.yaml"),
    "budget": ("budget", "procurement.yaml", "vendor-a.yaml", "vendor-b.yaml"),
    "outliers": ("outliers", "new", "--baseline", "baseline.json"),
    "status": ("status", "new"),
}
"""The words of each screen about the systems of `write_systems`."""
ABOUT_A_SUITE: Mapping[str, tuple[str, ...]] = {
    "doctor": ("doctor", "--config", "quickstart"),
    "plan-run": ("plan", "run", "--config", "quickstart"),
    "list": ("list",),
}


def screen(folder: Path, *words: str) -> str:
    """Return what a command shows, with what it says on stderr."""
    said = milabench_in(dict(os.environ))(*words, cwd=folder)
    return said.out + said.err


def shown(folder: Path, name: str) -> str:
    """Return a screen, the folder of the systems called BASE."""
    words = NEXT_TO_SYSTEMS.get(name) or ABOUT_A_SUITE[name]
    return screen(folder, *words, "--base", ".").replace(str(folder.resolve()), "BASE")


def main() -> None:
    """Print the sizes of all screens, or one of them."""
    with tempfile.TemporaryDirectory() as scratch:
        write_systems(Path(scratch))
        for name in sys.argv[1:] or [*NEXT_TO_SYSTEMS, *ABOUT_A_SUITE]:
            text = shown(Path(scratch), name)
            lines = text.splitlines()
            print(f"{name:16} {len(lines):4} lines {max(map(len, lines)):4} wide")
            if sys.argv[1:]:
                print(text)


if __name__ == "__main__":
    main()
