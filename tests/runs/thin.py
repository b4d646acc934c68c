"""Leaves of a recorded run what a comparison needs: `python tests/runs/thin.py RUN...` thins these run directories in place.

Of every launch stay neighbouring observations in the middle of what was measured (gaps between them would count) with as much of
the window, some losses, one observation of the warm-up, one reading of each kind of the host, and the first line of its output.
What is said once stays. Benchmarks in LEFT_OUT go, from the plan and the journal as well.
"""

import json
import sys
from pathlib import Path

# Records of a kind that stay; of any other kind, all.
COUNTS = {
    "rate": 16,
    "loss": 3,
    "warm-up": 1,
    "stdout": 1,
    "stderr": 1,
    "process": 1,
    "cpudata": 1,
    "iodata": 1,
    "netdata": 1,
}

LEFT_OUT = ("flax", "pykeen")


def kind_of(record: dict) -> str:
    """What a record is, of those that there are many of."""
    data = record["data"] if isinstance(record["data"], dict) else {}
    if record["event"] == "line":
        return str(record["pipe"])
    if "rate" in data and data.get("warmup"):
        return "warm-up"
    return next((kind for kind in (*COUNTS, "window") if kind in data), "")


def middle(indices: list[int], count: int) -> list[int]:
    """`count` neighbours of the indices, from the middle."""
    first = max(0, (len(indices) - count) // 2)
    return indices[first : first + count]


def kept(records: list[dict]) -> set[int]:
    """The numbers of the records that stay."""
    kinds: dict[str, list[int]] = {}
    for index, record in enumerate(records):
        kinds.setdefault(kind_of(record), []).append(index)
    return {index for kind, indices in kinds.items() for index in middle(indices, COUNTS.get(kind, len(indices)))}


def narrowed(lines: list[str]) -> list[str]:
    """The lines, with the window of the observations among them: from the begin of the first to the end of the last."""
    records = [json.loads(line) for line in lines]
    spans = [
        (record["data"]["t0_ns"], record["data"]["t0_ns"] + record["data"]["host_ns"])
        for record in records
        if kind_of(record) == "rate"
    ]
    for index, record in enumerate(records):
        if kind_of(record) == "window" and spans:
            window = record["data"]["window"]
            bounds = {"start": min(spans)[0], "stop": max(spans)[1]}
            for name, moment_ns in bounds.items():
                window[name] += (moment_ns - window[f"{name}_ns"]) / 1e9
                window[f"{name}_ns"] = moment_ns
            lines[index] = json.dumps(record, separators=(",", ":")) + "\n"
    return lines


def thin(run: Path) -> None:
    """Thin every launch of a run directory."""
    for path in run.glob("*.data"):
        lines = path.read_text().splitlines(keepends=True)
        stay = kept([json.loads(line) for line in lines])
        path.write_text("".join(narrowed([line for index, line in enumerate(lines) if index in stay])))
    for path in (*run.glob("*.stdout"), *run.glob("*.stderr")):
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:1]))
    (run / "summary.json").unlink(missing_ok=True)


def leave_out(run: Path) -> None:
    """Remove benchmarks from the plan, the journal and the files of a run."""
    manifest = json.loads((run / "manifest.json").read_text())
    gone = {step["id"] for step in manifest["plan"]["steps"] if step["bench"] in LEFT_OUT}
    manifest["plan"]["steps"] = [step for step in manifest["plan"]["steps"] if step["id"] not in gone]
    manifest["files"] = {step: stem for step, stem in manifest["files"].items() if step not in gone}
    for key in ("suite", "locks", "programs"):
        manifest[key] = {name: value for name, value in manifest[key].items() if name not in LEFT_OUT}
    (run / "manifest.json").write_text(json.dumps(manifest, separators=(",", ":")) + "\n")
    lines = (run / "journal.jsonl").read_text().splitlines(keepends=True)
    (run / "journal.jsonl").write_text("".join(line for line in lines if json.loads(line).get("step") not in gone))
    for path in run.iterdir():
        if path.name.partition(".")[0] in LEFT_OUT:
            path.unlink()


for word in sys.argv[1:]:
    leave_out(Path(word))
    thin(Path(word))
