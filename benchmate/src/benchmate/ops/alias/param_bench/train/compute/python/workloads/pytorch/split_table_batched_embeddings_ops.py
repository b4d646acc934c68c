"""An old name of operators that are registered already."""

import benchmate.ops.builtin  # noqa: F401
