"""Shapes checked by msgspec, in C: a hundred summaries have millions of values.

Imports msgspec, which takes tens of milliseconds: import this module where many values are read, not at start-up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from milabench.events.shapes import ABOVE_ZERO, COUNT, NOT_NEGATIVE, Required, Shape
from milabench.events.values import LARGEST_NUMBER, SMALLEST_NUMBER

UNREAD: Shape = msgspec.Raw
"""A value of any shape, left as the bytes that it is written in; it has to be `Required`."""
_SCALARS: Mapping[Shape, Any] = {
    UNREAD: msgspec.Raw,
    str: str,
    bool: bool,
    object: Any,
    int: Annotated[int, msgspec.Meta(ge=-(2**63) + 1, le=2**63 - 1)],
    float: Annotated[float, msgspec.Meta(ge=-LARGEST_NUMBER, le=LARGEST_NUMBER)],
    ABOVE_ZERO: Annotated[float, msgspec.Meta(ge=SMALLEST_NUMBER, le=LARGEST_NUMBER)],
    NOT_NEGATIVE: Annotated[float, msgspec.Meta(ge=0, le=LARGEST_NUMBER)],
    COUNT: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)],
}


class ShapeCheck:
    """Whether JSON has a shape; what is refused here may still have it, and is `require_shape`'s to name."""

    def __init__(self, shape: Shape) -> None:
        self._decoder = msgspec.json.Decoder(_type_of(shape))

    def checked(self, content: bytes) -> Any:
        """Return the value that these bytes hold, None where it is not known to have the shape.

        A mapping of known keys has them as attributes, None for what is missing, and no others.
        """
        try:
            return self._decoder.decode(content)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return None


def _type_of(shape: Shape) -> Any:
    """Return a type that has nothing but what has the shape."""
    if isinstance(shape, list):
        return list[_type_of(shape[0])]  # type: ignore[misc]  # made at run time
    if not isinstance(shape, Mapping):
        return _SCALARS[shape]
    if not shape:
        return dict[str, Any]
    if str in shape:
        return dict[str, _field_type(shape[str])]  # type: ignore[misc]  # as above
    fields = [
        (key, _field_type(wanted), msgspec.NODEFAULT if isinstance(wanted, Required) else None)
        for key, wanted in shape.items()
    ]
    return msgspec.defstruct("Shape", fields, gc=False, kw_only=True)


def _field_type(wanted: Shape) -> Any:
    return _type_of(wanted.shape) if isinstance(wanted, Required) else _type_of(wanted) | None
