"""`milabench driver`: task files as they are, without the defects of the program that they were written for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands import ROOT, Said
from tests.processes import is_gone, until

KNOWN = json.loads((ROOT / "tests" / "golden" / "known_answers.json").read_text())["seed003"]
SPEEDS = (("829.012392", "844.157227", "835.582445"), ("797.687061", "821.444257", "810.339386"))
EPOCHS = (("0.248027", "69.030488", "0.296484"), ("0.351983", "61.266612", "0.393930"))
# As the document shows it: with a space before every line.
DOCUMENT = r"""
 [resnet50_cifar10_imperative]
 patterns = ['Speed: (\d+\.\d+|\d+) samples/sec', 'training: accuracy=(\d+\.\d+|\d+)', 'validation: accuracy=(\d+\.\d+|\d+)', 'time cost: (\d+\.\d+|\d+)']
 metrics = ['speed', 'training_acc', 'validation_acc', 'total_training_time']
 compute_method = ['average', 'last', 'last', 'total']
 command_to_execute = cat train.log --gpus 8 2>/dev/null; true
 num_gpus = 8
"""  # noqa: E501  lines of a user's file
TASK = "resnet50_cifar10_imperative"
RESULT = "dlbenchmark_result.json"


def section(name: str, command: str, pattern: str = r"loss (\d+\.\d+|\d+)") -> str:
    return (
        f"[{name}]\npatterns = [{pattern!r}]\nmetrics = ['loss']\ncompute_method = ['last']\n"
        f"command_to_execute = {command}\nnum_gpus = 0\n"
    )


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder as a user of task files has it."""
    folder = tmp_path / "work"
    folder.mkdir()
    lines = []
    for epoch, (speeds, (training, cost, validation)) in enumerate(zip(SPEEDS, EPOCHS, strict=True)):
        lines += [f"INFO:root:Epoch[{epoch}] Batch [49]\tSpeed: {speed} samples/sec\taccuracy=0.1" for speed in speeds]
        lines += [f"INFO:root:[Epoch {epoch}] training: accuracy={training}", f"[Epoch {epoch}] time cost: {cost}"]
        lines += [f"INFO:root:[Epoch {epoch}] validation: accuracy={validation}"]
    (folder / "train.log").write_text("\n".join(lines) + "\n")
    (folder / "task_config_template.cfg").write_text(DOCUMENT)
    return folder


@pytest.fixture
def driver(milabench: Callable[..., Said], here: Path) -> Callable[..., Said]:
    """`milabench driver ARGUMENTS` in that folder, with the task file that holds these sections."""

    def run(*argv: str, cfg: str = "", **more: str) -> Said:
        if cfg:
            (here / "task_config_template.cfg").write_text(cfg)
        return milabench("driver", "--display", "plain", *argv, cwd=here, **more)

    return run


