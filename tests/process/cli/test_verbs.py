"""The verbs that tell: list, plan, config, doctor, new, install of the current environment."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from tests.commands import ROOT, Said

from .conftest import HERE


def test_help_and_version_import_nothing_heavy(milabench: Callable[..., Said]) -> None:
    import subprocess
    import sys

    probe = (
        "import sys; sys.argv = ['milabench', '--help']\n"
        "from milabench.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(sorted({'yaml', 'omegaconf', 'rich', 'asyncssh', 'unearth', 'asyncio'} & set(sys.modules)))"
    )
    said = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert said.stdout.splitlines()[-1] == "[]"


def test_list_has_a_row_for_each_benchmark(milabench: Callable[..., Said]) -> None:
    said = milabench("list", "--config", HERE[2], "--select", "fine", "--json")
    assert [row["name"] for row in json.loads(said.out)["benchmarks"]] == ["good", "a b"]


def test_what_a_benchmark_stands_for_is_listed_recorded_and_reported(
    milabench: Callable[..., Said], tmp_path: Path
) -> None:
    """Also on another machine: a report is made of the run directory, when the benchmark's folder is gone."""
    shutil.copytree(ROOT / "tests" / "suite", tmp_path / "suite")
    here = ("--use-current-env", "--config", str(tmp_path / "suite" / "odd.yaml"), "--select", "good")
    (tmp_path / "suite" / "odd" / "README.md").write_text("# odd\n\nOdd ends: programs that <b>end</b>. And more.\n")
    shown = "Odd ends: programs that <b>end</b>"
    (row,) = json.loads(milabench("list", *here[1:], "--json").out)["benchmarks"]
    assert row["about"] == shown and shown in milabench("list", *here[1:]).out
    assert milabench("prepare", *here).code == 0
    assert milabench("run", *here).code == 0
    shutil.rmtree(tmp_path / "suite")
    (bench,) = json.loads(milabench("report", "--json").out)["benchmarks"]
    assert bench["about"] == shown
    assert "Odd ends" in milabench("report").out
    for form, text in (
        ("text", shown),
        ("markdown", r"Odd ends: programs that \<b\>end\</b\>"),
        ("html", "&lt;b&gt;end"),
    ):
        assert text in milabench("report", "--format", form).out


def test_plan_run_is_the_value_that_the_manifest_keeps(prepared: Callable[..., Said], environ: dict[str, str]) -> None:
    seed = ("--seed", "7")
    plan = json.loads(prepared("plan", "run", *HERE, "--select", "good", *seed, "--json").out)
    assert prepared("run", *HERE, "--select", "good", *seed).code == 0
    (manifest,) = Path(environ["MILABENCH_BASE"], "runs").glob("run.*/manifest.json")
    kept = json.loads(manifest.read_text())
    assert kept["plan_hash"] == plan["hash"]
    assert [step["hash"] for step in kept["plan"]["steps"]] == [step["hash"] for step in plan["steps"]]


def test_several_slots_of_the_processor_stand_in_for_devices(prepared: Callable[..., Said], tmp_path: Path) -> None:
    (tmp_path / "system.yaml").write_text("system: {arch: cpu, gpu: {count: 2}}\n")
    system = ("--system", str(tmp_path / "system.yaml"))
    assert prepared("run", *HERE, *system, "--select", "good").code == 0
    report = json.loads(prepared("report", "--json").out)
    (bench,) = report["benchmarks"]
    assert bench["processes"] == 2
    assert bench["counts"]["planned"] == 2


def test_explain_says_where_a_value_was_set_and_what_it_replaced(milabench: Callable[..., Said]) -> None:
    said = milabench("config", "explain", "hang.max_duration", "--config", HERE[2], "--override", "hang.max_duration=9")
    first, second, *rest = said.out.splitlines()
    assert first == "hang.max_duration = 9"
    assert "--override" in second
    assert "replaces 2, set at" in rest[0]


def test_show_of_the_suite_can_be_read_back(milabench: Callable[..., Said], tmp_path: Path) -> None:
    shown = milabench("config", "show", "--config", HERE[2]).out
    (tmp_path / "shown.yaml").write_text(shown)
    assert milabench("config", "show", "--config", str(tmp_path / "shown.yaml")).out == shown


def test_install_of_the_current_environment_only_says_what_is_missing(
    milabench: Callable[..., Said], tmp_path: Path
) -> None:
    assert "has everything" in milabench("install", *HERE, "--select", "good").err
    folder = tmp_path / "needy"
    assert milabench("new", "needy", "--into", str(tmp_path)).code == 0
    (folder / "requirements.in").write_text("a-package-that-nobody-has==1.0\n")
    suite = str(folder / "suite.yaml")
    override = ("--override", "needy.install_variant=unpinned")
    said = milabench("install", "--use-current-env", "--config", suite, *override)
    assert said.code == 4
    assert "needy: needs a-package-that-nobody-has==1.0 (not installed) in " in said.err
    assert ": pip install a-package-that-nobody-has==1.0" in said.err


