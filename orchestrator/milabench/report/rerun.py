"""The command that measures a run again, as a whole or a single benchmark."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from milabench.analysis.summary_model import Summary
from milabench.shown import is_lock, option_words

# Options of `run` that the command which reruns one benchmark replaces or leaves out.
_SELECTING = ("--select", "--exclude", "--run-name")
# What the select language takes for a name as it is; anything else is quoted in it.
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.+-]+")
_RERUN_FLAGS = ("use_current_env", "submit", "distribute")
_RERUN_OPTIONS = (
    "config_file",
    "system_file",
    "base",
    "max_benchmarks",
    "size",
    "lock",
    "arch",
    "engine",
    "profile",
    "repeat",
    "precision",
    "budget",
)


_BASE_IS_NAMED = "base is named"
"""No option of a command: it marks a summary whose base was named when the run was read, not when it was made."""


def below_base(summary: Summary, base: Path | None) -> Summary:
    """Return the summary of a run that lies below a base that the user named: commands about it name that base."""
    if base is None:
        return summary
    return replace(summary, options={**summary.options, "base": str(base), _BASE_IS_NAMED: True})


def line_about_run(summary: Summary, verb: str, *words: str) -> str:
    """Return a command about this run, with the base where the user named it."""
    named = _BASE_IS_NAMED in summary.options or any(word.partition("=")[0] == "--base" for word in summary.argv)
    base = ("--base", str(summary.options["base"])) if named and summary.options.get("base") else ()
    return shlex.join(["milabench", verb, *words, *base])


def is_of_commands(summary: Summary) -> bool:
    """Return whether `milabench bench` made the run."""
    return list(summary.argv[1:2]) == ["bench"]


def rerun_line(summary: Summary, bench: str | None = None, **changes: str | int | None) -> str:
    """Return the command that reruns all or one benchmark with this run's options, or with `changes` to them, from any folder.

    Of an old run, which did not keep them, and of commands the original command.
    """
    if bench is None and is_of_commands(summary):
        runs = changes.get("repeat")
        given = [] if runs is None else ["--runs", str(runs)]
        return shlex.join(["milabench", "bench", *given, *_without(summary.argv[2:], given[:1])])
    is_by_jobs = bool(summary.jobs) and not summary.options.get("distribute")
    recorded = {**summary.options, "submit": is_by_jobs, **changes}
    if summary.options:
        given = _options(recorded)
    else:
        begin = summary.argv.index("run") + 1 if "run" in summary.argv else len(summary.argv)
        given = _without(summary.argv[begin:], _SELECTING)
        given += [word for name, value in changes.items() if value is not None for word in (f"--{name}", str(value))]
    words = ["milabench", "run", *given]
    if bench is None:
        selecting = ((name, summary.options.get(name)) for name in ("select", "exclude"))
        return shlex.join([*words, *(word for name, value in selecting if value for word in (f"--{name}", str(value)))])
    for pair in summary.ab.pairs if summary.ab is not None and summary.options.get("ab") else ():
        bench = pair.bench if bench in (pair.a, pair.b) else bench
    # shlex quotes for the shell; these quotes are for the language of --select, inside.
    name = bench if _PLAIN_NAME.fullmatch(bench) else f"'{bench}'"
    return shlex.join([*words, "--select", name])


def _options(options: Mapping[str, object]) -> list[str]:
    sides = options.get("ab")
    words = ["--ab", *map(str, sides)] if isinstance(sides, list) else []
    if words and not is_lock(words[-1]):
        options = {**options, "config_file": None}  # the suites are those of the two sides
    flags = (f"--{key.replace('_', '-')}" for key in _RERUN_FLAGS if options.get(key))
    return [*words, *option_words(options, _RERUN_OPTIONS), *flags]


def _without(words: Sequence[str], options: Sequence[str]) -> list[str]:
    """Return words of a command line without these options and their values. What follows `--` stays as it is."""
    kept: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--":
            return [*kept, word, *rest]
        if word in options:
            next(rest, "")  # its value
        elif not word.startswith(tuple(f"{option}=" for option in options)):
            kept.append(word)
    return kept
