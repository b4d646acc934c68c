"""An old name of benchmate.ops."""

from benchmate.ops import *  # noqa: F403
from benchmate.ops.benchmark import init_pytorch  # noqa: F401
from benchmate.ops.records import system_info as get_sys_info  # noqa: F401
