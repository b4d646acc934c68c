"""What an agent is told of a step besides what the plan says."""

from __future__ import annotations

import pytest

from milabench.execute.agent_client import _start_fields
from milabench.execute.api import StepRequest
from milabench.plan.launchers import SRUN_LINE
from milabench.plan.model import Step


@pytest.mark.parametrize(
    ("settings", "is_detached"),
    [
        ({"argv": ("train",)}, False),
        ({"argv": ("/bin/sh", "-c", SRUN_LINE, "srun", "train")}, True),
        ({"argv": ("docker", "run"), "end_argv": ("docker", "rm")}, True),
    ],
)
def test_a_monitor_is_told_whose_processes_are_children_of_a_service(settings, is_detached):
    fields = _start_fields(StepRequest(step=Step(id="a", bench="a", phase="run", **settings)))
    assert fields["monitor"]["about"]["container"] is is_detached
