"""Whether every benchmark of a suite still installs, prepares and runs: `make suite-health`; SHARD=1/4 takes a fourth.

`run` writes a JSON file with what came of each benchmark, and ends with exit code 1 where one failed. `write` unites such
files, those of all shards, into config/health.json, from which docs/suite.md has its section "Health".
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "config" / "health.json"
RUN = "suite-health"
NOTHING_SELECTED = 3  # exit code of milabench where no selected benchmark can run
SHOWN = ("install", "prepare", "run")  # what takes long: its output is shown as it comes
MISCOUNT = 0.02
SAMPLES = {"images/s", "samples/s", "pairs/s", "volumes/s", "molecules/s"}  # of what loaders count, too
_MOST = 200  # characters of a reason
_PATH = re.compile(r"(?<![\w.])(?:/[\w.@+-]+)+/")

Milabench = Callable[..., subprocess.CompletedProcess[str]]


def shard_of(groups: Mapping[str, str], shard: str) -> list[str]:
    """Return the benchmarks of a shard such as `2/4`: those of every fourth environment, from the second on."""
    number, _, count = shard.partition("/")
    if not re.fullmatch(r"[0-9]{1,6}/[0-9]{1,6}", shard) or not 1 <= int(number) <= int(count):
        raise SystemExit(f"error: SHARD={shard}: not a shard; write it as 1/4, 2/4, 3/4 or 4/4")
    kept = sorted({*groups.values()})[int(number) - 1 :: int(count)]
    return [name for name, group in groups.items() if group in kept]


def plain_reason(text: str) -> str:
    """Return a reason in one line, without the folders of the machine that it is from."""
    return " ".join(_PATH.sub("", text).split())[:_MOST]


def error_of(said: subprocess.CompletedProcess[str]) -> str:
    """Return the first error that a command printed, or its exit code."""
    errors = [line.removeprefix("error: ") for line in said.stderr.splitlines() if line.startswith("error: ")]
    return errors[0] if errors else f"exit code {said.returncode}"


def unable(milabench: Milabench, names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return, where none of the benchmarks can run here, why: each asked alone."""
    found = {}
    for name in names:
        said = milabench("plan", "run", "--select", name)
        if said.returncode == NOTHING_SELECTED:
            why = error_of(said).removeprefix("no selected benchmark can run: ").removeprefix(f"{name}: ")
            found[name] = {"outcome": "skipped", "why": plain_reason(why)}
    return found


def failing(milabench: Milabench, verb: str, together: Sequence[Sequence[str]]) -> dict[str, str]:
    """Give a verb for all benchmarks at once; where that fails, for each set of them alone. Return the reasons by benchmark."""
    names = [name for each in together for name in each]
    if not names or milabench(verb, "--select", ",".join(names)).returncode == 0:
        return {}
    found: dict[str, str] = {}
    for each in together:
        said = milabench(verb, "--select", ",".join(each))
        if said.returncode:
            why = plain_reason(f"{verb}: {error_of(said)}")
            found |= dict.fromkeys(each, why)
    return found


def miscounted(metrics: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield what is wrong with the steps that a voirfile observes, beside those of the loaders and optimizers themselves.

    A step of ours may be several of theirs, or a part of one: that is a whole number of them, and is not wrong.
    """
    for metric in metrics:
        ratio = metric["value"] if metric["metric"] == "audit" else 1.0
        times = max(ratio, 1 / ratio) if ratio > 0 else math.inf
        if not math.isfinite(times) or abs(times - round(times)) > MISCOUNT * times:
            yield f"{ratio:.3f} steps are observed for each of the program's"
    counts_samples = any(metric["metric"] == "rate" and metric["units"] in SAMPLES for metric in metrics)
    for metric in metrics if counts_samples else ():
        if metric["metric"] == "audit_items" and abs(metric["value"] - 1) > MISCOUNT:
            yield f"{metric['value']:.3f} items are counted for each sample of the program's loaders"


def outcomes_of(report: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return the outcome of each benchmark of a run, and why it is not a good one."""
    outcomes = {}
    for bench in report["benchmarks"]:
        reasons = [f"run: {failure['why']} {failure['detail']}" for failure in bench["failures"]]
        reasons += [skip["detail"] for skip in bench["skipped"]]
        outcome = bench["outcome"] if bench["outcome"] in ("passed", "skipped") else "failed"
        if outcome == "passed" and (miscounts := list(miscounted(bench["metrics"]))):
            outcome, reasons = "failed", [f"count: {miscounts[0]}"]
        why = "" if outcome == "passed" else plain_reason((reasons or [f"run: {bench['outcome']}"])[0])
        outcomes[bench["bench"]] = {"outcome": outcome, "why": why}
    return outcomes


def check(milabench: Milabench, shard: str) -> dict[str, Any]:
    """Install, prepare and run the benchmarks of a shard; return what came of each, and the versions that it was with."""
    said = milabench("list", "--json")
    if said.returncode:
        raise SystemExit(said.returncode)  # it has printed why
    listed = json.loads(said.stdout)["benchmarks"]
    groups = {bench["name"]: bench["install_group"] for bench in listed if bench["enabled"]}
    names = shard_of(groups, shard)
    by_group: dict[str, list[str]] = {}
    for name in names:
        by_group.setdefault(groups[name], []).append(name)
    failed = failing(milabench, "install", list(by_group.values()))
    failed |= failing(milabench, "prepare", [[name] for name in names if name not in failed])
    found = {name: {"outcome": "failed", "why": why} for name, why in failed.items()}
    versions: dict[str, str] = {}
    if kept := [name for name in names if name not in failed]:
        said = milabench("run", "--profile", "quick", "--run-name", RUN, "--select", ",".join(kept))
        report = milabench("report", "--json", RUN) if said.returncode in (0, 1) else said
        if report.returncode == 0:
            summary = json.loads(report.stdout)
            versions = {"milabench": summary["version"], **summary["software"]}
            found |= outcomes_of(summary)
        elif said.returncode == NOTHING_SELECTED:
            found |= unable(milabench, kept)
        why = plain_reason(f"run: {said.stderr.strip().splitlines()[-1] if said.stderr.strip() else said.returncode}")
        found |= {name: {"outcome": "failed", "why": why} for name in kept if name not in found}
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "versions": versions,
        "benchmarks": {name: found[name] for name in names},
    }


