"""Measures commands from a command line: writes a suite of them below the base, and runs it as any other."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from milabench.config.interpolate import escaped
from milabench.config.schema import REDUCTIONS
from milabench.driver.task_driver import FOREVER_S, bench_name, by_variables, report_failures, written_suite
from milabench.driver.tasks import verbatim
from milabench.errors import DONE, INTERRUPTED, STEPS_FAILED, UsageError
from milabench.events.removal import remove
from milabench.execute.retry_policy import RetryPolicy
from milabench.redaction import is_searchable, is_secret_name, mask, values_in
from milabench.workflow.files import base_folder
from milabench.workflow.options import Extent, Session, SuiteOptions
from milabench.workflow.run_suite import PreparedRuns, RunSettings, execute_runs, prepare_runs

RUNS: Final = 10
"""Of each of several commands, where nothing else is asked for. A single one is measured until it is precise."""
DIRECTIONS: Final = ("higher", "lower", "none")
# What plan/ and the agent fill in at the start of a launch.
_PLACEHOLDER = re.compile(
    r"(?:^|[=:])(@(?:attempt|config|container|folder|marker|path|port|run|sink|user|userns))$|(@\{step_dir\})",
    re.DOTALL,
)
_NAME_CHARACTERS: Final = 40
# What a shell reads otherwise than as it stands: anything unquoted, and within "..." what it replaces.
_QUOTED: Final = re.compile(r"""\\.|'[^']*'|"((?:\\.|[^"\\])*)\"""", re.DOTALL)
_OF_SHELL: Final = re.compile(r"[;|&<>$`*?()\n]")
_NOT_REPLACED: Final = re.compile(r"[^$`]+")
_METRIC_NAME: Final = re.compile(r"([A-Za-z_][\w.-]*)=", re.ASCII)
# What a suite's program gets that a command of the user's should not: it is measured as it runs in the user's shell.
_PYTHON_DEFAULTS: Final = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOptions:
    """The commands and their measurement. See the options of `milabench bench`.

    `commands` are lines, each a command. `argv` is a single command, word by word. `metrics` are `[NAME=]REGEX`. `units`,
    `directions` and `reductions` `[NAME=]VALUE`. `env` are `NAME=VALUE`, or `NAME` for its value here.
    """

    commands: tuple[str, ...] = ()
    argv: tuple[str, ...] = ()
    shell: bool = False
    names: tuple[str, ...] = ()
    launches: int | None = None
    warmup: int = 0
    prerun: str = ""
    metrics: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    directions: tuple[str, ...] = ()
    reductions: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    cwd: Path | None = None
    timeout_s: float | None = None


def measure_commands(
    options: CommandOptions, base: Path | None, session: Session, *, wait: bool, no_gate: bool = False
) -> tuple[Path | None, int]:
    """Run the commands in turn, and return the run directory, None where nothing was measured, and the exit code.

    Raises UsageError for options that contradict themselves, and for a command that does not exist.
    """
    environ = {**os.environ, **_given_variables(options.env)}
    names, suite = commands_suite(options, environ)
    folder = base_folder(base)
    file = written_suite(folder / "bench", names[0].replace(" ", "_"), suite)
    written = SuiteOptions(config_file=file, base=folder, environ=environ)
    # The next launch of a command that has failed would fail too.
    retry = RetryPolicy(wait=wait, max_failures=1)
    settings = RunSettings(retry=retry, as_default=False, no_gate=no_gate, is_reported=True)
    launches = options.launches or (RUNS if len(names) > 1 else None)
    extent = Extent(repeat=launches, profile="default", run_name="bench", baseline=names[0])
    prepared = prepare_runs(written, extent, settings, session)
    if options.warmup:
        code = _warm_up(written, replace(extent, repeat=options.warmup), settings, session)
        if code != DONE:
            return None, code
    ((path, code),) = execute_runs(prepared, session)
    if code not in (DONE, INTERRUPTED):
        report_failures(path, session)
    return path, code


def _warm_up(options: SuiteOptions, extent: Extent, settings: RunSettings, session: Session) -> int:
    """Run repeats that do not count. Their records stay only after a failure."""
    from milabench.workflow.new_run import execute_plan
    from milabench.workflow.planning import describe_run

    prepared: PreparedRuns = prepare_runs(options, replace(extent, run_name="warmup", baseline=""), settings, session)
    planned = prepared.plans[0].planned
    # Not of the phase `run`: no report takes them for a run.
    description = replace(describe_run(planned), phase="bench")
    executed = execute_plan(planned.plan, planned.request.context, description, retry=settings.retry)
    if not executed.result.all_passed and not executed.result.interrupted:
        session.error("a warm-up run failed, so nothing was measured. Correct the command and run it again")
        report_failures(executed.path, session)
        return STEPS_FAILED
    remove(executed.path, executed.path.parent, is_quiet=True)
    return INTERRUPTED if executed.result.interrupted else DONE


