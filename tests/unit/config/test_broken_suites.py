"""Every file in tests/suite/broken is refused with lines that name the place, and all of them are."""

from __future__ import annotations

from pathlib import Path

import pytest

from milabench.config.read import read_suite
from milabench.errors import ConfigError
from milabench.plan.render import render_benchmark

BROKEN = Path(__file__).resolve().parents[2] / "suite" / "broken"

EXPECTED = {
    "aliases.yaml": ["6:21: _f.k.2: aliases expand to more than 500000 values"],
    "append_to_text.yaml": ["8:10: group: append needs a list to append to, got 'g'"],
    "code.yaml": ["2:15: a.definition: unknown tag !!python/object/apply:os.system"],
    "duplicate_key.yaml": ["4:3: a.weight: the key 'weight' is given twice"],
    "expression.yaml": [
        "4:7: a.requires_capabilities.0: in the expression",
        "5:7: a.requires_capabilities.1: in the expression",
    ],
    "include_cycle.yaml": ["include_cycle_2.yaml:1:10: include: the includes form a cycle"],
    "include_cycle_2.yaml": ["include_cycle.yaml:1:10: include: the includes form a cycle"],
    "inherit_cycle.yaml": ["3:16: _c.inherits: the inheritance forms a cycle: _a -> _b -> _c -> _a"],
    "interpolation.yaml": ["3:8: a.url: ", "4:10: a.group: ", "6:17: a.docker_image: "],
    "matrix_too_large.yaml": ["3:5: a.matrix: 110000 benchmarks are more than the limit of 20000"],
    "merge_keys.yaml": ["1:14: _a.<<: << takes a mapping", "2:24: a.<<: << takes a mapping"],
    "missing_include.yaml": ["1:10: include: the included file cannot be read (no such file or directory)"],
    "missing_parent.yaml": ["2:15: a.inherits: no benchmark or template named '_resnet50'. Did you mean '_resnet18'?"],
    "not_a_mapping.yaml": ["1:1: expected a mapping from name to benchmark, got a list"],
    "not_utf8.yaml": ["2:18: not UTF-8 (byte 0xe9)"],
    "same_job_name.yaml": ["3:8: a1: two benchmarks are named 'a1'", "3:8: a2: two benchmarks are named 'a2'"],
    "syntax.yaml": ["4:2: not YAML: "],
    "system.yaml": [
        "2:9: system.arch: expected one of cuda, rocm, xpu, hpu, cpu, got 'cdua'. Did you mean 'cuda'?",
        "3:16: system.gpu.count: expected a whole number, got 'many'",
        "3:32: system.gpu.capacity: expected an amount of memory",
        "6:49: system.nodes.0.port: expected a port that is at most 65535, got 99999",
        "8:7: system.nodes.2: the key 'ip' is missing",
    ],
    "too_deep.yaml": ["3:71: a.voir.0: nested more than 64 deep"],
    "unknown_key.yaml": [
        "3:3: a: unknown key 'max_durration'. Did you mean 'max_duration'?",
        "4:3: a: unknown key 'requierments'",
    ],
    "wrong_type.yaml": [
        "3:17: a.max_duration: expected a number of seconds, got 'ten'",
        "4:12: a.enabled: expected true or false, got 3",
        "5:9: a.tags: expected a list, got a mapping",
        "6:18: a.plan.method: expected one of per_gpu, njobs, multigpu, multinode, got 'per_cpu'",
        "6:30: a.plan.n: expected a whole number that is at least 1, got 0",
    ],
}


@pytest.mark.parametrize("name", sorted(path.name for path in BROKEN.iterdir()))
def test_a_broken_file_is_refused_with_its_places(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        suite = read_suite([BROKEN / name])
        # What only planning can see.
        render_benchmark(suite.benchmarks["a"], {"milabench_data": "/d"})
    lines = str(caught.value).replace(f"{BROKEN}/", "").split("\nerror: ")
    expected = EXPECTED.get(
        name, ["4:13: a.argv.--data: the placeholder {milabench_dta} cannot be resolved, there is no"]
    )
    starts = [start if ".yaml:" in start.split(" ")[0] else f"{name}:{start}" for start in expected]
    assert [line[: len(start)] for line, start in zip(lines, starts, strict=True)] == starts