def united(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what several shards found, as one: of the last of them the date, of each version all that there were."""
    versions: dict[str, dict[str, None]] = {}
    for part in parts:
        for name, version in part["versions"].items():
            versions.setdefault(name, {}).update(dict.fromkeys(version.split(", ")))
    return {
        "date": max(part["date"] for part in parts),
        "versions": {name: ", ".join(sorted(found)) for name, found in sorted(versions.items())},
        "benchmarks": dict(sorted((name, entry) for part in parts for name, entry in part["benchmarks"].items())),
    }


def run(arguments: argparse.Namespace) -> int:
    """Check a suite, write what was found and say it."""
    suite = ["--config", arguments.config, "--base", arguments.base]

    def milabench(verb: str, *words: str) -> subprocess.CompletedProcess[str]:
        own = ["--use-current-env"] * (arguments.use_current_env and verb in (*SHOWN, "plan"))
        where = ["--base", arguments.base] if verb == "report" else suite
        argv = [sys.executable, "-m", "milabench", verb, *words, *where, *own]
        print(f"== milabench {' '.join([verb, *words])}", flush=True)
        # Its standard output goes to a file where it is read: two pipes would have to be emptied at once.
        with tempfile.TemporaryFile("w+") as output:
            shown = None if verb in SHOWN else output
            env = {**os.environ, "MILABENCH_AUDIT": "1"}  # benchmate.loop_audit, in each program
            with subprocess.Popen(argv, stdout=shown, stderr=subprocess.PIPE, text=True, bufsize=1, env=env) as process:
                assert process.stderr is not None
                errors = []
                for line in process.stderr:
                    sys.stderr.write(line)
                    sys.stderr.flush()
                    errors.append(line)
            output.seek(0)
            return subprocess.CompletedProcess(argv, process.returncode, output.read(), "".join(errors))

    found = check(milabench, arguments.shard)
    output = Path(arguments.output or Path(arguments.base, "suite-health.json"))
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(found, indent=1) + "\n")
    for name, entry in found["benchmarks"].items():
        print(f"{entry['outcome']:8}{name}" + (f": {entry['why']}" if entry["why"] else ""))
    if not found["benchmarks"]:
        print(f"shard {arguments.shard} has no benchmark: the suite has fewer environments than there are shards")
    failures = [name for name, entry in found["benchmarks"].items() if entry["outcome"] == "failed"]
    print(f"{len(found['benchmarks'])} benchmarks, {len(failures)} failed; written to {output}")
    return 1 if failures else 0


def read_part(path: Path) -> dict[str, Any]:
    """Return what `run` wrote. Ends the program, with the reason, for a file that it did not write."""
    try:
        part = json.loads(path.read_text())
    except OSError as error:
        raise SystemExit(f"error: {path}: {error.strerror}; give files that `suite_health.py run` wrote") from None
    except (ValueError, RecursionError):
        raise SystemExit(f"error: {path}: is not JSON; give files that `suite_health.py run` wrote") from None
    kinds = {"date": str, "versions": dict, "benchmarks": dict}
    if not isinstance(part, dict) or not all(isinstance(part.get(key), kind) for key, kind in kinds.items()):
        missing = ", ".join(kinds)
        raise SystemExit(f"error: {path}: lacks {missing}; give files that `suite_health.py run` wrote")
    return part


def write(arguments: argparse.Namespace) -> int:
    """Unite the files of all shards into the one that docs/suite.md is generated from."""
    parts = [read_part(Path(name)) for name in arguments.files]
    PAGE.write_text(json.dumps(united(parts), indent=1) + "\n")
    print(f"{PAGE.relative_to(ROOT)} is written; `make docs` shows it in docs/suite.md")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    checks = verbs.add_parser("run", help="install, prepare and run the suite")
    checks.add_argument("--config", default="config/ci.yaml")
    checks.add_argument("--base", default=os.environ.get("MILABENCH_BASE", "results"))
    checks.add_argument("--shard", default="1/1")
    checks.add_argument("--output")
    checks.add_argument("--use-current-env", action="store_true")
    checks.set_defaults(do=run)
    writes = verbs.add_parser("write", help="unite the files of all shards into config/health.json")
    writes.add_argument("files", nargs="+")
    writes.set_defaults(do=write)
    arguments = parser.parse_args()
    return int(arguments.do(arguments))


if __name__ == "__main__":
    sys.exit(main())