def commands_suite(options: CommandOptions, environ: Mapping[str, str]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return the names of the commands, and the suite of them. Raises UsageError."""
    cwd = Path.cwd() if options.cwd is None else options.cwd.absolute()
    if not cwd.is_dir():
        raise UsageError(f"--cwd {cwd}: is no folder")
    commands = tuple(_words(options))
    _refuse_secrets(options, commands)
    _refuse_placeholders([*(word for words in commands for word in words), options.prerun, str(cwd), *options.env])
    if not options.shell:
        for words in commands:
            require_program(words[0], cwd, environ)
    names = names_of_commands(options, commands)
    shared = {
        "shell": options.shell,
        **({"prerun": by_variables(escaped(verbatim(options.prerun)), environ)} if options.prerun else {}),
        **({"metrics": metrics} if (metrics := metrics_in_suite(options)) else {"timed": True}),
    }
    limit_s = options.timeout_s or FOREVER_S
    suite = {
        name: {**command_entry(words, cwd, limit_s, environ, options.env), **shared}
        for name, words in zip(names, commands, strict=True)
    }
    return names, suite


def command_entry(
    words: Sequence[str], cwd: Path, limit_s: float, environ: Mapping[str, str], env: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the entry of a suite for one process of a command, as it would run in the user's shell."""
    return {
        "command": [by_variables(escaped(verbatim(word)), environ) for word in words],
        "plan": {"method": "njobs", "n": 1},
        "cwd": escaped(str(cwd)),
        "max_duration": limit_s,
        "env": suite_environment(env, environ),
    }


def _words(options: CommandOptions) -> Iterator[tuple[str, ...]]:
    if options.commands and options.argv:
        raise UsageError("give a single command after --, or several before it, each quoted, but not both")
    if options.argv:
        if options.shell and len(options.argv) > 1:
            raise UsageError("--shell takes a command as a single line. Quote it")
        yield options.argv
        return
    if not options.commands:
        raise UsageError("no command. Give a command after --, or one or several, each quoted")
    for line in options.commands:
        if options.shell:
            words: tuple[str, ...] = (line,) if line.strip() else ()
        else:
            try:
                words = tuple(shlex.split(line))
            except ValueError as error:
                raise UsageError(f"{line}: {str(error).lower()}. Give the line to a shell with --shell") from None
            if of_shell := _shell_sign(line):
                raise UsageError(
                    f"{line}: {of_shell!r} needs a shell. Run `{shlex.join(['milabench', 'bench', '--shell', line])}`"
                )
        if not words:
            raise UsageError("a command is empty")
        yield words


def _refuse_secrets(options: CommandOptions, commands: Sequence[Sequence[str]]) -> None:
    """Raise UsageError for a secret that words show: they are the suite, and the names of files."""
    given = [*((words[0], words) for words in commands), ("--prepare", (options.prerun,)), ("--name", options.names)]
    for what, words in given:
        # `--token $TOKEN` shows none.
        if any(is_searchable(value) and "$" not in value for value in values_in(words)):
            raise UsageError(
                f"{mask(what.partition(' ')[0])}: a secret is among the words. Give it by --env NAME, where no file holds it "
                '(in words: --shell and "$NAME")'
            )


def _refuse_placeholders(words: Iterable[str]) -> None:
    """Raise UsageError for a word that a repeat would replace: the typed command is measured."""
    for word in words:
        if found := _PLACEHOLDER.search(word):
            raise UsageError(
                f"{word}: each repeat replaces {found[1] or found[2]} by a value. Write it differently, or hide it in "
                "a script"
            )


def _shell_sign(line: str) -> str:
    """Return the first character of a line that only a shell acts on: not a quoted character. Empty where there is none."""
    bare = _QUOTED.sub(lambda quoted: _NOT_REPLACED.sub("", quoted[1] or ""), line.strip())
    found = _OF_SHELL.search(bare)
    return found[0] if found else ""


def require_program(program: str, cwd: Path, environ: Mapping[str, str]) -> None:
    """Raise UsageError unless the program exists and can be executed: by its path from `cwd`, else on the PATH."""
    if "/" in program:
        path = cwd / program
        if not path.is_file():
            raise UsageError(f"{program}: no such program" + ("" if Path(program).is_absolute() else f" in {cwd}"))
        if not os.access(path, os.X_OK):
            raise UsageError(f"{program}: is not executable")
    elif shutil.which(program, path=environ.get("PATH", os.defpath)) is None:
        hint = ". Quote a command with its arguments, or put -- before it" if re.match(r"[-\d.]", program) else ""
        raise UsageError(f"{program}: no such command on the PATH{hint}")


def names_of_commands(options: CommandOptions, commands: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return a distinct name for each command: the given names, else from their words. Raises UsageError."""
    if len(options.names) > len(commands):
        raise UsageError(f"--name is given {len(options.names)} times for {len(commands)} commands")
    names: list[str] = []
    for number, words in enumerate(commands):
        given = options.names[number] if number < len(options.names) else ""
        # What was passed on by a variable may stand among the words; names are those of files.
        program, *arguments = (words[0].split(maxsplit=1) or words) if options.shell else words
        text = mask(given or " ".join((Path(program).name, *arguments)))
        name = bench_name(text[:_NAME_CHARACTERS], "command")
        if given and name in names:
            raise UsageError(f"--name {given}: is given twice")
        again = sum(known == name or known.startswith(f"{name} (") for known in names)
        names.append(f"{name} ({again + 1})" if again else name)
    return tuple(names)


def metrics_in_suite(options: CommandOptions) -> dict[str, dict[str, str]]:
    """Return the metrics as a suite has them. Raises UsageError for a text that is no regular expression, or has no name."""
    metrics: dict[str, dict[str, str]] = {}
    for text in options.metrics:
        name, pattern = named_pattern(text)
        if name in metrics:
            raise UsageError(f"--metric {text}: there is a metric '{name}' already. Name it NAME=REGEX")
        metrics[name] = {"pattern": escaped(pattern), "direction": "higher"}
    given = (
        ("units", options.units, ()),
        ("direction", options.directions, DIRECTIONS),
        ("reduce", options.reductions, REDUCTIONS),
    )
    for key, texts, known in given:
        for text in texts:
            owner, equals, value = text.rpartition("=")
            if not metrics:
                raise UsageError(f"--{key} {text}: it needs --metric. The seconds of a command need no option")
            if equals and owner not in metrics:
                raise UsageError(f"--{key} {text}: no metric is named '{owner}'. Known: {', '.join(metrics)}")
            if known and value not in known:
                raise UsageError(f"--{key} {text}: is none of {', '.join(known)}")
            for metric in (metrics[owner],) if equals else metrics.values():
                metric[key] = value
    return metrics


def named_pattern(text: str) -> tuple[str, str]:
    """Return name and pattern of a metric: of a named group, else `NAME=REGEX`, else `value`. Raises UsageError."""
    head = _METRIC_NAME.match(text)
    name, pattern = ("value", text) if head is None else (head[1], text[head.end() :])
    if named := _compiled(text, text).groupindex if "(?P<" in text else ():
        name, pattern = next(iter(named)), text
    groups = _compiled(pattern, text).groups
    if groups > 1:
        raise UsageError(
            f"--metric {text}: has {groups} groups. Keep a single group, around the number, and write the others (?:...)"
        )
    if not pattern:
        raise UsageError(f"--metric {text}: has no regular expression")
    return name, pattern


def _compiled(pattern: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise UsageError(f"--metric {text}: is no regular expression: {error}") from None


def suite_environment(given: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the commands: the user's where a suite's program would get others, and the given ones."""
    cache = environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    own = {
        **{name: environ.get(name, "") for name in _PYTHON_DEFAULTS},
        "XDG_CACHE_HOME": cache,
        "TORCH_HOME": environ.get("TORCH_HOME") or f"{cache}/torch",
        "HF_HOME": environ.get("HF_HOME") or f"{cache}/huggingface",
        **({"OMP_NUM_THREADS": environ["OMP_NUM_THREADS"]} if "OMP_NUM_THREADS" in environ else {}),
    }
    plain = {name: escaped(verbatim(value)) for name, value in own.items()}
    for text in given:
        name = text.partition("=")[0]
        # A file holds no secret: it names the variable.
        plain[name] = f"${{oc.env:{name}}}" if is_secret_name(name) else escaped(verbatim(environ[name]))
    return plain


def _given_variables(given: Sequence[str]) -> dict[str, str]:
    variables = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            raise UsageError(f"--env {name}: is no NAME=VALUE, and no NAME of a variable")
        if not equals and name not in os.environ:
            raise UsageError(f"--env {name}: there is no such variable here. Give NAME=VALUE")
        variables[name] = value if equals else os.environ[name]
    return variables
