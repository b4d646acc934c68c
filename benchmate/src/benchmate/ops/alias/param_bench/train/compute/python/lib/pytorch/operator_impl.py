"""An old name of benchmate.ops."""

from benchmate.ops.operators import AtenOp as TorchScriptOp  # noqa: F401
from benchmate.ops.operators import (
    BuildableOp,  # noqa: F401
    CallableOp,  # noqa: F401
    UnaryOp,  # noqa: F401
)
