"""The registry: names made from templates, the function or class behind each. Mistakes are errors at registration."""

from __future__ import annotations

import abc
import inspect
import itertools
import re
import string
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import TypeVar

T = TypeVar("T")

STATE = "state"


class RegistrationError(ValueError):
    """An invalid case. The text has the place of its registration, the problem and a hint."""


class Skip(Exception):
    """Raised by a case that cannot be measured here. Its text is the reason."""


class BenchmarkCase(abc.ABC):
    """A base for cases that are classes, optional: any class with a method `run` will do."""

    def setup(self) -> None:  # noqa: B027  (optional)
        """Prepare the measured work. Not timed."""

    @abc.abstractmethod
    def run(self) -> None:
        """Do the measured work."""

    def teardown(self) -> None:  # noqa: B027  (optional)
        """Release resources. Not timed, and called also when `run` failed."""


@dataclass(slots=True, kw_only=True)
class State:
    """A case's own figures, through a parameter called `state` of the function or of a method.

    `items` and `bytes` are processed by a call of `run`, reported per second. `counters` are numbers by name,
    reported as they are. `label` is a remark.
    """

    items: float | None = None
    bytes: float | None = None
    counters: dict[str, float] = field(default_factory=dict)
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A case: its full name, its registration (`family`), its number within that (`instance`), its subject."""

    name: str
    family: int
    instance: int
    subject: Callable[..., object]
    params: Mapping[str, object]


class Registry:
    """All cases of a program, in the order of registration."""

    def __init__(self) -> None:
        self.cases: dict[str, Case] = {}
        self._families = 0

    def add(self, subject: object, name: str, params: Mapping[str, Iterable[object]]) -> None:
        """Add a case for each combination of values. The first parameter varies slowest. Raises RegistrationError."""
        values = {key: _values(key, given) for key, given in params.items()}
        _check_template(name, values)
        if not callable(subject):
            raise RegistrationError(f"{subject!r} is neither a function nor a class with a method run")
        _check_subject(subject, {key: given[0] for key, given in values.items()})
        cases: dict[str, Case] = {}
        for instance, combination in enumerate(itertools.product(*values.values())):
            of_case = dict(zip(values, combination, strict=True))
            full = _format_name(name, of_case) if values else name
            if full in cases:
                raise RegistrationError(f"{full!r} comes out of the template twice: {_uniqueness_hint(name, values)}")
            if full in self.cases:
                raise RegistrationError(f"{full!r} is already registered. Rename one of them")
            cases[full] = Case(name=full, family=self._families, instance=instance, subject=subject, params=of_case)
        self.cases |= cases
        self._families += 1

    def matching(self, pattern: re.Pattern[str], *, negated: bool = False) -> tuple[Case, ...]:
        """Return the cases in whose name the pattern is found anywhere, or those in which it is not."""
        return tuple(case for case in self.cases.values() if (pattern.search(case.name) is None) == negated)


REGISTRY = Registry()
"""The cases of this process. A decorator needs a place to put them."""


def register(name: str, **params: Iterable[object]) -> Callable[[T], T]:
    """Register a function or a class as a case, or as a case for each combination of parameter values.

    `name` is a template as of str.format: `{task}` is replaced by the value of `task`. A function gets its values as keyword
    arguments, an instance of a class as attributes. The decorated object stays unchanged. Raises RegistrationError.
    """
    # A name is wrong in the program, not here: the place says which of many decorators it is.
    caller = sys._getframe(1)
    where = f"{caller.f_code.co_filename}:{caller.f_lineno}"
    if not isinstance(name, str):
        _report_in_one_line()
        raise RegistrationError(f"{where}: register: expected a name. Write @register(name='...')")

    def decorate(subject: T) -> T:
        try:
            REGISTRY.add(subject, name, params)
        except RegistrationError as error:
            _report_in_one_line()
            raise RegistrationError(f"{where}: {error}") from None
        return subject

    return decorate


def takes_state(function: Callable[..., object]) -> bool:
    """Whether a function or bound method has a parameter called `state`."""
    try:
        return STATE in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def _values(key: str, given: Iterable[object]) -> list[object]:
    if isinstance(given, (str, bytes)):
        raise RegistrationError(f"{key}={given!r}: text would be taken letter by letter. Write {key}=[{given!r}]")
    try:
        values = list(given)
    except TypeError:
        raise RegistrationError(f"{key}={given!r}: expected several values. Write {key}=[{given!r}]") from None
    if not values:
        raise RegistrationError(f"{key}: no values, so there would be no case. Give at least one")
    return values


def _check_template(name: str, values: Mapping[str, object]) -> None:
    try:
        fields = [field for _, field, _, _ in string.Formatter().parse(name) if field is not None]
    except ValueError as error:
        raise RegistrationError(f"{name!r}: {error}. A brace itself is written twice") from None
    for text in fields:
        root = re.split(r"[.\[]", text, maxsplit=1)[0]
        if not root or root.isdigit():
            raise RegistrationError(f"{name!r}: the field {{{text}}} has no name. Write {{batch}} and batch=[...]")
        if root not in values:
            raise RegistrationError(f"{name!r}: no values for the field {{{text}}}. Add {root}=[...]")


def _check_subject(subject: Callable[..., object], first: Mapping[str, object]) -> None:
    """Check that the subject can be called with values for the parameters, of which `first` are some."""
    offered = {**first, STATE: None} if takes_state(subject) else first
    if inspect.isclass(subject):
        what, offered = subject.__qualname__, {}  # an instance gets the values as attributes
        if not callable(getattr(subject, "run", None)) or "run" in getattr(subject, "__abstractmethods__", ()):
            raise RegistrationError(f"class {what} has no method run. Define it: this method is measured")
        for key in first:
            if hasattr(subject, key) and not inspect.ismemberdescriptor(getattr(subject, key)):
                raise RegistrationError(f"class {what} has an attribute {key} already. Rename the parameter")
    _check_call(subject, offered)


def _check_call(subject: Callable[..., object], offered: Mapping[str, object]) -> None:
    try:
        signature = inspect.signature(subject)
    except (TypeError, ValueError):
        return  # a builtin that does not tell: it is seen when it is called
    try:
        signature.bind(**offered)
    except TypeError as error:
        what = getattr(subject, "__qualname__", repr(subject))
        given = ", ".join(offered) or "no arguments"
        raise RegistrationError(f"{what}{signature} is called with {given}: {error}. They have to agree") from None


def _format_name(name: str, values: Mapping[str, object]) -> str:
    try:
        return name.format(**values)
    except (ValueError, AttributeError, LookupError, TypeError) as error:
        raise RegistrationError(f"{name!r} with {dict(values)}: {error}") from None


def _uniqueness_hint(name: str, values: Mapping[str, object]) -> str:
    fields = {field for _, field, _, _ in string.Formatter().parse(name) if field}
    missing = [key for key in values if not any(re.match(rf"{key}\b", field) for field in fields)]
    if missing:
        return f"put {', '.join(f'{{{key}}}' for key in missing)} into it"
    return "give each value once, and values that print differently"


def _report_in_one_line() -> None:
    """Make a registration error that nobody catches end the program with a line and exit code 2, without a traceback."""
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not isinstance(error, RegistrationError):
            before(kind, error, trace)
            return
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)

    sys.excepthook = hook
