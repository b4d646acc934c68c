"""Data classes that start fast are those of the standard library to whoever uses them."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, field, fields, replace
from typing import Any, ClassVar

import pytest

from milabench.dataclass import dataclass

Decorate = Callable[[type[Any]], type[Any]]
OPTIONS: dict[str, dict[str, bool]] = {
    "values": {"frozen": True, "slots": True, "kw_only": True},
    "values by position": {"frozen": True, "slots": True},
    "without slots": {"frozen": True, "kw_only": True},
    "states": {"slots": True},
    "states by name": {"slots": True, "kw_only": True},
    "identities": {"slots": True, "eq": False},
    "with a text of their own": {"frozen": True, "repr": False},
}


def shaped(decorate: Decorate) -> tuple[type[Any], ...]:
    """Classes of each shape: no field, one, defaults, factories, what is computed, what is neither compared nor shown."""

    @decorate
    class Empty:
        """Nothing."""

    @decorate
    class Single:
        name: str

    @decorate
    class Many:
        """Some."""

        kind: ClassVar[str] = "many"
        name: str
        number: float = 1.5
        names: tuple[str, ...] = ()
        settings: dict[str, int] = field(default_factory=dict)
        hidden: int = field(default=7, compare=False, repr=False)
        own: list[int] = field(default_factory=list, init=False)
        fixed: int = field(default=3, init=False)

        @property
        def twice(self) -> float:
            return 2 * self.number

    @decorate
    class Inherited(Many):
        more: int = 0

    @decorate
    class Computed:
        a: int
        total: int = field(init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "total", self.a + 1)

    @decorate
    class ByHand:  # noqa: PLW1641  the decorator's, as that of the standard library
        a: int

        def __eq__(self, other: object) -> bool:
            return False

        def __repr__(self) -> str:
            return "by hand"

    return Empty, Single, Many, Inherited, Computed, ByHand


ARGUMENTS: tuple[dict[str, Any], ...] = (
    {},
    {"name": "a"},
    {"a": 1},
    {"name": "a", "number": 2.0, "settings": {"x": 1}},
    {"name": "a", "hidden": 8},
    {"name": "a", "more": 4},
    {"name": "a", "unknown": 1},
    {"name": "a", "own": []},
)


def outcome(action: Callable[[], object]) -> object:
    """What an action returns, or the error that it raises."""
    try:
        return action()
    except (TypeError, AttributeError) as error:
        return type(error).__name__, str(error)


@pytest.fixture(params=OPTIONS)
def pairs(request: pytest.FixtureRequest) -> list[tuple[type[Any], type[Any]]]:
    options = OPTIONS[request.param]
    ours, standard = dataclass(**options), dataclasses.dataclass(**options)  # type: ignore[call-overload]
    return list(zip(shaped(ours), shaped(standard), strict=True))


def instances(pair: tuple[type[Any], type[Any]]) -> list[tuple[Any, Any]]:
    """Instances of both for the same arguments, where these are right."""
    made = []
    for arguments in ARGUMENTS:
        try:
            made.append((pair[0](**arguments), pair[1](**arguments)))
        except TypeError:
            continue
    assert made
    return made


def test_it_is_made_of_the_same_arguments_and_refuses_the_same(pairs: list[tuple[type[Any], type[Any]]]) -> None:
    for ours, standard in pairs:
        for arguments in ARGUMENTS:
            made, expected = (
                outcome(lambda kind=kind, arguments=arguments: asdict(kind(**arguments))) for kind in (ours, standard)
            )
            assert made == expected


def test_it_is_shown_compared_and_hashed_the_same(pairs: list[tuple[type[Any], type[Any]]]) -> None:
    for pair in pairs:
        made = instances(pair)
        for ours, standard in made:
            if type(standard).__repr__ is not object.__repr__:
                assert repr(ours) == repr(standard)
            assert outcome(lambda ours=ours: hash(ours) and 0) == outcome(
                lambda standard=standard: hash(standard) and 0
            )
            assert [ours == other for other, _ in made] == [standard == other for _, other in made]
            assert ours != standard


def test_it_is_assigned_to_or_refuses_it_the_same(pairs: list[tuple[type[Any], type[Any]]]) -> None:
    for pair in pairs:
        for ours, standard in instances(pair):
            for name in [spec.name for spec in fields(standard)]:
                assert outcome(lambda: setattr(ours, name, 5)) == outcome(lambda: setattr(standard, name, 5))  # noqa: B023
                assert outcome(lambda: delattr(ours, name)) == outcome(lambda: delattr(standard, name))  # noqa: B023


def test_it_is_copied_and_replaced_the_same(pairs: list[tuple[type[Any], type[Any]]]) -> None:
    for pair in pairs:
        for ours, standard in instances(pair):
            assert asdict(copy.copy(ours)) == asdict(copy.deepcopy(ours)) == asdict(standard)
            assert outcome(lambda: asdict(replace(ours, name="b"))) == outcome(  # noqa: B023
                lambda: asdict(replace(standard, name="b"))  # noqa: B023
            )


def test_it_has_the_same_fields_and_signature_also_before_its_first_use(
    pairs: list[tuple[type[Any], type[Any]]],
) -> None:
    for ours, standard in pairs:
        assert str(inspect.signature(ours)) == str(inspect.signature(standard))
        assert list(map(repr, fields(ours))) == list(map(repr, fields(standard)))
        assert ours.__match_args__ == standard.__match_args__
        assert vars(ours).get("__slots__") == vars(standard).get("__slots__")


def test_a_frozen_one_without_a_field_of_that_name_refuses_too() -> None:
    made = shaped(dataclass(frozen=True))[0]()
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'other'"):
        made.other = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Pickled:
    """A value that crosses processes."""

    name: str
    numbers: tuple[int, ...] = ()


def test_it_is_pickled() -> None:
    value = Pickled(name="a", numbers=(1, 2))
    assert pickle.loads(pickle.dumps(value)) == value
