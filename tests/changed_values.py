"""`replace` of dataclasses and of structs, for tests that change both."""

from __future__ import annotations

import dataclasses
from typing import Any

from msgspec import Struct, structs


def replace(value: Any, /, **changes: Any) -> Any:
    """A copy of a value with other fields."""
    return structs.replace(value, **changes) if isinstance(value, Struct) else dataclasses.replace(value, **changes)