def result(here: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((here / RESULT).read_text())
    return {name: value for name, value in found.items() if "memory" not in name and "uptime" not in name}


def test_the_documents_log_gives_the_known_answers_and_the_same_when_run_twice(
    driver: Callable[..., Said], here: Path, environ: dict[str, str]
) -> None:
    expected = {
        f"mxnet.{TASK}.speed.daily": pytest.approx(KNOWN["average"]),
        f"mxnet.{TASK}.training_acc.daily": KNOWN["last_training"],
        f"mxnet.{TASK}.validation_acc.daily": KNOWN["last_validation"],
        f"mxnet.{TASK}.total_training_time.daily": pytest.approx(KNOWN["total_time"]),
    }
    words = ("--task-name", TASK, "--num-gpus", "0", "--framework", "mxnet", "--metrics-suffix", "daily")
    for workers in ("", "2"):
        said = driver(*words, DEEPLEARNING_WORKERS_COUNT=workers)
        assert said.code == 0, said.err
        expected[f"mxnet.{TASK}.total_training_time.daily"] = pytest.approx(KNOWN["total_time"] / int(workers or 1))
        assert result(here) == expected
        assert f'{TASK}.speed.daily": 823.037128,' in (here / RESULT).read_text()
    logs = list(Path(environ["MILABENCH_BASE"]).glob(f"runs/*/{TASK}.0.stdout"))
    assert [log.read_text() for log in logs] == 2 * [(here / "train.log").read_text()]


def test_memory_is_that_of_the_whole_process_tree(driver: Callable[..., Said], here: Path) -> None:
    child = "import time; held = bytearray(b'x') * (96 << 20); time.sleep(2); print('loss 1')"
    said = driver("--task-name", "t", "--json", cfg=section("t", f'true; python3 -c "{child}" | cat'))
    assert said.code == 0, said.err
    told = json.loads(said.out)
    assert told["t.cpu_memory_usage_max"] > 96 * 1024
    assert told["t.cpu_memory_usage"] <= told["t.cpu_memory_usage_max"]
    assert told == json.loads((here / RESULT).read_text())


def test_an_exit_code_is_a_failure_and_leaves_no_result_of_an_earlier_run(
    driver: Callable[..., Said], here: Path
) -> None:
    (here / RESULT).write_text("{}")
    said = driver("--task-name", "t", cfg=section("t", "echo loss 1; echo no luck >&2; exit 7"))
    assert said.code == 1
    assert "error: t.0: exit: no luck; " in said.err
    assert not (here / RESULT).exists()


def test_a_metric_that_is_not_found_is_a_failure_and_our_own_messages_are_never_parsed(
    driver: Callable[..., Said], here: Path, environ: dict[str, str]
) -> None:
    said = driver("--task-name", "t", cfg=section("t", "true", r"(?:run|task|command)\D*(\d+)"))
    assert said.code == 1
    assert "error: t.0: no-data: metric loss: no line of the output matched" in said.err
    assert not (here / RESULT).exists()
    (journal,) = Path(environ["MILABENCH_BASE"]).glob("runs/*/journal.jsonl")
    ends = [entry for entry in map(json.loads, journal.read_text().splitlines()) if entry.get("state") == "ended"]
    assert [(entry["outcome"], entry["why"]) for entry in ends] == [("failed", "no-data")]


def test_a_log_that_is_not_utf_8_and_not_a_number_are_read(driver: Callable[..., Said], here: Path) -> None:
    said = driver("--task-name", "t", cfg=section("t", r"printf '\377\376 100%% loss 1e-05\r\n'"))
    assert (said.code, result(here)) == (0, {"t.loss": 1e-05})
    said = driver("--task-name", "t", cfg=section("t", "echo loss nan", r"loss (\S+)"))
    assert said.code == 1
    assert "last of 1 values is not a finite number" in said.err


def test_at_the_time_limit_all_that_the_command_started_is_ended(driver: Callable[..., Said], here: Path) -> None:
    command = "(sleep 600; true) & echo $! > grandchild; echo loss 1; wait"
    said = driver("--task-name", "t", "--timeout", "1s", cfg=section("t", command))
    assert said.code == 1
    assert "t.0: timeout: " in said.err
    grandchild = int((here / "grandchild").read_text())
    until(lambda: is_gone(grandchild), "the grandchild's end")


def test_a_metrics_policy_goes_with_any_command(driver: Callable[..., Said], here: Path) -> None:
    policy = DOCUMENT.replace(" command_to_execute", " #").replace(" num_gpus", " #")
    words = ("--metrics-policy", TASK, "--task-name", "p3.bs32", "--command-to-execute", "cat train.log # ${HOME} {x}")
    said = driver(*words, "--num-gpus", "2", "--data-set", "imagenet", cfg=policy)
    assert said.code == 0, said.err
    assert result(here)["p3.bs32.speed"] == pytest.approx(KNOWN["average"])
    assert "warning: --data-set imagenet: nothing is downloaded" in said.err
    assert "2 GPUs were requested" in said.err
    alone = driver("--task-name", TASK)
    assert alone.code == 2
    assert "it has metrics only, and no command_to_execute" in alone.err


@pytest.mark.parametrize(
    ("words", "cfg", "says"),
    [
        ((), "", "error: no task: give --task-name T, or --metrics-policy"),
        (("--task-name", "t", "--config", "none.cfg"), "", "none.cfg: cannot be read: no such file or directory"),
        (("--task-name", "t"), section("tt", "true"), "unknown section. Did you mean 'tt'?"),
        (("--task-name", "t"), section("t", "true", "loss ("), ":2:13: t.patterns: 'loss (' is not usable: missing )"),
        (("--task-name", "t", "--epochs", "3"), section("t", "true"), "its command has no --epochs to replace"),
        (("--metrics-policy", "t"), "", "--metrics-policy and --command-to-execute go together"),
    ],
)
def test_bad_input_is_one_line_with_its_place(
    driver: Callable[..., Said], words: tuple[str, ...], cfg: str, says: str
) -> None:
    said = driver(*words, cfg=cfg)
    assert said.code == 2
    assert says in said.err


def test_a_task_in_a_suite_is_reported_with_units_and_directions(
    milabench: Callable[..., Said], here: Path, tmp_path: Path
) -> None:
    (here / "task_config_template.cfg").write_text(DOCUMENT.replace(" --gpus 8", ""))
    suite = {
        "profile": "quick",
        TASK: {
            "driver": "work/task_config_template.cfg",
            "metrics": {"speed": {"units": "samples/s", "direction": "higher"}, "training_acc": {"reduce": "first"}},
        },
    }
    (tmp_path / "suite.yaml").write_text(json.dumps(suite))
    said = milabench("run", "--config", str(tmp_path / "suite.yaml"))
    assert said.code == 0, said.err
    (bench,) = json.loads(milabench("report", "--json").out)["benchmarks"]
    assert (bench["perf"], bench["units"]) == (pytest.approx(KNOWN["average"]), "samples/s")
    assert bench["spread_within"] == pytest.approx(KNOWN["stdev"] / KNOWN["average"], rel=1e-3)
    assert {one["metric"]: one["value"] for one in bench["metrics"]}["training_acc"] == 0.248027


@pytest.mark.parametrize(
    ("about", "says"),
    [
        ({"task": "x"}, "bench.task: a task needs its driver"),
        ({"driver": "work/task_config_template.cfg", "task": "x"}, "x: unknown section"),
        (
            {"driver": "work/task_config_template.cfg", "task": TASK, "metrics": {"sped": {"units": "s"}}},
            "bench.metrics.sped: the key 'pattern' is missing. Did you mean 'speed'?",
        ),
        (
            {"command": "true", "metrics": {"speed": {"units": "s"}}},
            "bench.metrics.speed: the key 'pattern' is missing",
        ),
    ],
)
def test_a_task_in_a_suite_that_cannot_be_is_an_error_with_its_place(
    milabench: Callable[..., Said], here: Path, tmp_path: Path, about: dict[str, Any], says: str
) -> None:
    (tmp_path / "suite.yaml").write_text(json.dumps({"bench": about}, indent=1))
    said = milabench("list", "--config", str(tmp_path / "suite.yaml"))
    assert said.code == 2
    assert says in said.err


def test_what_is_not_found_is_tried_again_where_that_is_asked_for(
    milabench: Callable[..., Said], tmp_path: Path
) -> None:
    line = "if [ -e seen ]; then echo loss 1; else touch seen; fi"
    about = {"command": line, "shell": True, "cwd": ".", "metrics": {"loss": {"pattern": r"loss (\d)"}}}
    (tmp_path / "suite.yaml").write_text(json.dumps({"profile": "quick", "bench": about}))
    said = milabench("run", "--config", str(tmp_path / "suite.yaml"), "--max-retries", "1")
    assert said.code == 0, said.err
    (bench,) = json.loads(milabench("report", "--json").out)["benchmarks"]
    assert [(one["step"], one["others"][0]["why"]) for one in bench["flaky"]] == [("bench.D0", "no-data")]


def test_a_secret_of_the_environment_in_the_command_is_in_no_file(
    driver: Callable[..., Said], here: Path, tmp_path: Path
) -> None:
    secret = "s3cr3t-of-mine"
    command = f"test {secret} = '{secret}' && echo loss 0.5 {secret}"
    said = driver("--task-name", "t", cfg=section("t", command), CI_TOKEN=secret)
    assert said.code == 0, said.err
    written = [path.read_text(errors="replace") for path in (tmp_path / "base").rglob("*") if path.is_file()]
    assert [text for text in written if secret in text] == []
    assert any("${oc.env:CI_TOKEN}" in text for text in written)


def test_a_file_that_is_no_result_of_ours_is_refused_before_anything_runs(
    driver: Callable[..., Said], here: Path
) -> None:
    """A task that fails must not cost a file that matters."""
    (here / "thesis.tex").write_text("mine")
    said = driver("--task-name", "t", "--result", "thesis.tex", cfg=section("t", "touch ran; exit 7"))
    assert said.code == 2
    assert "--result thesis.tex: exists, and is no result of `milabench driver`. Choose another name" in said.err
    assert ((here / "thesis.tex").read_text(), (here / "ran").exists()) == ("mine", False)


def test_a_link_a_pipe_and_a_device_stay_what_they_are(driver: Callable[..., Said], here: Path) -> None:
    (here / "result.json").write_text('{"t.loss": 2.0}')
    (here / "link").symlink_to("result.json")
    (here / "null").symlink_to("/dev/null")
    cfg = section("t", "echo loss 1")
    for name in ("link", "null"):
        assert driver("--task-name", "t", "--result", name, cfg=cfg).code == 0
        assert (here / name).is_symlink()
    assert json.loads((here / "result.json").read_text())["t.loss"] == 1.0
    assert Path("/dev/null").is_char_device()
