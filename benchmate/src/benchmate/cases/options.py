"""The command line of a program of cases: the few short options and Google Benchmark's, as a frozen value."""

from __future__ import annotations

import argparse
import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, NoReturn

TIME_UNITS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
"""Nanoseconds of each unit."""

Action = Literal["run", "list", "one", "serve"]
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_LOCK = re.compile(r"wait(?::(\d+(?:\.\d*)?)s?)?|fail|none")
_MIN_TIME = re.compile(r"(\d+(?:\.\d*)?|\.\d+)s?|(\d+)x")
EVERYTHING = re.compile("")


class UsageError(Exception):
    """A wrong command line. The text is a single line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBudget:
    """How often `run` is called: exactly `iterations` times, or until `min_time_s` have passed; first for `warmup_s`."""

    iterations: int | None = 1
    min_time_s: float = 0.0
    warmup_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Results in a format. To standard output where there is no path."""

    format: str
    path: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseOptions:
    """The requested options. Times in seconds. `lock_wait_s` None waits without limit. `seed` shuffles when it is given."""

    action: Action = "run"
    pattern: re.Pattern[str] = EVERYTHING
    negated: bool = False
    listed: re.Pattern[str] = EVERYTHING
    name: str = ""
    channel: str | None = None
    timeout_s: float = 600.0
    delay_s: float = 1.5
    lock: Literal["wait", "fail", "none"] = "wait"
    lock_wait_s: float | None = None
    isolation: Literal["spawn", "fork"] = "spawn"
    preload: tuple[str, ...] = ()
    budget: RunBudget = RunBudget()
    repetitions: int = 1
    interleaved: bool = False
    outputs: tuple[Output, ...] = (Output(format="stdout"),)
    time_unit: str = "ns"
    tabular: bool = False
    aggregates_only: bool = False
    display_aggregates_only: bool = False
    context: Mapping[str, str] = field(default_factory=dict)


def parse_options(argv: Sequence[str], env: Mapping[str, str]) -> CaseOptions:
    """Return the options. Google Benchmark's may also be in the environment, in capitals. Raises UsageError."""
    given = _parser(env).parse_args(argv)
    options = _common(given)
    if given.serve is not None:
        return replace(options, action="serve", channel=given.serve)
    if given.run is not None:
        return replace(options, action="one", name=given.run)
    if given.list is not None or given.list_tests:
        return replace(options, action="list", listed=_pattern("-l", given.list or ""))
    return options


def _common(given: argparse.Namespace) -> CaseOptions:
    if given.preload and given.isolation != "fork":
        raise UsageError("--preload is for --isolation fork. A fresh interpreter imports its own modules")
    budget = RunBudget(**given.min_time, warmup_s=given.min_warmup_time)
    if given.dry_run:
        budget, given.repetitions = RunBudget(), 1
    given.time_unit = given.time_unit or "ns"
    pattern, negated = _filter(given)
    lock, lock_wait_s = given.lock_rule
    # The other options are stored under the names of their fields.
    same = {field.name: getattr(given, field.name) for field in fields(CaseOptions) if field.name in given}
    outputs = _outputs(given)
    return CaseOptions(
        **same, pattern=pattern, negated=negated, lock=lock, lock_wait_s=lock_wait_s, budget=budget, outputs=outputs
    )


def _filter(given: argparse.Namespace) -> tuple[re.Pattern[str], bool]:
    """Return the pattern, and whether it is negated. -f wins over --benchmark_filter, which may stand in the environment."""
    option, text = ("-f", given.filter) if given.filter is not None else ("--benchmark_filter", given.google_filter)
    if text in ("", "all"):
        return EVERYTHING, False
    return _pattern(option, text.removeprefix("-")), text.startswith("-")


def _pattern(option: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        position = "" if error.pos is None else f", at its character {error.pos + 1}"
        raise UsageError(f"{option} {text!r}: not a regular expression: {error.msg}{position}") from None


def _outputs(given: argparse.Namespace) -> tuple[Output, ...]:
    if given.output_type is not None and given.format is not None:
        raise UsageError("-T and --benchmark_format both choose the format of standard output. Give only one")
    outputs = []
    if given.format is not None:
        outputs.append(Output(format=f"google-{given.format}"))
    kind = given.output_type or "stdout"
    if given.output is not None:
        outputs.append(Output(format=kind, path=given.output))
    elif given.format is None:
        outputs.append(Output(format=kind))
    if given.out:
        outputs.append(Output(format=f"google-{given.out_format}", path=given.out))
    return tuple(outputs)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}. --help shows the options")


