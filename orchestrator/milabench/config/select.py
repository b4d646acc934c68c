"""Which benchmarks a `--select` and an `--exclude` mean: names, globs, groups, environments, tags and names of folders,
joined by commas, and, or, not.
"""

from __future__ import annotations

import ast
import itertools
import re
import shlex
from collections.abc import Callable, Iterable
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Final

from milabench.config.definition import definition_name
from milabench.config.problems import Problems, did_you_mean
from milabench.config.schema import BenchmarkConfig, Suite
from milabench.errors import ConfigError, NothingSelected, Problem, UsageError, with_remedy
from milabench.shown import some_of

MAX_LENGTH: Final = 10_000
MAX_DEPTH: Final = 50
_MAX_LACKING: Final = 5
_TOKEN: Final = re.compile(r"""('[^']*'|"[^"]*"|[(),]|[^\s(),]+)""")
_OPERATORS: Final = {"and": "and", "or": "or", "not": "not", "(": "(", ")": ")", ",": "or"}

Test = Callable[[BenchmarkConfig], bool]
Words = Callable[[BenchmarkConfig], tuple[str, ...]]


def select(suite: Suite, select: str | None = None, exclude: str | None = None) -> tuple[BenchmarkConfig, ...]:
    """Return the benchmarks meant, in the order of the suite.

    A disabled benchmark is only meant where its name is given. Raises NothingSelected when there is none, or when a
    word of `select` matches nothing, UsageError when an expression cannot be read, and ConfigError for benchmarks meant
    that lack the size asked for.
    """
    everything = tuple(suite.benchmarks.values())
    if not everything:
        raise NothingSelected("nothing to select: the suite has no benchmark")
    selected = tuple(bench for bench in everything if bench.enabled)
    disabled: list[str] = []
    words_of = _with_folders(everything)
    if select is not None and select in suite.benchmarks:  # whatever characters it has, a name alone is that name
        selected = (suite.benchmarks[select],)
    elif select is not None and select.strip():
        test, named = _parse(select, "--select", words_of)
        _check_words(named, {word for bench in everything for word in words_of(bench)})
        matched = [bench for bench in everything if test(bench)]
        selected = tuple(bench for bench in matched if bench.enabled or bench.name in named)
        disabled = [bench.name for bench in matched if not (bench.enabled or bench.name in named)]
    if exclude is not None and exclude.strip():
        is_excluded, _ = _parse(exclude, "--exclude", words_of)
        selected = tuple(bench for bench in selected if not is_excluded(bench))
    if not selected:
        raise NothingSelected(_nothing(select, exclude, disabled))
    if problems := lacking_problems(suite, selected):
        raise ConfigError(problems)
    return selected


def lacking_problems(suite: Suite, benches: Iterable[BenchmarkConfig] | None = None) -> list[Problem]:
    """Return a problem for benchmarks, by default all that are enabled, that lack the size asked for, with a hint."""
    if benches is None:
        benches = (bench for bench in suite.benchmarks.values() if bench.enabled)
    names = [bench.name for bench in benches if bench.name in suite.lacking]
    if not names:
        return []
    noted = Problems()
    noted.extend(suite.lacking[name] for name in names)  # those that share their sizes are one problem
    problems = [*noted.all()[:_MAX_LACKING]]
    words = (name if _TOKEN.fullmatch(name) else f'"{name}"' for name in names)
    hint = f"add it, as `{{}}` where nothing changes, or leave them out with --exclude {shlex.quote(','.join(words))}"
    if len(names) == 1:
        hint = with_remedy(problems[0].hint, hint.replace(" them ", " the benchmark "))
        return [replace(problems[0], hint=hint)]
    what = f"{problems[0].what} in {len(names)} benchmarks"
    return [*problems, Problem("", "", what, hint)]


def _words_of(bench: BenchmarkConfig) -> tuple[str, ...]:
    return (bench.name, bench.group, bench.install_group, *bench.tags)


