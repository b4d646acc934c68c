"""What the entries of the standard suite say of the data that they prepare."""

from __future__ import annotations

import re

import pytest

from milabench.workflow.context import read_whole_suite
from milabench.workflow.options import SuiteOptions
from tests.commands import ROOT


@pytest.mark.parametrize("size", ["tiny", "device", "node", "cluster"])
def test_data_that_benchmarks_share_have_one_name(size: str) -> None:
    options = SuiteOptions(config_file=ROOT / "config" / "standard.yaml", size=size, arch="cuda", environ={})
    names: dict[str, set[str]] = {}
    for bench in read_whole_suite(options, detected_arch="cuda").benchmarks.values():
        words = f"{bench.argv} {bench.env}".replace("{milabench_name}", bench.name)
        # The images of a table of captions are those of the folder of its name; links to images are none of their own.
        paths = {
            re.sub(r"^captions/(.*)\.tsv$", r"images/\1", path).removesuffix("-8")
            for path in re.findall(r"\{milabench_data\}/([^'\" :]+)", words)
        }
        if paths and bench.resources.data_mib is not None:
            names.setdefault(" ".join(sorted(paths)), set()).add(bench.resources.shared_data or f"{bench.name} alone")
    assert names
    assert {paths: shared for paths, shared in names.items() if len(shared) > 1} == {}
