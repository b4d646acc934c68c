"""`milabench import-suite`: benchmarks of milabench 1.3 become data, and both forms start the same."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from milabench.bench.api import Benchmark
from milabench.bench.load import load_benchfile
from milabench.workflow.foreign_environments import ADDED
from tests.commands import ROOT, Said
from tests.process.cli.installable import installable
from tests.process.install.places import wheel

Milabench = Callable[..., Said]
FOLDERS = ROOT / "tests" / "programs" / "milabench13"
SYSTEMS = {
    "one device": "system: {arch: cuda, gpu: {count: 1}, nodes: [{name: a, ip: 10.9.9.1, main: true, user: me}]}",
    "four devices": "system: {arch: cuda, gpu: {count: 4}, nodes: [{name: a, ip: 10.9.9.1, main: true, user: me}]}",
    "two machines": "system: {arch: cuda, gpu: {count: 2}, nodes: ["
    "{name: b, ip: 10.9.9.2, user: me}, {name: a, ip: 10.9.9.1, main: true, user: me}]}",
}
SUITE = """
_plain:
  inherits: _defaults
  definition: milabench13/plain
  install_group: torch
  install_variant: ${system.arch}
  plan: {method: per_gpu}
  voir: {options: {stop: 20}}
  argv: {--lr: 0.1, --data: "{milabench_data}/images", --workers: "auto({n_worker}, 8)", --batch: auto_batch(32)}
small: {inherits: _plain, weight: 2, tags: [vision], argv: {--model: small}}
large: {inherits: _plain, enabled: false, argv: {--model: large, --out: "{milabench_extra}/out"}, group: pictures}
job: {inherits: _plain, plan: {method: njobs, n: 2}, env: {OWN: "{milabench_code}/own"}}
ranks: {inherits: _defaults, definition: milabench13/torchrun_nodes, plan: {method: njobs, n: 1}, argv: {--a: 1}}
ranks-nodes: {inherits: ranks, num_machines: 2, requires_capabilities: ["len(nodes) >= 2"]}
launch: {inherits: _defaults, definition: milabench13/accelerate, plan: {method: njobs, n: 1}}
module: {inherits: _defaults, definition: milabench13/module, plan: {method: per_gpu}, use_it: 3}
variables: {inherits: _defaults, definition: milabench13/variables, plan: {method: per_gpu}, argv: [a, "{n_worker}"]}
clones: {inherits: _defaults, definition: milabench13/overrides, plan: {method: per_gpu}}
command: {inherits: _defaults, definition: milabench13/cmd, plan: {method: per_gpu}}
"""
VARIABLES = """
from milabench.pack import Package


class Variables(Package):
    def make_env(self):
        return {**super().make_env(), "KIND": "{{x}}", "WORKERS": "{n_worker}", "OWN_CACHE": str(self.dirs.cache / "own")}

    @property
    def argv(self):
        return [*super().argv, "--output", self.dirs.data / "out", "--file", self.dirs.code / "file"]


__pack__ = Variables
"""
WITHOUT_VOIR = """
import milabench.commands as cmd
from milabench.pack import Package


class Plain(Package):
    prepare_script = None

    def build_run_plan(self):
        return cmd.PackCommand(self, *self.argv, lazy=True)


