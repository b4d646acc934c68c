"""What each plan method means stands in its value, and every name that a suite may give has one."""

from __future__ import annotations

from typing import get_args

from milabench.config.schema import Method
from milabench.plan.method import METHODS, ONE_JOB_METHODS


def test_every_method_that_a_suite_may_name_has_a_meaning() -> None:
    assert tuple(METHODS) == get_args(Method)


def test_the_processes_of_a_method_are_one_job_or_concurrent_instances() -> None:
    assert ONE_JOB_METHODS == ("multigpu", "multinode")
    assert {name for name, method in METHODS.items() if not method.is_one_job} == {"per_gpu", "njobs"}
    assert [name for name, method in METHODS.items() if method.spans_nodes] == ["multinode"]
