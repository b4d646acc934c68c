"""What a benchmark takes, and the operations of its items, as a suite states them."""

from __future__ import annotations

from pathlib import Path

import pytest

from milabench.config.read import read_suite
from milabench.config.schema import BenchmarkConfig, Suite
from milabench.config.show import to_yaml
from milabench.errors import ConfigError

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def suite(folder: Path, text: str, name: str = "suite.yaml") -> Suite:
    (folder / name).write_text(text)
    return read_suite([folder / name])


def bench(folder: Path, keys: str) -> BenchmarkConfig:
    return suite(folder, f"a: {{definition: x, {keys}}}").benchmarks["a"]


def test_amounts_are_read_with_their_units_and_what_is_not_known_stays_so(tmp_path: Path) -> None:
    keys = "resources: {memory: 40 GiB, data: 2 GB, minutes: 0.5, environment: {disk: 1.5 GB, download: 400 MB}}"
    resources = bench(tmp_path, keys).resources
    # 2 GB is 2e9 bytes: 1907 MiB and a bit.
    assert (resources.memory_mib, resources.data_mib, resources.minutes) == (40 * 1024, 1907, 0.5)
    assert (resources.environment.disk_mib, resources.environment.download_mib) == (1430, 381)
    assert (resources.host_memory_mib, resources.download_mib) == (None, None)


@pytest.mark.parametrize(("written", "operations"), [("6 * 1.1e9", 6.6e9), ("2.5e9", 2.5e9), ("2 * (3 + 4)", 14.0)])
def test_operations_of_an_item_are_a_number_or_arithmetic(tmp_path: Path, written: str, operations: float) -> None:
    assert bench(tmp_path, f"flops_per_item: {written}").flops_per_item == pytest.approx(operations)


@pytest.mark.parametrize(
    ("keys", "what"),
    [
        ("resources: {memry: 4 GiB}", "a.resources: unknown key 'memry'. Did you mean 'memory'?"),
        ("resources: {memory: much}", "a.resources.memory: expected an amount of memory such as 80 GiB, got 'much'"),
        (
            "resources: {memory: -4 GiB}",
            "a.resources.memory: expected an amount of memory such as 80 GiB, got '-4 GiB'",
        ),
        ("resources: {memory: .nan}", "a.resources.memory: expected an amount of memory such as 80 GiB, got nan"),
        ("resources: {memory: 1e27 TiB}", "a.resources.memory: expected an amount of memory such as 80 GiB, got"),
        (
            f"resources: {{environment: {{disk: 1{27 * '0'} TiB}}}}",
            "a.resources.environment.disk: expected an amount of memory such as 80 GiB, at most 1 EiB, got '1000",
        ),
        ("resources: {data: 1025 PiB}", "a.resources.data: expected an amount of memory such as 80 GiB, at most 1 EiB"),
        ("resources: {minutes: 1e300}", "a.resources.minutes: expected a number that is at most 525600, got 1e300"),
        ("resources: {minutes: .inf}", "a.resources.minutes: expected a number that is at most 525600, got inf"),
        ("resources: {minutes: .nan}", "a.resources.minutes: expected a number, got nan"),
        ("resources: {minutes: -1}", "a.resources.minutes: expected a number that is at least 0, got -1"),
        ("flops_per_item: 6 * parameters", "a.flops_per_item: in the expression '6 * parameters'"),
        ("flops_per_item: 0", "a.flops_per_item: expected a number above 0 and up to 1e30, or arithmetic"),
        ("flops_per_item: 1.0e+250", "a.flops_per_item: expected a number above 0 and up to 1e30, or arithmetic"),
        (
            f"gated: {{repository: ../../etc, revision: {COMMIT}}}",
            "a.gated.repository: expected a repository of the hub",
        ),
        (
            f"gated: {{repository: own er/na me, revision: {COMMIT}}}",
            "a.gated.repository: expected a repository of the hub",
        ),
        (f"gated: {{repository: '', revision: {COMMIT}}}", "a.gated.repository: expected a repository of the hub"),
        (
            f"gated: {{repository: a/b, accept: 'javascript:alert(1)', revision: {COMMIT}}}",
            "a.gated.accept: expected an address that begins with https://",
        ),
        ("requires_programs: ['']", "a.requires_programs.0: expected the name of a program, got ''"),
        ("requires_programs: ' '", "a.requires_programs.0: expected the name of a program, got ' '"),
        ("precision: bf8", "a.precision: expected one of fp64, fp32, tf32, bf16, fp16, fp8, int8, got 'bf8'"),
    ],
)
def test_what_is_wrong_is_told_with_its_key(tmp_path: Path, keys: str, what: str) -> None:
    with pytest.raises(ConfigError) as caught:
        bench(tmp_path, keys)
    assert what in str(caught.value)


def test_what_is_shown_reads_back(tmp_path: Path) -> None:
    keys = "resources: {memory: 40 GiB, environment: {disk: 2 GiB}}, flops_per_item: 6 * 1.1e9, precision: bf16"
    read = suite(tmp_path, f"a: {{definition: x, {keys}}}")
    assert suite(tmp_path, to_yaml(read), "shown.yaml").benchmarks == read.benchmarks