__pack__ = Plain
"""
IMPORTING = """
import benchmate, torchcompat
for _ in benchmate.observed(range(40), units="items/s", batch_size=2):
    pass
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A suite of milabench 1.3 with its folders; `plain` has a voirfile and a README."""
    folders = tmp_path / "milabench13"
    shutil.copytree(FOLDERS, folders, ignore=shutil.ignore_patterns("__pycache__"))
    (folders / "plain" / "voirfile.py").write_text("def instrument_main(ov, options):\n    pass\n")
    (folders / "plain" / "README.md").write_text("# Plain\n")
    (folders / "variables").mkdir()
    (folders / "variables" / "benchfile.py").write_text(VARIABLES)
    (folders / "variables" / "main.py").write_text("print()\n")
    file = tmp_path / "old.yaml"
    file.write_text(SUITE)
    return file


@pytest.fixture
def imported(milabench: Milabench, suite: Path, tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """What was made of the suite, and what was said of each benchmark."""
    into = tmp_path / "mine"
    said = milabench("import-suite", str(suite), "--into", str(into))
    assert said.code == 0, said.err
    lines = (line.split(maxsplit=1) for line in said.out.splitlines() if not line.startswith((" ", "created")))
    return into, {name: what.strip() for name, what in lines}


def steps(milabench: Milabench, config: Path, system: Path) -> dict[str, dict[str, Any]]:
    """The steps of a plan of all benchmarks, with the folders and environments of all suites called alike."""
    said = milabench(
        *("plan", "run", "--config", str(config), "--system", str(system), "--json", "--repeat", "1")[:None],
        *("--select", "small,large,job,ranks,ranks-nodes,launch,module,variables"),
    )
    assert said.code == 0, said.err
    found = {}
    for step in json.loads(said.out)["steps"]:
        text = json.dumps(step).replace(step["venv"], "VENV")
        text = re.sub(r'[^" =:]*/(definitions/)?(milabench13|benchmarks)[/-](?=[a-z])', "FOLDERS/", text)
        found[step["id"]] = json.loads(text)
    return found


def program(words: list[str]) -> list[str]:
    """The program and its arguments, without launcher, runner and relay."""
    start = next(n for n, word in enumerate(words) if word.startswith("FOLDERS/") and "voirfile" not in word)
    return words[start:]


@pytest.mark.parametrize("system", SYSTEMS)
def test_both_forms_start_the_same(
    milabench: Milabench, suite: Path, imported: tuple[Path, dict[str, str]], tmp_path: Path, system: str
) -> None:
    file = tmp_path / "system.yaml"
    file.write_text(SYSTEMS[system])
    before = steps(milabench, suite, file)
    after = steps(milabench, imported[0] / "suite.yaml", file)
    # A job of ranks has no number here.
    named = {name.replace("ranks.0", "ranks").replace("launch.0", "launch"): step for name, step in before.items()}
    assert named.keys() == after.keys()
    assert len(named) >= 7
    for name, step in named.items():
        other = after[name]
        for key in ("node", "devices", "cwd", "timeout_s"):
            assert step[key] == other[key], (name, key)
        env = {key: value for key, value in step["env"].items() if key != "MILABENCH_CONFIG"}
        assert env == other["env"], name
        is_launched = name.startswith(("ranks", "launch"))
        if is_launched:
            assert program(step["argv"]) == program(other["argv"]), name
        elif "voirfile" in " ".join(step["argv"]):
            assert step["argv"] == other["argv"], name
            assert step["tag"] == other["tag"], name
        else:
            # An empty voirfile is new: without one ours are started without the runner.
            new = other["argv"].index("--voirfile")
            assert step["argv"] == [*other["argv"][:new], *other["argv"][new + 2 :]], name


def test_what_became_of_each_benchmark_is_said(imported: tuple[Path, dict[str, str]]) -> None:
    _, said = imported
    added = f"requirements.in has {ADDED[0]} too"
    assert (said["small"], said["large"], said["job"]) == (f"whole; {added}",) * 3
    assert "the words of torchrun are ours" in said["ranks"]
    assert "the words of torchrun are ours" in said["ranks-nodes"]
    assert "the words of accelerate are ours" in said["launch"]
    assert "without the relay" in said["launch"]
    assert said["module"] == f"with differences: voirfile.py is new and empty; {added}"
    assert "argv has the words that its class added" in said["variables"]
    assert said["clones"].startswith("kept as it is: its class clones self.config['url'] at self.config['revision']")
    assert said["command"].startswith("kept as it is: ")


def test_a_folder_is_copied_with_a_benchfile_that_is_data(imported: tuple[Path, dict[str, str]], suite: Path) -> None:
    into, _ = imported
    plain, old = into / "benchmarks" / "plain", suite.parent / "milabench13" / "plain"
    assert load_benchfile(plain) == Benchmark(script="main.py", cwd="definition")
    for name in ("voirfile.py", "README.md", "main.py", "prepare.py"):
        assert (plain / name).read_bytes() == (old / name).read_bytes()
    assert load_benchfile(into / "benchmarks" / "module").options == {"use_it": None}
    assert load_benchfile(into / "benchmarks" / "variables").env == {"KIND": "{x}"}
    kept = into / "benchmarks" / "overrides" / "benchfile.py"
    assert kept.read_bytes() == (suite.parent / "milabench13" / "overrides" / "benchfile.py").read_bytes()


def test_the_suite_shares_what_benchmarks_of_a_folder_have_alike(imported: tuple[Path, dict[str, str]]) -> None:
    text = (imported[0] / "suite.yaml").read_text()
    assert text.count("definition: benchmarks/plain\n") == 1
    assert text.count("stop: 20") == 1
    assert text.count('install_variant: "${system.arch}"') == 1
    assert '--workers: "auto({n_worker}, 8)"' in text
    assert '--batch: "auto_batch(32)"' in text
    assert str(imported[0]) not in text


def test_nothing_is_overwritten_and_no_half_result_left(milabench: Milabench, suite: Path, tmp_path: Path) -> None:
    mine = tmp_path / "taken"
    mine.mkdir()
    said = milabench("import-suite", str(suite), "--into", str(mine))
    assert said.code == 2
    assert said.err == f"error: {mine} exists. Choose another folder, or remove it first\n"
    assert list(mine.iterdir()) == []
    said = milabench("import-suite", str(FOLDERS / "plain" / "main.py"), "--into", str(tmp_path / "none" / "new"))
    assert said.code == 2
    assert not (tmp_path / "none").exists()
    plain = suite.parent / "milabench13" / "plain"
    said = milabench("import-suite", str(plain), "--into", str(plain / "mine"))
    assert (said.code, "is inside" in said.err) == (2, True)
    assert not (plain / "mine").exists()
    said = milabench("import-suite", str(tmp_path / "taken"), "--into", str(tmp_path / "new"))
    assert (said.code, "holds no benchfile.py of milabench 1.3" in said.err) == (2, True)


@pytest.mark.e2e
@pytest.mark.long
def test_a_folder_of_several_benchmarks(milabench: Milabench, tmp_path: Path) -> None:
    into = tmp_path / "mine"
    said = milabench("import-suite", str(FOLDERS), "--into", str(into))
    assert said.code == 0, said.err
    assert {path.name for path in (into / "benchmarks").iterdir()} == {
        path.parent.name for path in FOLDERS.glob("*/benchfile.py")
    }
    # One that cannot say what it starts keeps its benchfile, and does not keep the others from theirs.
    assert load_benchfile(into / "benchmarks" / "plain") == Benchmark(script="main.py", cwd="definition")
    assert "misbehaving" in said.out


def test_new_from_a_folder(milabench: Milabench, tmp_path: Path) -> None:
    said = milabench("new", "mine", "--into", str(tmp_path), "--from", str(FOLDERS / "plain"))
    assert said.code == 0, said.err
    assert load_benchfile(tmp_path / "mine").script == "main.py"
    said = milabench("plan", "run", "--config", str(tmp_path / "mine" / "suite.yaml"), "--json", "--arch", "cpu")
    assert said.code == 0, said.err
    assert {step["bench"] for step in json.loads(said.out)["steps"]} == {"plain"}
    said = milabench("new", "mine", "--into", str(tmp_path), "--from", str(FOLDERS / "plain"))
    assert (said.code, "exists" in said.err) == (2, True)
    said = milabench("new", "two", "--into", str(tmp_path), "--from", str(FOLDERS))
    assert (said.code, "`milabench import-suite` takes a folder of several" in said.err) == (2, True)


@pytest.mark.parametrize("own", ["", "tool", "-r more.txt", "torchcompat>=1"])
def test_requirements_get_what_milabench_13_installed_unasked_once(
    milabench: Milabench, suite: Path, tmp_path: Path, own: str
) -> None:
    plain = suite.parent / "milabench13" / "plain"
    (plain / "requirements.in").write_text(own)
    (plain / "more.txt").write_text("torchcompat\n")
    said = milabench("import-suite", str(plain), "--into", str(tmp_path / "mine"))
    assert said.code == 0, said.err
    text = (tmp_path / "mine" / "benchmarks" / "plain" / "requirements.in").read_text()
    has_it = own not in ("", "tool")
    assert text.splitlines()[:1] == [own or "# milabench 1.3 has this in every environment."]
    assert (ADDED[0] in text.splitlines(), f"has {ADDED[0]} too" in said.out) == (not has_it, not has_it)


def test_locks_are_left_out_but_not_what_requirements_include(
    milabench: Milabench, suite: Path, tmp_path: Path
) -> None:
    folders = suite.parent / "milabench13"
    for name in ("plain", "cmd"):
        (folders / name / "requirements.in").write_text("-r requirements.common.txt\n")
        for file in ("requirements.common.txt", "requirements.cuda.txt", "requirements.hpu.txt"):
            (folders / name / file).write_text("voir==0.2.20\n")
    said = milabench("import-suite", str(suite), "--into", str(tmp_path / "mine"))
    assert said.code == 0, said.err
    (note,) = [line for line in said.err.splitlines() if "not copied" in line]
    assert "not copied: requirements.cuda.txt, requirements.hpu.txt: " in note
    copied = tmp_path / "mine" / "benchmarks"
    assert {path.name for path in (copied / "plain").glob("requirements*")} == {
        "requirements.in",
        "requirements.common.txt",
    }
    # A benchfile that is kept is installed from its own locks.
    assert (copied / "cmd" / "requirements.cuda.txt").is_file()


@pytest.mark.e2e
@pytest.mark.long
@pytest.mark.parametrize("variant", ["unpinned", "${system.arch}"])
def test_a_copy_is_pinned_as_its_suite_says_and_has_what_its_program_imports(
    milabench: Milabench, tmp_path: Path, environ: dict[str, str], variant: str
) -> None:
    _, variables, _ = installable(tmp_path, environ["MILABENCH_BASE"])
    environ.update(variables)
    wheel(tmp_path / "wheels", *ADDED[0].split("=="))  # type: ignore[arg-type]
    plain = tmp_path / "old" / "plain"
    plain.mkdir(parents=True)
    (plain / "benchfile.py").write_text(WITHOUT_VOIR)
    (plain / "main.py").write_text(IMPORTING)
    old = tmp_path / "old" / "suite.yaml"
    old.write_text(
        f"profile: quick\none: {{definition: plain, install_variant: '{variant}', plan: {{method: njobs, n: 1}}, weight: 1.0}}\n"
    )
    said = milabench("import-suite", str(old), "--into", str(tmp_path / "mine"))
    assert said.code == 0, said.err
    suite = tmp_path / "mine" / "suite.yaml"
    is_unpinned = variant == "unpinned"
    key = f"remove `install_variant: unpinned` from {suite}"
    assert (key in said.err, "milabench pin" in said.out) == (is_unpinned, not is_unpinned)
    pinned = milabench("pin", "--config", str(suite), "--arch", "cpu")
    assert pinned.code == 0, pinned.err
    line = next((n for n, text in enumerate(suite.read_text().splitlines(), 1) if "unpinned" in text), 0)
    assert (f"remove `install_variant: unpinned` at {suite}:{line}:" in pinned.err) == is_unpinned
    planned = milabench("plan", "install", "--config", str(suite), "--arch", "cpu", "--json")
    (venv,) = json.loads(planned.out)["venvs"]
    assert venv["variant"] == ("unpinned" if is_unpinned else "cpu")
    for verb in ("install", "run"):
        done = milabench(verb, "--config", str(suite), "--arch", "cpu")
        assert done.code == 0, done.out + done.err


@pytest.mark.skipif("MILABENCH13" not in os.environ, reason="MILABENCH13 names no checkout of milabench 1.3")
def test_the_suite_of_the_real_project(milabench: Milabench, tmp_path: Path) -> None:
    standard = Path(os.environ["MILABENCH13"], "config", "standard.yaml")
    said = milabench("import-suite", str(standard), "--into", str(tmp_path / "mine"))
    assert said.code == 0, said.err
    became = dict(line.split(maxsplit=1) for line in said.out.splitlines() if not line.startswith((" ", "created")))
    assert len(became) == 54
    assert {name for name, what in became.items() if what.startswith("whole")} >= {"resnet50", "bert-fp32", "dqn"}
    assert (became["resnet50"], became["bert-fp32"]) == ("whole", f"whole; requirements.in has {ADDED[0]} too")
    mine = tmp_path / "mine" / "benchmarks"
    for folder in (path.parent for path in mine.glob("*/benchfile.py") if "__pack__" not in path.read_text()):
        assert "torchcompat" in (folder / "requirements.in").read_text(), folder.name
    kept = {name for name, what in became.items() if what.startswith("kept")}
    assert {"focalnet", "llm-lora-single", "vjepa-gpus"} <= kept
    assert not kept & {"lightning-gpus", "diffusion-nodes", "vllm-moe-code-gpus"}
