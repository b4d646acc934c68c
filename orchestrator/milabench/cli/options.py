"""The options that several verbs share, each declared once, and the values they become. The reporter of a terminal."""

from __future__ import annotations

import contextlib
import functools
import math
import re
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO, TypeVar

import click

from milabench import seams
from milabench.cli.help import TYPED, RareOption
from milabench.errors import UsageError, with_remedy
from milabench.shown import is_lock

if TYPE_CHECKING:
    from milabench.display.base import Display
    from milabench.workflow.options import Extent, Level, Session, SuiteOptions

F = TypeVar("F", bound=Callable[..., Any])
Verb = Callable[..., int | None]
"""The function behind a verb: it returns the exit code, None for 0."""
Decorator = Callable[[Verb], Verb]

LEAST_PRECISION = 1e-4
SCREEN_WIDTH = 120
"""Characters of a line of a report that is not asked for in full."""
_DURATION_PART = r"(\d+(?:\.\d+)?)\s*([smhd])"
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def fraction_in(text: str) -> float:
    """Return `1%` or `0.01` as a fraction. NaN for text that is no number."""
    text = text.strip()
    try:
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        return math.nan


def fraction_of(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Return `1%`, `0.5 %` or 0.01 as a fraction. Raises BadParameter, also for a bare 1, which may mean either."""
    if value is None:
        return None
    fraction = fraction_in(value)
    if not LEAST_PRECISION <= fraction < 1:
        raise click.BadParameter(
            f"'{value}' is not a precision. Give a percentage such as 1%, at least 0.01%", ctx, param
        )
    return fraction


def seconds_of(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Return `90s`, `30m`, `4h`, `2d`, `1h30m` in seconds. Raises BadParameter, also for a number without a unit."""
    if value is None:
        return None
    text = value.strip().lower()
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in re.findall(_DURATION_PART, text))
    # Every character must belong to a part, or `1h30` would be an hour.
    if re.sub(_DURATION_PART, "", text).strip() or seconds <= 0:
        raise click.BadParameter(f"'{value}' is not a duration. Give 90s, 30m, 4h, 90d or 1h30m", ctx, param)
    return seconds


def benchmark_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete benchmarks of the suite."""
    from milabench.cli.completion import benchmarks  # only when a shell asks

    return [name for name in benchmarks(ctx) if name.startswith(incomplete)]


def selections(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete benchmarks and tags, also for the last entry of a comma list."""
    from milabench.cli.completion import selectors

    before, comma, last = incomplete.rpartition(",")
    return [before + comma + word for word in selectors(ctx) if word.startswith(last)]


def run_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete runs below the base, the newest first."""
    from milabench.cli.completion import known_runs

    return [name for name in known_runs(ctx) if name.startswith(incomplete)]


def slurm_keys(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete keys of `system.slurm`."""
    from milabench.config.schema import SLURM

    return [f"{key}=" for key in SLURM.keys if key.startswith(incomplete)]


