"""Makes a reference result of a run, for others to compare with, without data that identifies its machine or its owner.

Only the listed fields are kept: a field that a later record gains must not become public by itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from milabench.analysis.rescoring import machine_text
from milabench.errors import RecordError, UsageError
from milabench.events.rundir import Run
from milabench.events.values import as_mapping, mappings_in
from milabench.redaction import mask_data
from milabench.workflow.files import write_file
from milabench.workflow.measured_runs import resolve_runs
from milabench.workflow.options import Session
from milabench.workflow.summaries import summary_of, with_replaced

_BASE = "/base"
_RUN = (
    "schema",
    "system",
    "profile",
    "sizes",
    "verdict",
    "ended",
    "created",
    "version",
    "software",
    "overhead",
    "score",
)
_NODE = ("cpu", "memory_MiB", "os", "python")
_CPU = ("model", "count", "affinity", "online", "quota", "cores", "sockets", "virtual")
_DEVICE = ("index", "name", "arch", "memory_MiB")
_ACCELERATOR = (
    *("index", "name", "memory_MiB", "driver", "cuda", "power_limit_w", "power_limit_default_w"),
    *("sm_clock_max_mhz", "mem_clock_max_mhz", "ecc", "mig"),
)
# Of a benchmark, lists of texts that a program, a check or a machine wrote.
_EMPTIED = ("messages", "validations", "flaky", "failures", "skipped")
_METRIC = (
    *("metric", "value", "units", "direction", "case", "part", "repeat", "basis", "observations", "steps_rate"),
    *("between_steps", "pauses", "warm_up_steps", "all_steps", "period", "stall", "spread_within"),
    *("doubts", "left_out", "latency", "totals", "warmup_left"),
)
_MANIFEST = ("profile", "version", "plan_hash", "locks", "programs", "validations")
_SUITE = (
    *("name", "group", "install_group", "install_variant", "weight", "plan", "argv", "server", "client", "serve"),
    *("command", "shell", "metrics", "voir", "num_machines", "options", "requires_capabilities", "requires_programs"),
    *("enabled", "tags", "env"),
    *("max_duration", "max_silence", "validation", "inherits"),
)
# A path on its own, not the rest of an address; those below the base and of every Linux are nobody's.
_PATH = re.compile(r"(?:^|[\s=:,'\"])(~?/(?!/)[^\s,'\"]+|~)(?=$|[\s,'\"])")
_NOBODYS = (f"{_BASE}/", "/dev/", "/bin/", "/usr/")
_SHORTEST = 4  # characters of a name that is looked for: shorter ones are parts of words


def save_reference(base: Path | None, names: Sequence[str], file: Path, session: Session) -> None:
    """Write the reference result of a run, by default the latest, to a file.

    Raises UsageError for several runs, NothingSelected, and RecordError where the run's arguments name facts that must not be
    published, or the file cannot be written.
    """
    if len(names) > 1:
        raise UsageError(f"--save-reference takes a single run, and {len(names)} are named")
    (run,) = resolve_runs(base, names)
    value = reference_of(run, file.stem)
    for text in _texts(value):
        found = _private(text, run)
        if found:
            raise RecordError(
                f"{run.name}: cannot become a reference: '{found}' in '{text[:80]}' belongs to its machine or its owner. "
                "Measure again with paths below the base"
            )
    write_file(file, json.dumps(value, indent=1, sort_keys=False) + "\n")
    session.info(f"written to {file}: {value['machine']}. Look through it before you publish it")


def reference_of(run: Run, name: str) -> dict[str, Any]:
    """Return the reference result of a run: its summary, and the parts of its manifest that identify its work."""
    summary = summary_of(run)
    written = mask_data(summary.to_json())
    nodes = {str(node.get("name")): f"node{number}" for number, node in enumerate(summary.nodes)}
    kept = _only(written, _RUN)
    kept["system"] = {
        "arch": summary.system.get("arch"),
        "nodes": [_node(node, nodes[str(node.get("name"))]) for node in summary.nodes],
    }
    return {
        "schema": written["schema"],
        "run": name,
        "machine": machine_text(summary),
        "argv": [],
        "options": {},
        **kept,
        "accelerators": [_only(device, _ACCELERATOR) for device in written["accelerators"]],
        "benchmarks": [_bench(bench, nodes) for bench in written["benchmarks"]],
        "manifest": work_record(run),
    }


def _only(value: Mapping[str, object], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value[name] for name in names if name in value}


def _node(node: Mapping[str, object], name: str) -> dict[str, Any]:
    details = as_mapping(node.get("details"))
    return {
        "name": name,
        **_only(node, _NODE),
        "devices": [_only(device, _DEVICE) for device in mappings_in(node.get("devices"))],
        "details": {"cpu": _only(as_mapping(details.get("cpu")), _CPU), **_only(details, ("machine",))},
    }


def _bench(bench: Mapping[str, Any], nodes: Mapping[str, str]) -> dict[str, Any]:
    kept: dict[str, Any] = {name: [] if name in _EMPTIED else value for name, value in bench.items()}
    # Launches are what a comparison is made of, and cases tell whether a mean is over the same ones.
    metrics = [metric for metric in bench["metrics"] if metric["metric"] == "rate" or metric.get("case")]
    entries = []
    for number, metric in enumerate(metrics):
        entry = {"step": f"{bench['bench']}.{number}", **_only(metric, _METRIC)}
        if "place" in metric:
            node, slash, slot = str(metric["place"]).partition("/")
            entry |= {"place": f"{nodes.get(node, node)}{slash}{slot}"}
        entries.append(entry)
    return {**kept, "metrics": entries}


def work_record(run: Run) -> dict[str, Any]:
    """Return the work of the benchmarks from the manifest, with paths below a neutral base.

    Empty for a run of milabench 1.3, which has no manifest.
    """
    manifest = run.manifest
    if not manifest:
        return {}
    base = str(as_mapping(manifest.get("options")).get("base") or "")
    steps = mappings_in(as_mapping(manifest.get("plan")).get("steps"))
    kept = {
        **_only(manifest, _MANIFEST),
        "suite_file": Path(str(manifest.get("suite_file") or "")).name,
        "options": {"base": _BASE},
        "suite": {name: _only(as_mapping(bench), _SUITE) for name, bench in as_mapping(manifest.get("suite")).items()},
        "plan": {"steps": [_step(step, number) for number, step in enumerate(steps)]},
    }
    return dict(with_replaced(kept, base, _BASE)) if base not in ("", "/") else kept


def _step(step: Mapping[str, object], number: int) -> dict[str, Any]:
    config = as_mapping(step.get("config"))
    return {
        "id": f"{step.get('bench')}.{number}",  # its own may have the node's name
        "bench": str(step.get("bench")),
        "env": _only(as_mapping(step.get("env")), ("OMP_NUM_THREADS",)),
        "config": _only(config, ("argv", "measure")),
    }


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield str(name)
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def _private(text: str, run: Run) -> str:
    """Return the part of a text that names the machine, its user or their folders. Empty where there is none."""
    paths = (match[1] for match in _PATH.finditer(text))
    path = next((path for path in paths if not f"{path}/".startswith(_NOBODYS)), None)
    if path is not None:
        return path
    return next((name for name in _names(run) if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)), "")


def _names(run: Run) -> set[str]:
    names: set[str] = {str(run.manifest.get("cwd") or "")}
    for node in mappings_in(as_mapping(run.manifest.get("system")).get("nodes")):
        details = as_mapping(node.get("details"))
        names |= {str(node.get(key) or "") for key in ("ip", "hostname")}
        names |= {str(details.get(key) or "") for key in ("boot", "user")} | set(
            map(str, details.get("addresses") or ())
        )
        names |= {str(device.get("uuid") or "") for device in mappings_in(node.get("devices"))}
    # What a machine or a benchmark is usually called tells nothing.
    usual = {"local", "localhost", "root", *as_mapping(run.manifest.get("suite"))}
    return {name for name in names - usual if len(name) >= _SHORTEST}
