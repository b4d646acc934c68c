"""Batch scripts of Slurm: text, made from values. Nothing of them comes from the environment, and no secret is in them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING

from milabench.errors import ConfigError
from milabench.redaction import mask_argument
from milabench.schedulers.scheduler import JobText, job_name

if TYPE_CHECKING:
    from milabench.config.schema import SlurmConfig

_DIRECTIVE = "#SBATCH "
# Keys of `system.slurm` that are no option of the same name with a value.
_NO_SLURM_VALUES = frozenset(("exclusive", "install_partition", "extra"))
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
# By these a job is found again, its output read and its end believed; whoever sets another loses it.
_OURS = (
    *("--job-name", "--comment", "--output", "--error", "--open-mode", "--parsable", "--requeue", "--no-requeue"),
    *("--array", "--dependency", "--wait", "--wrap", "--test-only"),
)
# Their short forms, which may stand behind short flags and before their values.
_OURS_SHORT = re.compile(r"-[HIOQksv]*[JoeadW]")


def batch_script(slurm: SlurmConfig, job: JobText) -> str:
    """Return the batch script of a job. Its options come from `slurm`, `slurm.extra` last.

    Other nodes or another partition than the suite's: `dataclasses.replace` of `slurm`. Raises ConfigError for values that
    Slurm would read as something else.
    """
    lines = ["#!/bin/sh", *(f"{_DIRECTIVE}{shlex.quote(word)}" for word in _options(slurm, job))]
    if job.tasks:
        lines += ['case "$SLURM_ARRAY_TASK_ID" in']
        lines += [f"{number}) set -- {shlex.quote(word)} ;;" for number, word in enumerate(job.tasks)]
        lines += ["esac"]
    # exec: what Slurm ends first, and whose exit code it records, is the command itself.
    task = ' "$1"' if job.tasks else ""
    lines += [f"exec {shlex.join(job.command)}{task}"]
    return "\n".join(lines) + "\n"


def script_options(script: str) -> list[str]:
    """Return the options that a batch script gives to sbatch."""
    lines = script.split("\n")  # as sbatch: U+2028 and others, in the name of a partition or a folder, end no line
    return [word for line in lines if line.startswith(_DIRECTIVE) for word in shlex.split(line[len(_DIRECTIVE) :])]


def resource_options(slurm: SlurmConfig) -> tuple[str, ...]:
    """Return the resources as options of sbatch, salloc and srun. Raises ConfigError."""
    values = {each.name: getattr(slurm, each.name) for each in fields(slurm) if each.name not in _NO_SLURM_VALUES}
    words = [f"--{name.replace('_', '-')}={value}" for name, value in values.items() if value]
    if slurm.exclusive:
        words.append("--exclusive")
        if not any(word.startswith(("--mem=", "--mem-per-")) for word in slurm.extra):
            words.append("--mem=0")  # all of it: a node of our own would come with the memory of one processor
    words += slurm.extra
    for word in words:
        _require_readable(word)
    for word in slurm.extra:
        if not word.startswith("-"):
            raise ConfigError(f"system.slurm.extra: expected an option such as --switches=1, got {word!r}")
        name = word.partition("=")[0]
        # sbatch takes any beginning of a long option for it.
        is_ours = any(long.startswith(name) for long in _OURS) if name.startswith("--") else _OURS_SHORT.match(word)
        if is_ours:
            raise ConfigError(f"system.slurm.extra: {word}: milabench sets {name} itself")
    return tuple(words)


def _options(slurm: SlurmConfig, job: JobText) -> Iterator[str]:
    name = job_name(job.marker, job.share)
    for word in (name, job.marker, str(job.output)):
        _require_readable(word)
    if "\\" in str(job.output):
        raise ConfigError(f"{job.output}: Slurm cannot write to a path with a backslash. Choose another base")
    # Slurm expands %j and others in it; a task's output is a file of its own.
    file = str(job.output).replace("%", "%%")
    yield "--parsable"
    yield "--no-requeue"  # Slurm's default is to start a job afresh after the loss of a node: its records would be mixed
    yield f"--job-name={name}"
    yield f"--comment={job.marker}"
    yield f"--output={file}{'.%a' if job.tasks else ''}"
    yield "--open-mode=append"
    yield from resource_options(slurm)


def _require_readable(word: str) -> None:
    if _CONTROL.search(word):
        raise ConfigError(f"system.slurm: {word!r}: a line break or control character in an option of Slurm")
    # Of the value alone: an option such as --wckey is named like a secret.
    name, _, value = word.partition("=")
    if mask_argument(value) != value:
        raise ConfigError(
            f"system.slurm: {name}={mask_argument(value)}: a secret would stand in the batch script. Set its variable where you"
            " type the command: jobs inherit it"
        )