def test_in_the_current_environment_runs_what_its_packages_allow_and_the_rest_is_skipped(
    milabench: Callable[..., Said], tmp_path: Path
) -> None:
    for name, requirements in (("mine", "-r more.in\n"), ("needy", "-r more.in\nno-such-package>=1\nclick<1\n")):
        assert milabench("new", name, "--into", str(tmp_path)).code == 0
        (tmp_path / name / "requirements.in").write_text(requirements)
        (tmp_path / name / "more.in").write_text("click  # any version\n")
        (tmp_path / name / "requirements.cpu.txt").write_text("click==0.1\n")  # what an own environment would have
    suite = tmp_path / "both.yaml"
    suite.write_text("mine: {definition: mine}\nneedy: {definition: needy}\n")
    here = ("--use-current-env", "--config", str(suite))
    why = f"needs click<1 ({version('click')} is installed), no-such-package>=1 (not installed) in {sys.prefix}"
    said = milabench("install", *here)
    assert said.code == 0, said.err
    assert f"skipped: needy: {why}: pip install 'click<1' 'no-such-package>=1'" in said.err
    for words in (("prepare",), ("run", "--profile", "quick")):
        said = milabench(*words, *here)
        assert said.code == 0, said.err
    report = json.loads(milabench("report", "--json").out)
    assert {bench["bench"]: bench["outcome"] for bench in report["benchmarks"]} == {
        "mine": "passed",
        "needy": "skipped",
    }
    assert why in " ".join(milabench("report").out.split())  # however long the path, and wherever a line ends
    alone = milabench("run", *here, "--select", "needy")
    assert alone.code != 0
    assert why in alone.err


def test_the_three_verbs_say_the_same_of_files_that_are_not_there(
    milabench: Callable[..., Said], tmp_path: Path
) -> None:
    assert milabench("new", "bare", "--into", str(tmp_path)).code == 0
    folder = tmp_path / "bare"
    for path in folder.glob("requirements*"):
        path.unlink()
    suite = ("--use-current-env", "--config", str(folder / "suite.yaml"), "-s", "bare.install_variant=unpinned")
    warning = (
        f"warning: bare: has no requirements.in, so only benchmate is looked for in {sys.prefix}: "
        "write requirements.in, empty where nothing is needed\n"
    )
    for verb in ("install", "prepare", "run"):
        said = milabench(verb, *suite)
        assert (said.code, said.err.count(warning)) == (0, 1), said.err
    (folder / "main.py").unlink()
    refused = {verb: milabench(verb, *suite) for verb in ("install", "prepare", "run")}
    assert {said.code for said in refused.values()} == {2}
    for said in refused.values():
        assert f"error: {folder}/main.py: bare: no such file. Its benchfile names it" in said.err


def test_a_new_benchmark_passes_at_once(milabench: Callable[..., Said], tmp_path: Path) -> None:
    assert milabench("new", "mine", "--into", str(tmp_path)).code == 0
    suite = ("--use-current-env", "--config", str(tmp_path / "mine" / "suite.yaml"))
    for verb in ("prepare", "run"):
        said = milabench(verb, *suite)
        assert said.code == 0, said.err
    (bench,) = json.loads(milabench("report", "--json").out)["benchmarks"]
    assert (bench["outcome"], bench["units"]) == ("passed", "samples/s")


def test_a_new_benchmark_never_overwrites(milabench: Callable[..., Said], tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    said = milabench("new", "mine", "--into", str(tmp_path))
    assert said.code == 2
    assert "exists" in said.err


def test_doctor_says_what_is_missing_and_which_verb_makes_it(milabench: Callable[..., Said]) -> None:
    said = milabench("doctor", "--config", HERE[2], "--select", "good")
    assert said.code == 1
    assert f"next: `milabench install --config {HERE[2]} --select good" in said.out


def test_the_report_can_be_written_in_every_format(prepared: Callable[..., Said], tmp_path: Path) -> None:
    assert prepared("run", *HERE, "--select", "good").code == 0
    for form in ("text", "markdown", "json", "csv"):
        said = prepared("report", "--format", form, "-o", str(tmp_path / form))
        assert said.code == 0, said.err
        assert "good" in (tmp_path / form).read_text()


def test_a_definition_in_a_git_repository_is_fetched_at_install(
    milabench: Callable[..., Said], environ: dict[str, str], root: Path, tmp_path: Path
) -> None:
    import shutil
    import subprocess

    repository = tmp_path / "repository"
    shutil.copytree(root / "tests" / "suite" / "odd", repository, ignore=shutil.ignore_patterns("__pycache__"))
    for words in ("init -q -b main", "add .", "-c user.name=a -c user.email=a@b.c commit -q -m first"):
        subprocess.run(["git", *words.split()], cwd=repository, check=True)
    (tmp_path / "suite.yaml").write_text(
        f"odd: {{definition: {{git: '{repository}', branch: main}}, install_variant: unpinned, argv: [good]}}\n"
    )
    suite = ("--use-current-env", "--config", str(tmp_path / "suite.yaml"))
    assert "not fetched" in milabench("run", *suite).err
    assert milabench("install", *suite).code == 0
    assert Path(environ["MILABENCH_BASE"], "code", "repository-main", "benchfile.py").is_file()
    assert milabench("prepare", *suite).code == 0
    said = milabench("run", *suite)
    assert said.code == 0, said.err
