"""What the agent reads of its processors before and after a launch."""

from __future__ import annotations

import os
import subprocess
import sys

from milabench.execute.agent.procfs import host_use


def test_the_work_of_a_child_is_ours_and_known() -> None:
    use = host_use()
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.3: pass"], check=True)
    used = use()
    assert used is not None
    assert used["processors"] == len(os.sched_getaffinity(0))
    assert used["ours_s"] >= 0.29
    # Nobody else is known here; what was done is at least ours, as far as ticks tell.
    assert used["busy_s"] + used["resolution_s"] + 0.02 * used["processors"] >= used["ours_s"]
    assert 0 <= used["steal_s"] <= used["seconds"] * used["processors"]
