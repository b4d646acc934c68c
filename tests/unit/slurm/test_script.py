"""Batch scripts as text; UPDATE_GOLDEN=1 writes the golden files again."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from milabench.config.schema import SlurmConfig
from milabench.errors import ConfigError
from milabench.schedulers.scheduler import JobText, job_name
from milabench.slurm.script import batch_script, resource_options, script_options

EVERYTHING = SlurmConfig(
    partition="gpu,long",
    account="def-lab",
    qos="high",
    time="1-02:30:00",
    constraint="a100&nvlink",
    gpus_per_node="a100:4",
    nodes=2,
    reservation="it's ours",
    nodelist="n[1-4]",
    exclude="n9",
    extra=("--switches=1", "--licenses=a:1 # not a comment"),
)
COMMAND = ("/opt/my env/bin/python", "-m", "milabench", "job", "--run", "/runs/a $(b) 'c'", "--share", "s1")
SHARED = SlurmConfig(exclusive=False)


def script(slurm: SlurmConfig = SHARED, output: str = "/runs/r/jobs/s1.out", **others: object) -> str:
    values = {"marker": "k3v9", "share": "s1", "command": COMMAND, "output": Path(output), **others}
    return batch_script(slurm, JobText(**values))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("plain", script()),
        ("everything", script(EVERYTHING, output="/runs/100%j of it/s1.out")),
        ("array", script(replace(SHARED, nodes=1), command=COMMAND[:-1], tasks=("s1", "s2", "s 3"))),
    ],
)
def test_a_batch_script_is_what_the_golden_file_shows(name: str, text: str, root: Path) -> None:
    golden = root / "tests" / "golden" / f"batch_script.{name}.sh"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\u00a0"])
def test_a_separator_that_ends_no_line_of_a_shell_ends_none_here(separator: str) -> None:
    text = script(replace(SHARED, partition=f"a{separator}b"), output=f"/runs/a{separator}b/s1.out")
    assert f"--partition=a{separator}b" in script_options(text)
    assert f"--output=/runs/a{separator}b/s1.out" in script_options(text)


def test_the_options_of_a_script_are_read_back_from_it() -> None:
    options = script_options(script(EVERYTHING, output="/a b/%j.out"))
    assert options[:6] == [
        "--parsable",
        "--no-requeue",
        "--job-name=mb-k3v9-s1",
        "--comment=k3v9",
        "--output=/a b/%%j.out",
        "--open-mode=append",
    ]
    assert tuple(options[6:]) == resource_options(EVERYTHING)
    assert options[-2:] == list(EVERYTHING.extra)


@pytest.mark.parametrize("number", [0, 1])
def test_each_task_of_an_array_runs_the_command_with_its_own_word(number: int, tmp_path: Path) -> None:
    path = tmp_path / "job.sh"
    path.write_text(script(command=("printf", "[%s]", "a b", "$HOME"), tasks=("s1", "s'2 $(x)")))
    environ = {"SLURM_ARRAY_TASK_ID": str(number), "PATH": os.environ["PATH"]}
    output = subprocess.check_output(["sh", path], env=environ, text=True)
    assert output == f"[a b][$HOME][{('s1', chr(115) + chr(39) + '2 $(x)')[number]}]"


def test_nodes_of_our_own_come_with_all_their_memory_unless_it_is_stated() -> None:
    assert resource_options(SlurmConfig()) == ("--exclusive", "--mem=0")
    assert resource_options(SlurmConfig(extra=("--mem-per-cpu=2G",))) == ("--exclusive", "--mem-per-cpu=2G")
    assert resource_options(SHARED) == ()


def test_the_names_of_all_jobs_of_a_run_begin_alike() -> None:
    assert job_name("k3v9", "s12").startswith(job_name("k3v9", ""))
    assert not job_name("k3v91", "s12").startswith(job_name("k3v9", ""))


@pytest.mark.parametrize(
    ("slurm", "message"),
    [
        (SlurmConfig(partition="gpu\n#SBATCH --uid=0"), "a line break or control character"),
        (SlurmConfig(extra=("--switches=1\necho",)), "a line break or control character"),
        (SlurmConfig(extra=("switches=1",)), "expected an option such as --switches=1, got 'switches=1'"),
        (SlurmConfig(extra=("--job-name=x",)), "milabench sets --job-name itself"),
        (SlurmConfig(extra=("--requeue",)), "milabench sets --requeue itself"),
        (SlurmConfig(extra=("--job-nam=x",)), "milabench sets --job-nam itself"),
        (SlurmConfig(extra=("--comm=x",)), "milabench sets --comm itself"),
        (SlurmConfig(extra=("-Jx",)), "milabench sets -Jx itself"),
        (SlurmConfig(extra=("-Ho/tmp/x",)), "milabench sets -Ho/tmp/x itself"),
        (
            SlurmConfig(extra=("--export=ALL,HF_TOKEN=abcdef",)),
            r"--export=ALL,HF_TOKEN=\*\*\*: a secret would stand in",
        ),
    ],
)
def test_what_slurm_would_read_as_something_else_is_refused(slurm: SlurmConfig, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        script(slurm)
    assert "\n" not in str(error.value)


def test_an_option_that_is_named_like_a_secret_is_none() -> None:
    assert resource_options(replace(SHARED, extra=("--wckey=project",))) == ("--wckey=project",)


@pytest.mark.parametrize("output", ["/runs/a\nb", "/runs/a\\b"])
def test_an_output_that_slurm_cannot_write_is_refused(output: str) -> None:
    with pytest.raises(ConfigError):
        script(output=output)
