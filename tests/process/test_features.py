"""Features can be left out: with their packages blocked, the core does all that it does, and what needs one says so."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from milabench.seams import (
    BENCHFILES,
    FEATURES,
    FORMATS,
    HANDLERS,
    ON_NODES,
    SCHEDULERS,
    SPELLINGS,
    VERBS,
    handler,
    resolved,
)
from milabench.workflow.summaries import summary_of
from tests.commands import ROOT
from tests.examples import drawn
from tests.serving_runs import serving_run

pytestmark = pytest.mark.turns(1)  # part of every `make test`

# In one process: what blocks the packages of the features that the first argument names.
BLOCKED = """
import contextlib, importlib.abc, io, os, sys

without = sys.argv[1]
os.environ["MILABENCH_WITHOUT"] = without
rooms = tuple(f"milabench.{feature}." for feature in without.split(","))

class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if f"{name}.".startswith(rooms):
            raise AssertionError(f"imported {name}")

sys.meta_path.insert(0, Blocked())
from milabench import cli, seams

def said(*words):
    out, err = io.StringIO(), io.StringIO()
    sys.argv = ["milabench", *words]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.run_command_line()
    return code, out.getvalue(), err.getvalue()
"""
# In one process for each feature: the arguments are its name, a folder to write to, and two runs with stored summaries.
PROGRAM = """
feature, folder, old, new = sys.argv[1:]

base = ["--base", folder]
there = os.path.join(folder, "there")
open(os.path.join(folder, "c.yaml"), "w").write("a: {}\\n")
open(os.path.join(folder, "benchfile.py"), "w").write("__pack__ = None\\n")
criteria = ("--criteria", os.path.join(folder, "c.yaml"))
sweep = os.path.join(folder, "sweep.yaml")
open(sweep, "w").write(
    "chat: {definition: " + folder + ", install_group: c, plan: {method: njobs, n: 1}, server: {url: 'http://x'},"
    " serve: {model: /m, concurrency: 1}}\\n"
)
driven = os.path.join(folder, "driven.yaml")
open(driven, "w").write("job: {driver: tasks.cfg, install_group: c}\\n")
WORDS = {
    "compare --tender": ("compare", "--tender", there, "a", "b", *base),
    "verify --offer": ("verify", "--offer", folder, there),
    "--format xlsx": ("compare", old, new, "-o", os.path.join(there, "x.xlsx")),
    "install --from": ("install", "--from", there, *base),
    "new --from FOLDER": ("new", "mine", "--from", folder, "--into", there),
    "new --from PROGRAM": ("new", "mine", "--from", "train.py", "--into", there),
    "report --from-db": ("report", "--from-db", *base),
    "report --site": ("report", "--site", there, *base),
    "run --submit": ("run", "--submit", "--config", "config/quickstart.yaml", *base),
    "--engine slurm": ("plan", "run", "--engine", "slurm", "--config", "config/quickstart.yaml", *base),
    "driver": ("plan", "run", "--config", driven, *base),
    "serve": ("plan", "run", "--config", sweep, *base),
}
assert said("--help")[0] == 0
code, page, _ = said("--help-all")
verbs = [verb for verb, (owner, _, _) in seams.VERBS.items() if owner == feature]
assert code == 0 and not any(f"\\n  {verb}  " in page for verb in verbs)
code, plan, err = said("plan", "run", "--config", "config/quickstart.yaml", "--json", *base)
assert code == 0 and '"steps"' in plan, err
for verb in verbs:
    code, _, err = said(*verb.split())
    assert code == 2 and f"belongs to the feature {feature}" in err, err
for option, reference in seams.HANDLERS.items():
    if seams.feature_of(reference) == feature and option in WORDS:
        code, _, err = said(*WORDS[option])
        assert code == 2 and f"{option}" in err and f"needs the feature {feature}" in err, err
for words in (("report", old), ("report", old, "--full")):
    code, text, err = said(*words)
    assert code == 0 and "chat" in text, err
for name in ("markdown", "html", "csv", "junit"):
    code, text, err = said("report", old, "-f", name)
    if seams.feature_of(seams.FORMATS.get(name, "report")) == feature:
        assert code == 2 and f"--format {name} needs the feature {feature}" in err, err
    else:
        assert code == 0 and "chat" in text, err