def _with_folders(everything: Iterable[BenchmarkConfig]) -> Words:
    """Return the function from a benchmark to the words that select it.

    The last part of its definition counts as a folder if it is no name, group, environment or tag of the suite.
    """
    known = {word for bench in everything for word in _words_of(bench)}

    def words_of(bench: BenchmarkConfig) -> tuple[str, ...]:
        folder = "" if bench.definition is None else definition_name(bench.definition)
        return _words_of(bench) if folder in known or not folder else (*_words_of(bench), folder)

    return words_of


def _nothing(select: str | None, exclude: str | None, disabled: list[str]) -> str:
    if disabled:
        names = ", ".join(disabled[:5])
        return f"everything that --select {select!r} matches is disabled ({names}). Give a name to run it all the same"
    if select is None and exclude is None:
        return "nothing selected: every benchmark of the suite is disabled. Give a name with --select"
    asked = " ".join(f"{option} {text!r}" for option, text in (("--select", select), ("--exclude", exclude)) if text)
    return f"nothing selected by {asked}. `milabench list` shows all benchmarks"


def _check_words(asked: Iterable[str], known: set[str]) -> None:
    lines: list[str] = []
    for word in dict.fromkeys(asked):
        if any(_matches(word, candidate) for candidate in known):
            continue
        hint = did_you_mean(word, sorted(known)) or f"known: {some_of(sorted(known), 8)}"
        what = f"{word!r} matches no benchmark" if _is_glob(word) else f"unknown benchmark, group or tag {word!r}"
        lines.append(with_remedy(what, hint))
    if lines:
        raise NothingSelected("\nerror: ".join(lines))


def _is_glob(word: str) -> bool:
    return any(char in word for char in "*?[")


def _matches(word: str, candidate: str) -> bool:
    return word == candidate or (_is_glob(word) and fnmatchcase(candidate, word))


def _parse(text: str, option: str, words_of: Words) -> tuple[Test, list[str]]:
    """Return the test that a selection is, and the words that have to match something."""
    if len(text) > MAX_LENGTH:
        raise UsageError(f"{option}: longer than {MAX_LENGTH} characters")
    tokens = _tokens(text)
    words = [token.strip("'\"") for token in tokens if token not in _OPERATORS]  # a name with a space stands in quotes
    numbers = map(str, itertools.count())
    # Python parses it, whose operators bind as these do, with a number in the place of each word.
    source = " ".join(_OPERATORS.get(token) or next(numbers) for token in tokens)
    positive: list[str] = []

    def test_of(node: ast.expr, is_positive: bool, depth: int) -> Test:
        match node:
            case ast.BoolOp(op=op, values=values) if depth < MAX_DEPTH:
                tests = [test_of(value, is_positive, depth + 1) for value in values]
                joined = any if isinstance(op, ast.Or) else all
                return lambda bench: joined(test(bench) for test in tests)
            case ast.UnaryOp(operand=operand) if depth < MAX_DEPTH:
                inverse = test_of(operand, not is_positive, depth + 1)
                return lambda bench: not inverse(bench)
            case ast.Constant(value=int(number)):
                word = words[number]
                # Below a `not` a word may match nothing: `not retired` is true where nobody is.
                positive.extend([word] if is_positive else [])
                return lambda bench: any(_matches(word, candidate) for candidate in words_of(bench))
            case _:
                raise SyntaxError

    try:
        return test_of(ast.parse(source, mode="eval").body, True, 0), positive
    except (SyntaxError, RecursionError, MemoryError):
        hint = "join words with commas, and, or, not and parentheses"
        raise UsageError(with_remedy(f"{option} {text!r} cannot be read", hint)) from None


def _tokens(text: str) -> list[str]:
    """Return the words and operators of a selection. An empty entry of a comma list, as in "a,,b" or "a,", means nothing."""
    tokens = _TOKEN.findall(text.strip(", \t\n"))
    return [each for each, before in zip(tokens, ["", *tokens], strict=False) if not each == before == ","]
