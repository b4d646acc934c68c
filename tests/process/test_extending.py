"""Each row of "To add something" (docs/contributing.md), done in a copy of the tree: one or two files, then it works."""

from __future__ import annotations

import csv
import filecmp
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.serving_runs import serving_run

ROOT = Path(__file__).resolve().parents[2]
CEILING_S = 120


@dataclass(frozen=True)
class Copy:
    """A copy of the package, whose files a test changes before it runs its command line."""

    root: Path
    touched: set[str] = field(default_factory=set)  # files of the package that a change edits or adds

    @property
    def package(self) -> Path:
        return self.root / "orchestrator" / "milabench"

    def write(self, name: str, text: str) -> None:
        self.touched.add(name)
        (self.package / name).write_text(text)

    def insert(self, name: str, after: str, line: str) -> None:
        """Add a line behind the first one that ends in `after`."""
        text = (self.package / name).read_text()
        assert after in text, f"{name} has no line with {after!r}"
        head, tail = text.split(f"{after}\n", 1)
        self.write(name, f"{head}{after}\n{line}\n{tail}")

    def replace(self, name: str, old: str, new: str) -> None:
        text = (self.package / name).read_text()
        assert text.count(old) == 1, f"{name} has {text.count(old)} times {old!r}"
        self.write(name, text.replace(old, new))

    def python(self, *argv: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        environ = {**os.environ, "PYTHONPATH": str(self.root / "orchestrator"), "PYTHONDONTWRITEBYTECODE": "1"}
        environ["MILABENCH_BASE"] = str(self.root / "base")
        environ["MILABENCH_LOCK_DIR"] = str(self.root / "locks")
        done = subprocess.run(
            [sys.executable, *argv],
            cwd=self.root,
            env=environ,
            capture_output=True,
            text=True,
            timeout=CEILING_S,
            check=False,
        )
        assert not check or done.returncode == 0, done.stderr + done.stdout
        return done

    def milabench(self, *argv: str, check: bool = True) -> str:
        """Run the copy's command line; its standard output."""
        return self.python("-m", "milabench", *argv, check=check).stdout

    @property
    def edited(self) -> list[str]:
        """The files of the package that are not as they were."""
        return [
            file.relative_to(self.package).as_posix()
            for file in sorted(self.package.rglob("*.py"))
            if not filecmp.cmp(file, ROOT / file.relative_to(self.root), shallow=False)
        ]

    def suite(self, text: str) -> str:
        path = self.root / "suite.yaml"
        path.write_text(text)
        return str(path)


PRINT_CHECKS = "import runpy; print(runpy.run_path('docs/checks_page.py')['page']())"
ECHO = """
echo:
  {install_group: e, plan: {method: njobs, n: 1}, command: [echo, "speed: 5"], metrics: {speed: {pattern: "speed: (.*)"}}}
"""

MEASURED = """
echo:
  {install_group: e, plan: {method: njobs, n: 1}, command: [echo, "rate 5"],
   metrics: {rate: {pattern: "rate (.*)", direction: higher}}}
"""


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    # With its byte code, which is valid for files with their times: each start would compile all of it.
    shutil.copytree(ROOT / "orchestrator" / "milabench", tmp_path / "orchestrator" / "milabench")
    (tmp_path / "config").mkdir()
    (tmp_path / "docs").mkdir()
    shutil.copy(ROOT / "docs" / "checks_page.py", tmp_path / "docs")
    return Copy(tmp_path)


@pytest.fixture
def run(copy: Copy) -> Callable[..., Path]:
    """Runs a suite of the copy with the active interpreter; the run directory."""

    def run(text: str, *argv: str) -> Path:
        copy.milabench("run", "--use-current-env", "--config", copy.suite(text), "--profile", "quick", *argv)
        [path] = (copy.root / "base" / "runs").iterdir()
        return path

    return run


def test_a_check_is_a_module_and_a_line_in_the_registry(copy: Copy, run: Callable[..., Path]) -> None:
    copy.write(
        "checks/greeting.py",
        '''
from milabench.checks.check import Check
from milabench.events.model import Verdict


class GreetingCheck(Check):
    """Warn about a program that was started with a greeting."""

    name = "greeting"
    doc = "the command line"
    severities = ("warn",)
    doubt = "validation"

    def verdict(self, measured) -> Verdict:
        words = measured.start["command"]
        return self.warning(f"it says {' '.join(words)}", {"words": len(words)})
''',
    )
    copy.insert(
        "checks/registry.py",
        "from milabench.checks.rate import RateCheck",
        "from milabench.checks.greeting import GreetingCheck",
    )
    copy.insert("checks/registry.py", "    ForeignCheck,", "    GreetingCheck,")
    path = run(ECHO)
    report = json.loads(copy.milabench("report", str(path), "--json", "--validations", "greeting"))
    assert "it says echo speed: 5" in json.dumps(report)
    assert "| `greeting` | the command line |" in copy.python("-c", PRINT_CHECKS).stdout


def test_a_report_format_is_a_module_and_a_line_in_the_registry(copy: Copy, run: Callable[..., Path]) -> None:
    copy.write(
        "report/names.py",
        """
def render(summaries, traces=None):
    return "".join(f"{bench.bench}\\n" for summary in summaries for bench in summary.benchmarks)


def render_comparison(comparison, differences=None, traces=None):
    return "".join(f"{row.bench}\\n" for row in comparison.rows)


def render_acceptance(acceptance):
    return acceptance.verdict + "\\n"
""",
    )
    copy.insert(
        "report/registry.py",
        '    Format(name="csv", endings=(".csv",)),',
        '    Format(name="names", endings=(".names",)),',
    )
    path = run(ECHO)
    assert copy.milabench("report", str(path), "--format", "names") == "echo\n"
    criteria = copy.root / "criteria.yaml"
    criteria.write_text("required: [echo]\n")
    copy.milabench("accept", str(path), "--criteria", str(criteria), "-o", "verdict.names", check=False)
    assert (copy.root / "verdict.names").read_text() in ("PASS\n", "FAIL\n", "INCONCLUSIVE\n")
    assert copy.milabench("compare", str(path), str(path), "-f", "names", check=False) == "echo\n"


def test_a_column_of_the_report_is_one_declaration(copy: Copy, run: Callable[..., Path]) -> None:
    copy.insert(
        "report/columns.py",
        "COLUMNS: tuple[Column, ...] = (",
        """    Column(
        "launched",
        lambda b: f"{b.counts['passed']} times",
        spare=1,
        page=2,
        csv=(CsvField("launched", value=lambda b: b.counts["passed"]),),
    ),""",
    )
    path = run(ECHO, "--repeat", "2")
    report = ("report", str(path), "--full")
    assert "launched" in copy.milabench(*report)
    assert "| 2 times |" in copy.milabench(*report, "--format", "markdown")
    page = copy.milabench(*report, "--format", "html")
    assert page.index(">bench</th>") < page.index(">launched</th>") < page.index(">fail</th>")
    [row] = csv.DictReader(copy.milabench(*report, "--format", "csv").splitlines())
    assert row["launched"] == "2"
    assert copy.touched == {"report/columns.py"}


def test_a_reason_of_validity_is_a_declaration_and_the_code_that_raises_it(
    copy: Copy, run: Callable[..., Path]
) -> None:
    copy.insert(
        "events/doubts.py",
        "        return member",
        """
    LONELY = (
        "lonely",
        "it was measured once only",
        "measure it twice",
    )""",
    )
    copy.insert(
        "analysis/bench_summary.py",
        '        Doubt.WRONG: any(result.why == "wrong" for result in results),',
        "        Doubt.LONELY: len(processes) == 1,",
    )
    path = run(MEASURED, "--repeat", "1")
    [bench] = json.loads(copy.milabench("report", str(path), "--json"))["benchmarks"]
    assert (bench["validity"], "lonely" in bench["reasons"]) == ("suspect", True)
    assert "it was measured once only" in copy.milabench("report", str(path))
    assert "| `lonely` | it was measured once only | measure it twice |" in copy.python("-c", PRINT_CHECKS).stdout
    assert copy.touched == {"events/doubts.py", "analysis/bench_summary.py"}


def test_an_option_of_slurm_is_one_declaration(copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    copy.insert(
        "config/schema.py",
        '    reservation: str = key("Reservation to run in.", default="")',
        '    licenses: str = key("Licences that a job takes.", default="")',
    )
    suite = copy.suite(ECHO)
    system = copy.root / "system.yaml"
    system.write_text(
        "system: {engine: slurm, arch: cuda, slurm: {nodes: 1, licenses: 'solver:2', install_partition: net}}"
    )
    asked = ("--config", suite, "--system", str(system))
    scripts = copy.milabench("plan", "run", "--submit", "--use-current-env", *asked)
    assert "#SBATCH --licenses=solver:2" in scripts
    other = copy.milabench("plan", "run", "--submit", "--use-current-env", *asked, "--slurm-arg", "licenses=viewer")
    assert "#SBATCH --licenses=viewer" in other
    # A job that only installs takes none of them, although nothing says so of this one.
    srun = copy.root / "bin" / "srun"
    srun.parent.mkdir()
    srun.write_text('#!/bin/sh\necho "$@"\n')
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", f"{srun.parent}:{os.environ['PATH']}")
    installs = copy.milabench("install", *asked)
    assert "--partition=net --nodes=1" in installs
    assert "licenses" not in installs
    assert copy.touched == {"config/schema.py"}


def test_an_importer_is_a_module_and_an_entry_in_the_registry(copy: Copy) -> None:
    copy.write(
        "history/scores.py",
        """
from datetime import UTC, datetime

from milabench.events import wire
from milabench.events.model import Data, End
from milabench.history.importer import ForeignRun, ForeignStep, Importer, digest_of_pieces

FORMAT = "scores"


def can_read(source):
    return source.suffix == ".scores"


def read_runs(source, origin):
    steps = []
    for line in source.read_text().splitlines():
        name, value = line.split()
        data = {"metric": "score", "value": float(value), "units": "points", "direction": "higher", "main": True}
        records = wire.encode(Data(step=name, data=data)) + wire.encode(End(step=name, outcome="passed"))
        planned = {"id": name, "bench": name, "devices": [], "repeat": 0, "tag": ""}
        steps.append(ForeignStep(id=name, bench=name, planned=planned, outcome="passed", records=records))
    when = datetime.fromtimestamp(0, tz=UTC)
    digest = digest_of_pieces([(source.name, source.read_bytes())])
    about = {"format": FORMAT, "origin": origin, "version": FORMAT, "system": {}, "digest": digest}
    return [ForeignRun(name=source.stem, when=when, steps=steps, **about)], []


SCORES = Importer(can_read=can_read, read_runs=read_runs)
""",
    )
    copy.insert(
        "history/registry.py",
        "from milabench.history.nccl import NCCL_TESTS",
        "from milabench.history.scores import SCORES",
    )
    copy.replace("history/registry.py", "(MILABENCH13_RUNS, NCCL_TESTS)", "(SCORES, MILABENCH13_RUNS, NCCL_TESTS)")
    (copy.root / "old.scores").write_text("linpack 12.5\nstream 3\n")
    assert "2 benchmarks" in copy.milabench("import", "old.scores")
    report = json.loads(copy.milabench("report", "--json"))
    assert {bench["bench"]: bench["perf"] for bench in report["benchmarks"]} == {"linpack": 12.5, "stream": 3.0}


def test_a_config_key_is_one_declaration(copy: Copy) -> None:
    text = (copy.package / "config" / "schema.py").read_text()
    place = text.index("    tags: Annotated[")
    declared = '    license: str = key("Licence of the data.", default="")\n'
    copy.write("config/schema.py", text[:place] + declared + text[place:])
    suite = copy.suite(ECHO.replace("{install", "{license: MIT, install"))
    shown = copy.milabench("config", "show", "--config", suite)
    assert "license: MIT" in shown
    assert "| `license` |" in copy.milabench("config", "schema", "--markdown")
    wrong = copy.suite(ECHO.replace("{install", "{license: [1], install"))
    done = copy.python("-m", "milabench", "config", "check", wrong, check=False)
    assert done.returncode == 2
    assert f"{wrong}:3:" in done.stderr + done.stdout


def test_a_plan_method_is_a_value_and_its_name(copy: Copy, run: Callable[..., Path]) -> None:
    copy.insert(
        "plan/method.py",
        '    "per_gpu": PlanMethod(placements=_one_per_device),',
        '    "twice": PlanMethod(placements=lambda bench, nodes: (job for _ in "ab" for job in _n_per_node(bench, nodes))),',
    )
    text = (copy.package / "config" / "schema.py").read_text()
    copy.write("config/schema.py", text.replace('Literal["per_gpu"', 'Literal["twice", "per_gpu"'))
    plan = json.loads(
        copy.milabench(
            "plan",
            "run",
            "--use-current-env",
            "--json",
            "--repeat",
            "1",
            "--config",
            copy.suite(ECHO.replace("njobs", "twice")),
        )
    )
    assert len(plan["steps"]) == 2


def test_a_quantile_of_a_served_model_is_a_number_in_one_file(copy: Copy) -> None:
    copy.replace("records/latencies.py", "QUANTILES: Final = (50, 90, 99)", "QUANTILES: Final = (50, 90, 95, 99)")
    assert copy.edited == ["records/latencies.py"]
    path = str(serving_run(copy.root, slo={"ttft_p95_ms": 500.0}).path)
    text = copy.milabench("report", path, "--full")
    for latency in ("TTFT", "TPOT", "ITL", "whole request"):
        assert f"{latency} p95" in text
    assert "SLO: TTFT p95 <= 500 ms; kept at up to concurrency" in text
    [bench] = json.loads(copy.milabench("report", path, "--json"))["benchmarks"]
    values = bench["serving"]["points"][0]["values"]
    assert values["ttft_p90_ms"]["value"] <= values["ttft_p95_ms"]["value"] <= values["e2e_p95_ms"]["value"]
    assert ",ttft_p95_ms," in copy.milabench("report", path, "--format", "csv")
    suite = copy.suite(
        "chat: {definition: ., install_group: c, plan: {method: njobs, n: 1}, server: {url: 'http://x'},"
        " serve: {model: /m, concurrency: 1, slo: {tpot_p95_ms: 50}}}"
    )
    assert "tpot_p95_ms: 50" in copy.milabench("config", "show", "--config", suite)


def test_a_metric_of_a_served_model_is_an_entry_its_number_and_a_column(copy: Copy) -> None:
    copy.insert(
        "analysis/serving_model.py",
        '    "request_rate": ServingMetric(label="requests", units="requests/s", direction="higher"),',
        '    "per_minute": ServingMetric(label="requests of a minute", units="requests/min", direction="higher"),',
    )
    copy.insert(
        "sweeps/fold.py",
        '            values["request_rate"] = answered / window',
        '            values["per_minute"] = 60 * answered / window',
    )
    copy.insert(
        "sweeps/tables.py",
        '        _Column(heading="requests/s", cell=_number("request_rate"), rank=5),',
        '        _Column(heading="requests/min", cell=_number("per_minute"), rank=5),',
    )
    assert copy.edited == ["analysis/serving_model.py", "sweeps/fold.py", "sweeps/tables.py"]
    path = str(serving_run(copy.root).path)
    assert "requests/min" in copy.milabench("report", path, "--full")
    [bench] = json.loads(copy.milabench("report", path, "--json"))["benchmarks"]
    values = bench["serving"]["points"][0]["values"]
    assert values["per_minute"]["value"] == pytest.approx(60 * values["request_rate"]["value"])
    assert ",per_minute," in copy.milabench("report", path, "--format", "csv")


def test_a_benchmark_is_a_folder_and_an_entry_in_a_suite(copy: Copy, run: Callable[..., Path]) -> None:
    folder = copy.root / "benchmarks" / "hello"
    folder.mkdir(parents=True)
    (folder / "benchfile.py").write_text(
        'from milabench import Benchmark\n\nbenchmark = Benchmark(script="main.py", prepare=None)\n'
    )
    (folder / "main.py").write_text(
        "import time\n\n\ndef batches():\n    while True:\n        yield range(10)\n\n\n"
        "for batch in batches():\n    time.sleep(0.001)\n"
    )
    (folder / "voirfile.py").write_text(
        "from benchmate import probes\n\n\ndef instrument_main(ov):\n    yield ov.phases.load_script\n"
        "    probes.iterable(ov, '__main__.batches', units='items/s', batch_size=len)\n"
    )
    path = run(
        "hello: {definition: benchmarks/hello, install_group: h, plan: {method: njobs, n: 1}, max_duration: 60}\n",
        "--repeat",
        "1",
    )
    report = json.loads(copy.milabench("report", str(path), "--json"))
    [bench] = report["benchmarks"]
    assert (bench["outcome"], bench["units"]) == ("passed", "items/s")
    assert 0 < bench["perf"] <= 10_000  # ten items in no less than a millisecond


def test_an_executor_is_a_class_and_the_line_that_chooses_it(copy: Copy, run: Callable[..., Path]) -> None:
    copy.write(
        "execute/announcing.py",
        '''
from milabench.execute.agent_client import local_node


def announcing_node(*args, **options):
    """The local agent, which says on standard error that it is asked to run a step."""
    node = local_node(*args, **options)
    run = node.run

    async def announced(request, emit):
        with open("announced", "a") as file:
            print(request.step.id, file=file)
        return await run(request, emit)

    node.run = announced
    return node
''',
    )
    chooses = ", AgentNode, local_node\n"
    other = ", AgentNode\nfrom milabench.execute.announcing import announcing_node as local_node\n"
    copy.replace("workflow/execution.py", chooses, other)
    run(ECHO)
    assert (copy.root / "announced").read_text() == "echo.0\n"