rare_option = functools.partial(click.option, cls=RareOption)
# Each can be given as a variable too, MILABENCH_<OPTION>, which `help.with_variables` adds.
base_option = click.option(
    "--base", type=click.Path(path_type=Path), help="Folder for environments, data and runs. Default: ./results."
)
db_option = rare_option(
    "--db", "location", metavar="PATH|postgresql://...", help="The results store. Default: history.sqlite in the base."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
full_option = click.option(
    "--full", is_flag=True, help="Show everything: all tables, and how the numbers were computed."
)
wide_option = click.option(
    "--wide", is_flag=True, help="Show every column, also where the table is wider than the terminal."
)
wait_option = rare_option(
    "--wait", is_flag=True, help="Wait while another run measures on these devices, instead of failing."
)
RUN = "a run directory, the name of a run below the base, latest, or latest~1 for the run before it"
_BOTH_WAYS = "name runs as arguments or with --run, not both ways"


def run_argument(function: Verb) -> Verb:
    """Let a verb be given RUN, as an argument or with --run. Its function receives `run`, None without either."""

    @functools.wraps(function)
    def named(*, run: str | None, run_option: str | None, **values: Any) -> int | None:
        if run is not None and run_option is not None and is_on_command_line("run_option"):
            raise click.UsageError(_BOTH_WAYS)
        return function(run=run_option if run is None else run, **values)

    option = rare_option("--run", "run_option", metavar="RUN", shell_complete=run_names, help=f"The run: {RUN}.")
    return click.argument("run", required=False, shell_complete=run_names)(option(named))


def runs_argument(*, required: bool = False) -> Decorator:
    """Let a verb be given RUNS, as arguments or with --run. Its function receives `runs`, at least one if `required`."""

    def decorated(function: Verb) -> Verb:
        @functools.wraps(function)
        def named(*, runs: tuple[str, ...], run_options: tuple[str, ...], **values: Any) -> int | None:
            if runs and run_options and is_on_command_line("run_options"):
                raise click.UsageError(_BOTH_WAYS)
            if required and not runs and not run_options:
                raise click.UsageError(f"missing argument RUNS: {RUN}")
            return function(runs=runs or run_options, **values)

        option = rare_option(
            "--run",
            "run_options",
            multiple=True,
            type=click.Path(),  # several in the variable have colons between them, as in PATH
            metavar="RUN",
            shell_complete=run_names,
            help=f"A run: {RUN}. Repeatable.",
        )
        return click.argument("runs", nargs=-1, shell_complete=run_names)(option(named))

    return decorated


current_env_option = rare_option(
    "--use-current-env",
    is_flag=True,
    help="Use the active interpreter for every benchmark, and install nothing.",
)


def file_option(
    *names: str,
    help: str,  # noqa: A002
    required: bool = False,
    metavar: str | None = None,
    rare: bool = False,
) -> Callable[[F], F]:
    """Return the option for a file, read or written."""
    kind = click.Path(path_type=Path, dir_okay=False)
    cls = RareOption if rare else click.Option
    return click.option(*names, cls=cls, type=kind, required=required, metavar=metavar, help=help)


_LAST_USED = "the last used in the base, else config/standard.yaml"


def removed_option(name: str, answer: str, *, is_flag: bool = False) -> Decorator:
    """Answer a removed option with its replacement and exit code 2."""

    def refuse(_ctx: click.Context, _param: click.Parameter, value: str | bool | None) -> None:
        if value:
            raise UsageError(with_remedy(f"{name} was removed", answer))

    return click.option(name, is_flag=is_flag, hidden=True, expose_value=False, callback=refuse, envvar=())


def suite_names(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[click.shell_completion.CompletionItem]:
    """Complete names of shipped suites, and files."""
    from click.shell_completion import CompletionItem

    from milabench.workflow.files import SUITES, shipped_names

    names = [CompletionItem(name) for name in shipped_names(SUITES) if name.startswith(incomplete)]
    return [*names, CompletionItem(incomplete, type="file")]


def _config_option(default: str) -> Decorator:
    kind = click.Path(path_type=Path)
    text = f"Suite file, or name of a shipped suite. Default: {default}."
    return click.option("-c", "--config", "config_file", type=kind, shell_complete=suite_names, help=text)


_SUITE = (
    click.option(
        "--system", "system_file", type=click.Path(path_type=Path), help="System file: nodes, accelerators, folders."
    ),
    base_option,
    click.option(
        "-s", "--override", "overrides", multiple=True, metavar="KEY=VALUE", help="Replace a value of the suite."
    ),
    rare_option(
        "--max-benchmarks",
        type=click.IntRange(1),
        metavar="N",
        help="Maximum number of benchmarks of a suite, variants included. Default: 20000.",
    ),
    click.option(
        "--size",
        type=click.Choice(["tiny", "device", "node", "cluster"]),
        help="Size of benchmarks that have sizes: for a CPU, a device, a node, all nodes. Default: the suite's size, else device."
        " (`milabench size` is about batch sizes.)",
    ),
)


class _Expression(click.types.StringParamType):
    """A selection. Its variable holds a single selection, with spaces in it: click splits at a character no variable can hold."""

    name = "expression"
    envvar_list_splitter = "\0"


def _one_expression(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> str | None:
    """Return the expressions of a repeatable option as a single expression, which selects the benchmarks of each."""
    return ",".join(values) if values else None


def _selection(option: str, what: str, *, rare: bool = False) -> Decorator:
    return click.option(
        option,
        cls=RareOption if rare else click.Option,
        type=_Expression(),
        multiple=True,
        callback=_one_expression,
        shell_complete=selections,
        metavar="EXPR",
        help=what,
    )


_SELECTION = (
    _selection("--select", "Names, globs, groups or tags, joined by commas or and/or/not. Repeatable."),
    _selection("--exclude", "Benchmarks to leave out, in the same language.", rare=True),
)


def is_on_command_line(name: str) -> bool:
    """Return whether an option of the verb was typed, not taken from a variable or a default."""
    # MILABENCH_CONFIG may be set for all commands of a shell, and contradicts nothing.
    context = click.get_current_context(silent=True)
    return context is not None and context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


_LOCK = file_option(
    "--lock",
    rare=True,
    help="Make the environment from this lock instead of the lock in the benchmarks' folder. For a single environment.",
)
_ACCEPT = rare_option(
    "--accept-new-host-keys",
    is_flag=True,
    help="Record the keys of nodes that no known_hosts file names. A changed key is still refused.",
)
_IGNORE = rare_option(
    "--ignore-node-checks", is_flag=True, help="Run although `milabench nodes check` reports problems."
)
_ASK = rare_option("--ask-nodes", is_flag=True, help="Query the other nodes. Default: believe the system file.")
_ENGINE = (
    rare_option(
        "--engine",
        type=click.Choice(["local", *seams.SCHEDULERS]),
        help="Where steps run. Default: the system file's engine, else Slurm within an allocation, else this machine.",
    ),
    rare_option(
        "--slurm-arg",
        "slurm_args",
        multiple=True,
        metavar="KEY=VALUE",
        shell_complete=slurm_keys,
        help="Option of Slurm: a key of system.slurm, or any other of sbatch.",
    ),
)
NodeUse = Literal["none", "executes", "queries", "checks", "engine"]
"""Use of nodes by a verb: it executes on them after a query, may query them, is about them, or runs on Slurm's nodes."""
_OF_NODES: Mapping[NodeUse, tuple[Decorator, ...]] = {
    "none": (),
    "executes": (*_ENGINE, _ACCEPT, _IGNORE),
    "queries": (*_ENGINE, _ASK, _ACCEPT),
    "checks": (_ACCEPT,),
    "engine": _ENGINE,
}


def gathered(function: Verb, parameter: str, kind: type, options: Sequence[Decorator], **defaults: Any) -> Verb:
    """Give a verb these options, in the order in which its help lists them.

    Its function receives those that are fields of `kind` as `parameter: kind`.
    """
    names = [field.name for field in fields(kind)]
    # The collector that is called first would take the option, and the other would have its default.
    twice = {*names} & getattr(function, "collected_names", set())
    assert not twice, (
        f"{function.__name__}: {kind.__name__} and an inner collector both have {', '.join(sorted(twice))}"
    )

    @functools.wraps(function)
    def collected(**values: Any) -> int | None:
        given = {name: values.pop(name) for name in names if name in values}
        return function(**{parameter: kind(**{**defaults, **given})}, **values)

    verb: Verb = collected
    vars(verb)["collected_names"] = {*names, *getattr(function, "collected_names", ())}
    for option in reversed(options):
        verb = option(verb)
    return verb


def collected_as(parameter: str, kind: type) -> Decorator:
    """Let a verb's function receive its parameters that are fields of `kind` together, as `parameter: kind`."""
    # Stands last, next to the function: what other decorators have collected may be a field of `kind` too.
    return lambda function: gathered(function, parameter, kind, ())


# `suite_options`, `plan_options` and `retry_options` import what takes 5 ms: verbs without these options do not wait for it.
def suite_options(
    *,
    selection: bool = True,
    environment: bool = False,
    nodes: NodeUse = "none",
    own_default: str = "",
) -> Decorator:
    """Give a verb the options of a suite. Its function receives them as `options: SuiteOptions`.

    `nodes` is the verb's use of other machines. `own_default`: the suite that it reads without --config, where it is
    not the suite last used in the base.
    """
    from milabench.devices.registry import ARCHS
    from milabench.workflow.options import SuiteOptions

    arch = rare_option(
        "--arch",
        type=click.Choice(list(ARCHS)),
        envvar="MILABENCH_GPU_ARCH",
        help="Kind of accelerator. Default: from the system file, else detected.",
    )
    config = _config_option(own_default or _LAST_USED)
    wanted = (
        config,
        *_SUITE,
        arch,
        *(_SELECTION if selection else ()),
        *((current_env_option, _LOCK) if environment else ()),
        *_OF_NODES[nodes],
    )
    return lambda function: gathered(
        function if own_default else _last_chosen(function),
        "options",
        SuiteOptions,
        wanted,
        ask_nodes=nodes == "executes",
    )


def _last_chosen(function: Verb) -> Verb:
    """Let a verb without --config mean the suite that was last used in the base, and say so."""

    @functools.wraps(function)
    def with_default(*, options: SuiteOptions, **values: Any) -> int | None:
        if options.lock is not None and options.use_current_env:
            raise UsageError(
                "--use-current-env uses the active environment, which has no lock. Leave out --lock or --use-current-env"
            )
        # The suites of an A/B run, that of a capsule, and files to check, are named otherwise.
        ab = values.get("ab")
        is_named = any(map(values.get, ("capsule", "files"))) or (ab is not None and not is_lock(ab[0]))
        if options.config_file is None and not is_named:
            from milabench.workflow.suites_used import with_last_chosen

            options, line = with_last_chosen(options)
            if line:
                click.echo(line, err=True)
        return function(options=options, **values)

    return with_default


display_option = rare_option(
    "--display",
    type=click.Choice(["auto", "live", "plain", "none"]),
    default="auto",
    show_default=True,
    help="How to show progress: a table that is redrawn, lines, or nothing. auto: a table on a terminal.",
)


detach_option = click.option(
    "--detach",
    is_flag=True,
    help="Leave the terminal when the run has begun. `milabench resume` shows its progress.",
)


def plan_options(function: Verb) -> Verb:
    """Give a verb the options that decide how much is measured. Its function receives them as `extent: Extent`.

    Raises UsageError for two suites of --ab together with --config.
    """
    from milabench.plan.profile import PROFILES
    from milabench.workflow.options import Extent

    @functools.wraps(function)
    def checked(*, extent: Extent, **values: Any) -> int | None:
        if extent.ab is not None and is_on_command_line("config_file") and not is_lock(extent.ab[0]):
            raise UsageError("--ab names both suites. Leave out --config")
        return function(extent=extent, **values)

    options = (
        click.option(
            "--repeat",
            type=click.IntRange(1),
            help="Fresh processes per benchmark, no more and no fewer. Default: from the profile.",
        ),
        click.option(
            "--profile", type=click.Choice(list(PROFILES)), help="How long to measure. Default: from the suite."
        ),
        rare_option(
            "--precision",
            callback=fraction_of,
            metavar="PERCENT",
            help="Run further repeats of each benchmark until its uncertainty is within this: ten at most, thirty of short ones, "
            "or as --budget allows. Default: from the suite, else 5% with the profile default, 2% with rigorous.",
        ),
        rare_option(
            "--budget",
            "budget_s",
            callback=seconds_of,
            metavar="DURATION",
            help="Run only as many repeats as fit in this time (90s, 30m, 4h), and report the omitted repeats.",
        ),
        rare_option(
            "--ab",
            nargs=2,
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="A.yaml B.yaml",
            help="Alternate two suites, or two locks of a suite (A.lock B.lock), and compare pairs. Default: five pairs.",
        ),
    )
    return gathered(checked, "extent", Extent, options)


_JOBS = (
    rare_option(
        "--submit", is_flag=True, help="Make the run by jobs of Slurm, which need no milabench that waits for them."
    ),
    rare_option(
        "--max-jobs", type=click.IntRange(1), metavar="N", help="With --submit: let at most N jobs be active at a time."
    ),
    rare_option("--array", is_flag=True, help="With --submit: make each repeat a task of a job array."),
    rare_option(
        "--distribute",
        is_flag=True,
        help="Run each benchmark once on every node, each time as a job. Implies --submit.",
    ),
)


def job_options(function: Verb) -> Verb:
    """Give a verb the options of jobs. Its function receives them as `submit`, a Submission, or None for a run by this process.

    `distribute` and `ab` are options of a suite and of its extent, which are collected outside of this. Raises UsageError for
    options that need --submit, or would part the pairs of --ab.
    """
    from milabench.workflow.options import Submission

    @functools.wraps(function)
    def with_submission(
        *, submit: bool, max_jobs: int | None, array: bool, options: SuiteOptions, extent: Extent, **values: Any
    ) -> int | None:
        is_by_jobs = submit or options.distribute
        for name, parts_pairs in (("array", array), ("distribute", options.distribute)):
            if parts_pairs and extent.ab is not None:
                raise UsageError(f"--ab measures both sides of a pair in the same place. Leave out --{name}")
        for name, given in (("max_jobs", max_jobs), ("array", array)):
            if given and not is_by_jobs and is_on_command_line(name):
                raise UsageError(f"--{name.replace('_', '-')} goes with --submit")
        submission = Submission(max_jobs=max_jobs, array=array) if is_by_jobs else None
        return function(submit=submission, options=options, extent=extent, **values)

    verb: Verb = with_submission
    for option in reversed(_JOBS):
        verb = option(verb)
    return verb


validations_option = rare_option(
    "--validations",
    metavar="all|none|NAME,...",
    help="Checks of the measurements. Default: all, or for a recorded run the checks of its own command.",
)


_RETRY = (
    wait_option,
    rare_option(
        "--max-retries",
        type=click.IntRange(0),
        default=0,
        show_default=True,
        help="Immediate retries of a failed step. Every attempt is kept.",
    ),
    rare_option(
        "--maxfail", "max_failures", type=click.IntRange(1), metavar="N", help="Start no more steps after N failures."
    ),
)


def retry_options(function: Verb) -> Verb:
    """Give a verb the options on failures and held devices. Its function receives them as `retry: RetryPolicy`."""
    from milabench.execute.retry_policy import RetryPolicy

    return gathered(function, "retry", RetryPolicy, _RETRY)


def table_width(wide: bool) -> int | None:
    """Return how wide a table on standard output may be. None, as wide as it is, with --wide and in a file or a pipe."""
    # A log that lacks columns cannot be repaired later; a terminal that does not know its size (0) is not fitted to either.
    if wide or not sys.stdout.isatty():
        return None
    return shutil.get_terminal_size((0, 0)).columns or None


def screen_width(wide: bool, *, is_full: bool) -> int | None:
    """Return how wide the tables of a report on a terminal may be. See `table_width`, but a short report has a limit anywhere."""
    width = table_width(wide)
    return width if wide or is_full else min(SCREEN_WIDTH, width or SCREEN_WIDTH)


def same_command(*more: str) -> str:
    """Return the command line as the user typed it, with more words at its end."""
    return shlex.join(["milabench", *_typed_words(), *more])


def other_command(verb: str, *without: str) -> str:
    """Return the command line as the user typed it, with another verb, and without the first of each of some words."""
    _, *words = _typed_words()
    for word in without:
        if word in words:
            words.remove(word)  # a benchmark may have the same name
    return shlex.join(["milabench", verb, *words])


def typed_base() -> tuple[str, ...]:
    """Return `--base FOLDER` where the user has typed it."""
    return ("--base", str(click.get_current_context().params["base"])) if is_on_command_line("base") else ()


def _typed_words() -> list[str]:
    context = click.get_current_context()
    words: list[str] = context.meta.get(TYPED) or [context.info_name or ""]
    return words


class TerminalReporter:
    """Writes `warning: ...` and so on to standard error. `display` is `auto`, `live`, `plain` or `none`."""

    def __init__(self, display: str = "auto") -> None:
        self._display = display
        self._opened: Display | None = None
        self._progress = ""

    def report(self, level: Level, text: str) -> None:
        """Write a message, above the table that a terminal may show."""
        line = text if level == "info" else f"{level}: {text}"
        if self._opened is not None and self._opened.is_redrawn:
            with contextlib.suppress(OSError, ValueError):  # the terminal may be gone
                self._opened.on_message(line)
        else:
            self.show_progress("")
            print(line, file=sys.stderr)

    def open_display(self, *, is_verbose: bool = False, clock: Callable[[], float] = time.monotonic) -> Display:
        """Return a new view of a run's progress."""
        from milabench.display.selection import choose_display

        self._opened = choose_display(self._display, _unfiltered(), is_verbose=is_verbose, clock=clock)
        return self._opened

    def show_progress(self, text: str) -> None:
        """Show it in a line that is written over, on a terminal."""
        stream = _unfiltered()
        if text == self._progress or not stream.isatty():
            return
        self._progress = text
        columns = shutil.get_terminal_size((0, 0)).columns
        with contextlib.suppress(OSError, ValueError):  # the terminal may be gone
            # What is wider than the terminal would begin a new line each time.
            print(f"\r\x1b[K{text[: columns - 1] if columns else text}", end="", file=stream, flush=True)


def _unfiltered() -> TextIO:
    """Return standard error without the filter of control characters. Displays make foreign text visible themselves."""
    stream: TextIO = getattr(sys.stderr, "unfiltered", sys.stderr)
    return stream


def terminal_session(display: str = "auto") -> Session:
    """Return a session that reports to the terminal and is closed when the command ends."""
    from milabench.workflow.options import Session

    session = Session(TerminalReporter(display))
    click.get_current_context().call_on_close(session.close)
    return session