def _parser(env: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = _Parser(
        description="Measures registered cases, each in a fresh process.",
        epilog="exit codes: 0 all passed, 1 a case did not, 2 usage, 3 nothing matched, 130 interrupted",
        allow_abbrev=False,
    )

    def google(name: str, **settings: Any) -> None:
        """Add an option of Google Benchmark. Its default may stand in the environment."""
        variable = f"BENCHMARK_{name.upper()}"
        value = env.get(variable)
        if value is not None:
            if value not in settings.get("choices", (value,)):
                raise UsageError(f"{variable}={value!r}: expected one of {', '.join(settings['choices'])}")
            settings["default"] = value
        parser.add_argument(f"--benchmark_{name}", **{"dest": name, **settings})

    add = parser.add_argument
    seconds = functools.partial(add, metavar="S", type=_seconds)
    add("-T", "--output-type", choices=["stdout", "csv", "json"], help="format of the results (stdout)")
    add("-o", "--output", metavar="PATH", help="file for the results")
    add("-f", "--filter", metavar="REGEX", help="cases whose name matches anywhere (after a leading '-', the others)")
    add("-l", "--list", metavar="REGEX", nargs="?", const="", help="print names and stop")
    add("-r", "--run", metavar="NAME", help="run only this case, in this process, for debugging")
    add("-s", "--socket", dest="channel", metavar="PATH", help="where -r writes its result. fd:N is a descriptor")
    limit = "limit of each process, in seconds (600)"
    seconds("-t", "--timeout", dest="timeout_s", type=_positive, default=600.0, help=limit)
    seconds("-d", "--delay", dest="delay_s", default=1.5, help="pause between two processes, in seconds (1.5)")
    in_use = "when a device is in use (wait)"
    add("--lock", dest="lock_rule", metavar="wait[:S]|fail|none", type=_lock, default="wait", help=in_use)
    add("--isolation", choices=["spawn", "fork"], default="spawn", help="how processes start (spawn)")
    add("--preload", metavar="MODULES", type=_names, default="", help="imported once, before --isolation fork forks")
    add("--serve", help=argparse.SUPPRESS)
    google("list_tests", **_flag("print names and stop"))
    google("filter", dest="google_filter", metavar="REGEX", default="", help="as -f")
    google("min_time", metavar="S|Nx", type=_min_time, default="1x", help="seconds, or iterations, of a process (1x)")
    google("min_warmup_time", metavar="S", type=_seconds, default=0.0, help="seconds that are run but not measured (0)")
    google("repetitions", metavar="N", type=_count, default=1, help="processes per case (1)")
    google("dry_run", **_flag("a single iteration in a single process"))
    google("enable_random_interleaving", dest="interleaved", **_flag("processes of all cases in random order"))
    google("report_aggregates_only", dest="aggregates_only", **_flag("mean, median, ... without the single processes"))
    google("display_aggregates_only", **_flag("the same for standard output"))
    google("format", choices=["console", "json", "csv"], help="format of standard output")
    google("out", metavar="FILE", default="", help="a file in addition to standard output")
    google("out_format", choices=["console", "json", "csv"], default="json", help="its format (json)")
    google("counters_tabular", dest="tabular", **_flag("counters in columns of their own"))
    google("time_unit", choices=["", *TIME_UNITS], default="", help="unit of time (ns)")
    google("context", metavar="K=V,...", type=_context, default="", help="remarks for the file")
    google("color", metavar="auto|true|false", default="auto", help="accepted, but output has no colour")
    return parser


def _flag(text: str) -> dict[str, Any]:
    return {"metavar": "BOOL", "nargs": "?", "const": "true", "default": "false", "type": _boolean, "help": text}


def _boolean(text: str) -> bool:
    if text.lower() not in (*_TRUE, *_FALSE):
        raise argparse.ArgumentTypeError(f"{text!r}: expected true or false")
    return text.lower() in _TRUE


def _seconds(text: str) -> float:
    try:
        seconds = float(text.removesuffix("s"))
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r}: expected seconds, such as 1.5")
    return seconds


def _positive(text: str) -> float:
    seconds = _seconds(text)
    if seconds == 0:
        raise argparse.ArgumentTypeError("0 would let no case run. Give more seconds")
    return seconds


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number of at least 1")
    return int(text)


def _min_time(text: str) -> dict[str, Any]:
    matched = _MIN_TIME.fullmatch(text)
    if matched is None or text == "0x":
        raise argparse.ArgumentTypeError(f"{text!r}: expected seconds or iterations, such as 0.5s or 10x")
    if matched[2] is not None:
        return {"iterations": int(matched[2])}
    return {"iterations": None, "min_time_s": float(matched[1])}


def _lock(text: str) -> tuple[str, float | None]:
    matched = _LOCK.fullmatch(text)
    if matched is None:
        raise argparse.ArgumentTypeError(f"{text!r}: expected wait, wait:SECONDS, fail or none")
    return text.partition(":")[0], None if matched[1] is None else float(matched[1])


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name)


def _context(text: str) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in text.split(",") if pair]
    for key, equals, _ in pairs:
        if not equals or not key:
            raise argparse.ArgumentTypeError(f"{key!r}: expected key=value")
    return {key: value for key, _, value in pairs}
