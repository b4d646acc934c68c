"""Features can be left out: with their packages blocked, the core does all that it does, and what needs one says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from milabench.seams import FEATURES, HANDLERS, VERBS
from tests.commands import ROOT

# In one process for each feature: the arguments are the feature, and a folder that may be written to.
PROGRAM = """
import contextlib, importlib.abc, io, os, sys

feature, folder = sys.argv[1:]
os.environ["MILABENCH_WITHOUT"] = feature

class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if f"{name}.".startswith(f"milabench.{feature}."):
            raise AssertionError(f"imported {name}")

sys.meta_path.insert(0, Blocked())
from milabench import cli, seams

def said(*words):
    out, err = io.StringIO(), io.StringIO()
    sys.argv = ["milabench", *words]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.run_command_line()
    return code, out.getvalue(), err.getvalue()

base = ["--base", folder]
there = os.path.join(folder, "there")
open(os.path.join(folder, "c.yaml"), "w").write("a: {}\\n")
open(os.path.join(folder, "benchfile.py"), "w").write("__pack__ = None\\n")
criteria = ("--criteria", os.path.join(folder, "c.yaml"))
WORDS = {
    "compare --tender": ("compare", "--tender", there, "a", "b", *base),
    "verify --offer": ("verify", "--offer", folder, there),
    "install --from": ("install", "--from", there, *base),
    "new --from FOLDER": ("new", "mine", "--from", folder, "--into", there),
    "new --from PROGRAM": ("new", "mine", "--from", "train.py", "--into", there),
    "report --from-db": ("report", "--from-db", *base),
    "report --site": ("report", "--site", there, *base),
}
assert said("--help")[0] == 0
code, page, _ = said("--help-all")
verbs = [verb for group in seams.VERBS.get(feature, {}).values() for verb in group]
assert code == 0 and not any(f"\\n  {verb} " in page for verb in verbs)
code, plan, err = said("plan", "run", "--config", "config/quickstart.yaml", "--json", *base)
assert code == 0 and '"steps"' in plan, err
for verb in verbs:
    code, _, err = said(*verb.split())
    assert code == 2 and f"belongs to the feature {feature}" in err, err
for option, (owner, _) in seams.HANDLERS.items():
    if owner == feature and option in WORDS:
        code, _, err = said(*WORDS[option])
        assert code == 2 and f"{option} needs the feature {feature}" in err, err
"""


@pytest.mark.parametrize("feature", sorted(FEATURES))
def test_the_core_works_without_a_feature_and_what_needs_it_says_so(feature: str, tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, feature, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr


def test_every_reference_of_seams_leads_somewhere() -> None:
    from milabench.seams import resolved

    for feature, groups in VERBS.items():
        for verb in (verb for verbs in groups.values() for verb in verbs):
            assert callable(resolved(f"{feature}.{verb.replace('-', '_')}_command:command"))
    for feature, reference in HANDLERS.values():
        assert reference.startswith(f"{feature}.")
        assert callable(resolved(reference))


def test_a_feature_that_does_not_exist_is_one_line() -> None:
    program = (
        "import os, sys; os.environ['MILABENCH_WITHOUT'] = 'nothing'; sys.argv = ['milabench', 'list']; "
        "from milabench import cli; sys.exit(cli.run_command_line())"
    )
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith("error: MILABENCH_WITHOUT: no feature 'nothing'; there are ")
