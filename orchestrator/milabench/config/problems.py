"""Problems with a suite, collected on the way so that all of them are reported at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from milabench.config.source_map import Located, MergeError, merge_documents
from milabench.errors import ConfigError, Problem


class UnplacedProblem(Exception):
    """A problem with a text, and a hint, raised where the place of the text is not known."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.hint = hint


@dataclass(slots=True)
class Problems:
    """The problems so far. The same fact about a place is noted once, however many benchmarks share that place.

    With `most`, whoever notes more gets a ConfigError with all of them: to look for the nearest of ten thousand names a
    thousand times takes a minute.
    """

    most: int | None = None
    by_fact: dict[tuple[str, str], Problem] = field(default_factory=dict)

    def note(self, where: object, path: str, what: str, hint: str = "", replaces: str = "") -> None:
        """Note a problem at a mark, or at a place by its name."""
        self.add(Problem(str(where), path, what, hint, replaces))

    def add(self, problem: Problem) -> None:
        """Note a problem. Raises ConfigError when there are too many to continue."""
        self.by_fact.setdefault((problem.where, problem.what), problem)
        if self.most is not None and len(self.by_fact) > self.most:
            raise ConfigError(self.all())

    def extend(self, problems: Iterable[Problem]) -> None:
        """Note several problems."""
        for problem in problems:
            self.add(problem)

    def take(self, error: ConfigError) -> None:
        """Note the problems of an error."""
        self.extend(error.problems or (Problem("", "", str(error)),))

    @contextmanager
    def taking(self) -> Iterator[None]:
        """Note the problems of a ConfigError that ends the block."""
        try:
            yield
        except ConfigError as error:
            self.take(error)

    def all(self) -> tuple[Problem, ...]:
        """Return the problems in the order in which they were met."""
        return tuple(self.by_fact.values())

    def merge(self, low: Located | None, high: Located) -> Located:
        """Merge two trees. Where they cannot be merged, note the problem and return the lower tree."""
        if low is None:
            return high
        try:
            return merge_documents(low, high)
        except MergeError as failure:
            self.add(failure.problem())
            return low

    def raise_any(self) -> None:
        """Raise ConfigError with everything noted, if there is anything."""
        if self.by_fact:
            raise ConfigError(self.all())


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `Did you mean 'x'?` with the known name nearest to this name, or nothing where none is near."""
    import difflib  # for the rare mistake, not at every start

    nearest = difflib.get_close_matches(name, list(known), 1)
    return f"Did you mean {nearest[0]!r}?" if nearest else ""
