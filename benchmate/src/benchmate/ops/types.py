"""Types of values from outside: what torch returns, and what is inside JSON. Importing this package must not need torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

__all__ = ["Arguments", "Call", "JsonMapping", "JsonObject", "Keywords"]
__all__ += ["DType", "Event", "FunctionSchema", "Generator", "OpOverload", "Storage", "Tensor", "Work"]
if TYPE_CHECKING:
    from torch import FunctionSchema, Generator, Tensor
    from torch import UntypedStorage as Storage
    from torch import dtype as DType  # noqa: N812
    from torch._ops import OpOverload
    from torch.cuda import Event
    from torch.distributed import Work
else:
    # Annotations, the only place where these stand, are never evaluated: any object will do to be imported.
    FunctionSchema = Generator = Tensor = Storage = DType = OpOverload = Event = Work = object

Call = Callable[[], object]
"""A call with its arguments bound: what is timed."""
Arguments = Sequence[object]
"""Positional arguments of an operator: tensors, numbers, lists, whatever its schema says."""
Keywords = dict[str, object]
"""Keyword arguments of an operator."""
JsonObject = dict[str, Any]
"""An object to be written: a record of a run, a configuration."""
JsonMapping = Mapping[str, Any]
"""An object that was read: a configuration, the specification of one argument, a record."""
