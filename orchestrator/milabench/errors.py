"""The errors that end a command: the text that a person reads and the exit code (protocol.md, section 5)."""

from __future__ import annotations

from dataclasses import dataclass

from milabench.redaction import mask

DONE = 0
STEPS_FAILED = 1
UNREACHABLE = 5
NOT_WRITTEN = 6
INTERRUPTED = 130
VERDICT_CODES = {"PASS": DONE, "FAIL": 7, "INCONCLUSIVE": 8}
"""Of the verdicts of acceptance criteria."""


MAX_PROBLEMS = 100
"""Maximum number of shown problems of a suite. They are corrected first."""
MAX_SHOWN = 1_000
"""Maximum number of shown characters of a problem."""


class MilabenchError(Exception):
    """An error that is explained in a few lines: `str(error)`. The base class of all others."""

    exit_code = 1

    def __str__(self) -> str:
        # An error quotes what is wrong, and reaches programs and logs that we do not know.
        return mask(super().__str__())


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of an input file.

    `where` is `file:line:column`, or the name of an option. `path` the dotted key. `hint` the remedy. `replaces`
    the place of the value that this value replaced, if any.
    """

    where: str
    path: str
    what: str
    hint: str = ""
    replaces: str = ""

    def __str__(self) -> str:
        parts = (self.where, self.path.replace("\n", "\\n"), self.what)
        head = ": ".join(_shortened(part) for part in parts if part)
        text = with_remedy(head, _shortened(self.hint))
        return f"{text}\n       {self.replaces}" if self.replaces else text


def with_remedy(problem: str, remedy: str) -> str:
    """Return a problem and its remedy as two sentences. Without a remedy, the problem alone."""
    if remedy.partition(" ")[0].rstrip(":,").isalpha():  # a word, and no name of a file or key
        remedy = remedy[0].upper() + remedy[1:]
    return f"{problem}. {remedy}" if remedy else problem


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


class ConfigError(MilabenchError):
    """The suite, the system file, an override or an option cannot be understood. Carries every problem found."""

    exit_code = 2

    def __init__(self, problems: str | Problem | tuple[Problem, ...] | list[Problem]) -> None:
        if isinstance(problems, str):
            self.problems: tuple[Problem, ...] = ()
            super().__init__(problems)
        else:
            self.problems = (problems,) if isinstance(problems, Problem) else tuple(problems)
            super().__init__("\nerror: ".join(str(problem) for problem in self.problems))


class UsageError(MilabenchError):
    """Options or arguments contradict each other, or ask for something that does not exist."""

    exit_code = 2


class NothingSelected(MilabenchError):
    """No benchmark, run or step matched."""

    exit_code = 3


class EnvironmentFailed(MilabenchError):
    """An environment, a program, packages or data cannot be installed or prepared, or are missing for a run."""

    exit_code = 4


class Unreachable(MilabenchError):
    """A node, an agent or a container engine does not answer, or a device or run is in use by another process."""

    exit_code = 5


class RecordError(MilabenchError):
    """A run directory, a results store or a bundle cannot be read or written, or was altered."""

    exit_code = 6


def os_reason(error: OSError) -> str:
    """Return the system's error text, as a clause: lower case, without its number and the file."""
    text = error.strerror or str(error)
    return text[:1].lower() + text[1:]