code, text, err = said("report", old, "--json")
assert code == 0 and '"area"' in text, err
code, text, err = said("compare", old, new)
assert code in (0, 1) and "chat" in text, err
"""


# In one process: the arguments are all features and a folder to write to.
STAGES = """
folder = sys.argv[2]
os.environ["MILABENCH_LOCK_DIR"] = os.path.join(folder, "locks")
suite = ("--config", "tests/suite/odd.yaml", "--base", folder, "--use-current-env", "--select", "good")
for stage, *words in (("install",), ("prepare",), ("run", "--display", "none", "--profile", "quick")):
    code, text, err = said(stage, *suite, *words)
    assert code == 0, f"{stage} {code} {text} {err}"
for name in ("text", "markdown", "csv", "json"):
    code, text, err = said("report", "--base", folder, "-f", name)
    assert code == 0 and "good" in text, err
imported = {name.split(".")[1] for name in sys.modules if name.startswith("milabench.")}
assert not imported & set(without.split(",")), imported
"""


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two runs whose stored summaries hold what features compute: a curve."""
    base = tmp_path_factory.mktemp("measured")
    runs = [serving_run(base, name, repeats=1) for name in ("old", "new")]
    assert all(bench.serving is not None for run in runs for bench in summary_of(run).benchmarks)
    return [str(run.path) for run in runs]


@pytest.mark.parametrize("feature", drawn(sorted(FEATURES), 4))
def test_the_core_works_without_a_feature_and_what_needs_it_says_so(
    feature: str, measured: list[str], tmp_path: Path
) -> None:
    program = [sys.executable, "-c", BLOCKED + PROGRAM, feature, str(tmp_path), *measured]
    ended = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def test_a_suite_is_installed_prepared_run_and_reported_without_any_feature(tmp_path: Path) -> None:
    program = [sys.executable, "-c", BLOCKED + STAGES, ",".join(sorted(FEATURES)), str(tmp_path)]
    ended = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def test_a_summary_that_lacks_a_section_is_not_stored(tmp_path: Path) -> None:
    run = serving_run(tmp_path, repeats=1)
    words = [sys.executable, "-m", "milabench", "report", str(run.path)]
    reports = [
        subprocess.run(
            words, cwd=ROOT, env={**os.environ, **left_out}, capture_output=True, text=True, check=True
        ).stdout
        for left_out in ({"MILABENCH_WITHOUT": "sweeps"}, {})
    ]
    assert "its curve needs the feature sweeps" in reports[0]
    assert "best point of chat: concurrency=16" in reports[1]


def test_every_reference_of_seams_leads_somewhere() -> None:
    for verb, (feature, _, _) in VERBS.items():
        assert callable(resolved(f"{feature}.{verb.replace('-', '_').replace(' ', '_')}_command:command"))
    for reference in SCHEDULERS.values():
        assert callable(resolved(reference).connect)
    for module in FORMATS.values():
        assert callable(resolved(f"{module}:render"))
    for module in (*ON_NODES.values(), *BENCHFILES.values(), *SPELLINGS):
        assert inspect.ismodule(resolved(module))
    for reference in HANDLERS.values():
        assert callable(resolved(reference)) or inspect.ismodule(resolved(reference))


def test_what_is_called_of_a_module_that_seams_names_is_there() -> None:
    called = [
        call.groups()
        for file in (ROOT / "orchestrator" / "milabench").rglob("*.py")
        for call in re.finditer(r'handler\("([^"]+)"\)\.(\w+)', file.read_text())
    ]
    assert called
    for what, name in called:
        assert callable(getattr(handler(what), name)), f"{what} has no {name}"


def test_a_feature_that_does_not_exist_is_one_line() -> None:
    program = (
        "import os, sys; os.environ['MILABENCH_WITHOUT'] = 'nothing'; sys.argv = ['milabench', 'list']; "
        "from milabench import cli; sys.exit(cli.run_command_line())"
    )
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith("error: MILABENCH_WITHOUT: no feature 'nothing'. Known: ")
