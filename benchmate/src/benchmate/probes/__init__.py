"""The probes of a voirfile: each places an observer in an unmodified program, and must fire.

Every function takes the overseer first and may be called in any phase before the script runs.
"""

from __future__ import annotations

from benchmate.probes.framework_probes import *  # noqa: F403
from benchmate.probes.patch_probes import *  # noqa: F403
from benchmate.probes.selector_probes import *  # noqa: F403
