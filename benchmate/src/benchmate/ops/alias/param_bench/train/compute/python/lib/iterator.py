"""An old name of benchmate.ops."""

from benchmate.ops import *  # noqa: F403
