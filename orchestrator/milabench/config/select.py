"""Which benchmarks a `--select` and an `--exclude` mean: names, globs, groups, environments, tags and names of folders,
joined by commas, and, or, not.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Final

from milabench.config.definition import definition_name
from milabench.config.problems import Problems
from milabench.config.schema import BenchmarkConfig, Suite
from milabench.errors import ConfigError, NothingSelected, Problem, UsageError, with_remedy
from milabench.shown import some_of

MAX_LENGTH: Final = 10_000
MAX_DEPTH: Final = 50
_MAX_LACKING: Final = 5
_TOKEN: Final = re.compile(r"""('[^']*'|"[^"]*"|[(),]|[^\s(),]+)""")
_WORDS: Final = frozenset(["and", "or", "not"])

Test = Callable[[BenchmarkConfig], bool]
Words = Callable[[BenchmarkConfig], tuple[str, ...]]


def select(suite: Suite, select: str | None = None, exclude: str | None = None) -> tuple[BenchmarkConfig, ...]:
    """Return the benchmarks meant, in the order of the suite.

    A disabled benchmark is only meant where its name is given. Raises NothingSelected when there is none, or when a
    word of `select` matches nothing, UsageError when an expression cannot be read, and ConfigError for benchmarks meant
    that lack the size asked for.
    """
    everything = tuple(suite.benchmarks.values())
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
        raise NothingSelected(_nothing(everything, select, exclude, disabled))
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


def _nothing(
    everything: tuple[BenchmarkConfig, ...], select: str | None, exclude: str | None, disabled: list[str]
) -> str:
    if not everything:
        return "nothing to select: the suite has no benchmark"
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
        import difflib  # for the rare mistake, not at every start

        near = difflib.get_close_matches(word, sorted(known), 3)
        hint = "did you mean " + " or ".join(repr(name) for name in near) + "?" if near else _some(known)
        what = f"{word!r} matches no benchmark" if _is_glob(word) else f"unknown benchmark, group or tag {word!r}"
        lines.append(with_remedy(what, hint))
    if lines:
        raise NothingSelected("\nerror: ".join(lines))


def _some(known: set[str]) -> str:
    names = sorted(known)
    return f"known: {some_of(names, 8)}" if names else "the suite has no benchmark"


def _is_glob(word: str) -> bool:
    return any(char in word for char in "*?[")


def _matches(word: str, candidate: str) -> bool:
    return word == candidate or (_is_glob(word) and fnmatchcase(candidate, word))


def _parse(text: str, option: str, words_of: Words) -> tuple[Test, list[str]]:
    """Return the test that a selection is, and the words that have to match something."""
    if len(text) > MAX_LENGTH:
        raise UsageError(f"{option}: longer than {MAX_LENGTH} characters")
    parser = _Parser(list(_tokens(text)), option, text, words_of)
    test = parser.any_of(0, True)
    if parser.position < len(parser.tokens):
        raise parser.error(f"{parser.tokens[parser.position]!r} is not expected here")
    return test, parser.positive


def _tokens(text: str) -> Iterator[str]:
    # An empty entry of a comma list, as in "a,,b" or "a,", means nothing.
    after_comma = True
    for match in _TOKEN.finditer(text):
        is_comma = match[1] == ","
        if not (is_comma and after_comma):
            yield match[1].strip("'\"")  # a name with a space stands in quotes
        after_comma = is_comma


class _Parser:
    """Recursive descent: commas bind weakest, then or, and, not."""

    def __init__(self, tokens: list[str], option: str, text: str, words_of: Words) -> None:
        self.words_of = words_of
        self.tokens = tokens[:-1] if tokens and tokens[-1] == "," else tokens
        self.option = option
        self.text = text
        self.position = 0
        self.positive: list[str] = []

    def error(self, what: str) -> UsageError:
        return UsageError(f"{self.option} {self.text!r}: {what}. Join words with commas, and, or, not and parentheses")

    def _next(self, *wanted: str) -> bool:
        if self.position < len(self.tokens) and self.tokens[self.position] in wanted:
            self.position += 1
            return True
        return False

    def any_of(self, depth: int, positive: bool) -> Test:
        tests = [self._all_of(depth, positive)]
        while self._next(",", "or"):
            tests.append(self._all_of(depth, positive))
        return lambda bench: any(test(bench) for test in tests)

    def _all_of(self, depth: int, positive: bool) -> Test:
        tests = [self._one(depth, positive)]
        while self._next("and"):
            tests.append(self._one(depth, positive))
        return lambda bench: all(test(bench) for test in tests)

    def _one(self, depth: int, positive: bool) -> Test:
        if depth > MAX_DEPTH:
            raise self.error("nested too deep")
        if self._next("not"):
            test = self._one(depth + 1, not positive)
            return lambda bench: not test(bench)
        if self._next("("):
            inner = self.any_of(depth + 1, positive)
            if not self._next(")"):
                raise self.error("a ')' is missing")
            return inner
        if self.position >= len(self.tokens) or self.tokens[self.position] in (*_WORDS, ")", ","):
            raise self.error("a name is missing")
        word = self.tokens[self.position]
        self.position += 1
        # Below a `not` a word may match nothing: `not retired` is true where nobody is.
        if positive:
            self.positive.append(word)
        return lambda bench: any(_matches(word, candidate) for candidate in self.words_of(bench))
