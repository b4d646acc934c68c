"""What a suite takes is summed before anything starts: environments once each, data, minutes, and memory that lacks."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from milabench.config.read import read_suite
from milabench.config.schema import BenchmarkConfig
from milabench.config.serving import ServeConfig
from milabench.facts.model import Device, Node
from milabench.plan.profile import PROFILES
from milabench.plan.resources import ResourceSum, memory_shortages, sum_of_data, sum_of_environments
from milabench.plan.venvs import VenvSpec
from milabench.workflow.estimate import stated_seconds, without_accelerators
from milabench.workflow.install import resources_text

GIB = 2**30
SUITE = """\
_t: {definition: x, install_group: both, max_duration: 9, tags: [t]}
a:
  inherits: _t
  resources: {memory: 40 GiB, data: 2 GiB, minutes: 3, environment: {disk: 1 GiB, download: 512 MiB}}
b:
  inherits: _t
  resources: {host_memory: 64 GiB, data: 1 GiB, download: 1 GiB, environment: {disk: 3 GiB}}
c: {inherits: _t, install_group: other}
"""


@pytest.fixture
def benches(tmp_path: Path) -> dict[str, BenchmarkConfig]:
    (tmp_path / "suite.yaml").write_text(SUITE)
    return dict(read_suite([tmp_path / "suite.yaml"]).benchmarks)


def test_an_environment_counts_once_by_its_largest_statement(benches: dict[str, BenchmarkConfig]) -> None:
    needs = sum_of_environments(benches.values())
    assert (needs.disk, needs.download, needs.unknown) == (3 * GIB, GIB // 2, ("other",))


def test_data_are_added_up(benches: dict[str, BenchmarkConfig]) -> None:
    data = sum_of_data(benches.values())
    assert (data.disk, data.download, data.unknown) == (3 * GIB, GIB, ("c",))


def test_data_that_benchmarks_share_count_once(tmp_path: Path) -> None:
    shared = SUITE.replace("data: 2 GiB", "data: 2 GiB, shared_data: llama").replace(
        "data: 1 GiB", "data: 1 GiB, shared_data: llama"
    )
    (tmp_path / "suite.yaml").write_text(shared)
    data = sum_of_data(read_suite([tmp_path / "suite.yaml"]).benchmarks.values())
    assert (data.disk, data.download, data.unknown) == (2 * GIB, GIB, ("c",))


def node(memory: int, *devices: int) -> Node:
    return Node(
        name="n",
        memory_mib=memory * 1024,
        devices=tuple(
            Device(index=index, uuid=str(index), name="X", arch="cuda", memory_mib=size * 1024)
            for index, size in enumerate(devices)
        ),
    )


def step(bench: str, *devices: int) -> dict[str, Any]:
    return {"config": {"name": bench}, "node": "n", "devices": devices}


OF_A_DEVICE = "a: needs 40 GiB of memory, but a device of n has 24 GiB"


@pytest.mark.parametrize(
    ("machine", "lines"),
    [
        (node(128, 80, 80), []),
        (node(128, 80, 24), [OF_A_DEVICE]),
        (
            node(32, 24),
            [
                "a: needs 40 GiB of memory, but a device of n has 24 GiB",
                "b: needs 64 GiB of memory, but the node n has 32 GiB",
            ],
        ),
        (node(0, 0), []),
    ],
    ids=["enough", "one small device", "both", "unknown"],
)
def test_memory_that_lacks_is_told_once(benches: dict[str, BenchmarkConfig], machine: Node, lines: list[str]) -> None:
    indices = [device.index for device in machine.devices]
    steps = [step("a", index) for index in indices] + [step("a", *indices), step("b", 0), step("c", 0)]
    assert list(memory_shortages(benches, steps, [machine])) == lines


def test_sums_stay_readable_where_much_is_stated_or_more_is_downloaded_than_kept(
    planned: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "suite.yaml"
    large = path.read_text().replace("data: 1 GiB, download: 1 GiB", "download: 5 GiB")
    large = large.replace("minutes: 3", "minutes: 525600").replace("disk: 3 GiB", "disk: 1024 PiB")
    path.write_text(large)
    said = planned("run", "--repeat", "1")
    assert "data: 2.1 GB on disk, 5.4 GB to download\n" in said.out
    assert "8760 h 0 min" in said.out
    assert "environments: about 1.2 EB on disk, 537 MB to download, and other," in planned("install").out
    path.write_text(large.replace("data: 2 GiB, ", "").replace("disk: 1 GiB, ", "").replace("{disk: 1024 PiB}", "{}"))
    assert "data: 5.4 GB to download\n" in planned("run").out
    assert "environments: about 537 MB to download, and other," in planned("install").out


def test_more_than_a_thousand_gib_are_written_out(tmp_path: Path) -> None:
    (tmp_path / "suite.yaml").write_text(SUITE.replace("64 GiB", "1.5 TiB"))
    benches = read_suite([tmp_path / "suite.yaml"]).benchmarks
    lines = memory_shortages(benches, [step("b")], [node(1024)])
    assert list(lines) == ["b: needs 1,536 GiB of memory, but the node n has 1,024 GiB"]


def test_sizes_for_accelerators_are_told_where_there_is_none(benches: dict[str, BenchmarkConfig]) -> None:
    line = without_accelerators(benches.values(), [node(64)])
    assert line.startswith("1 of the benchmarks are of a size for accelerators") and "--size tiny" in line
    assert without_accelerators(benches.values(), [node(64, 80)]) == ""
    assert without_accelerators([benches["b"]], [node(64)]) == ""


def test_minutes_are_those_of_the_profile_default(benches: dict[str, BenchmarkConfig]) -> None:
    # 180 s, of which 5 s of warm-up and 30 s of window; the quick profile has 1 s and 3 s.
    assert stated_seconds(benches["a"], PROFILES["default"]) == 180
    assert stated_seconds(benches["a"], PROFILES["quick"]) == 180 - 35 + 4
    sweep = replace(benches["a"], serve=ServeConfig(model="m", rate=(1.0,)))
    assert stated_seconds(sweep, PROFILES["quick"]) == 180
    assert stated_seconds(benches["b"], PROFILES["default"]) is None
    assert stated_seconds(None, PROFILES["default"]) is None


# --- the commands


@pytest.fixture
def planned(tmp_path: Path, milabench: Callable[..., Any]) -> Callable[..., Any]:
    folder = tmp_path / "x"
    folder.mkdir()
    line = "from milabench import Benchmark\nbenchmark = Benchmark(script='main.py', voirfile=None, prepare=None)\n"
    (folder / "benchfile.py").write_text(line)
    (folder / "main.py").write_text("")
    (folder / "requirements.in").write_text("")
    (tmp_path / "suite.yaml").write_text(SUITE.replace("tags: [t]", "install_variant: unpinned"))
    system = "system: {arch: cuda, gpu: {count: 1, capacity: 24 GiB}}\n"
    (tmp_path / "system.yaml").write_text(system)

    def plan(*words: str) -> Any:
        files = ("--config", str(tmp_path / "suite.yaml"), "--system", str(tmp_path / "system.yaml"))
        said = milabench("plan", *words, *files)
        assert said.code == 0, said.err
        return said

    return plan


def test_plan_install_sums_the_environments(planned: Callable[..., Any]) -> None:
    text = planned("install").out
    assert text.endswith(
        "environments: about 3.2 GB on disk, 537 MB to download, and other, which the suite does not state\n"
    )
    needs = json.loads(planned("install", "--json").out)["resources"]
    assert needs == {"disk": 3 * GIB, "download": GIB // 2, "unknown": ["other"]}


def test_sizes_of_environments_are_those_of_the_variant_cpu() -> None:
    needs = ResourceSum(disk=GIB, download=GIB)

    def venv(variant: str) -> VenvSpec:
        return VenvSpec(
            group="torch",
            variant=variant,
            python="3.11",
            platform="linux",
            benches=(),
            requirements=(),
            constraints=None,
            benchmate="",
        )

    assert "stated for the variant cpu: cuda may take" in resources_text(needs, [venv("cuda"), venv("cpu")])
    assert "variant" not in resources_text(needs, [venv("cpu"), venv("unpinned")])


def test_plan_run_sums_minutes_and_data_and_warns_of_memory(planned: Callable[..., Any]) -> None:
    said = planned("run", "--profile", "default", "--repeat", "2")
    assert "estimate: 6 min 0 s, 0.1 device-hours, by the suite, unknown: " in said.out
    assert "  a: 2 x 180 s (as the suite states)" in said.out
    assert "data: 3.2 GB on disk, 1.1 GB to download\n" in said.out
    assert "a: needs 40 GiB of memory, but a device of" in said.err
    plan = json.loads(planned("run", "--json", "--select", "a").out)
    assert plan["data"] == {"disk": 2 * GIB, "download": 0, "unknown": []}
    (bench,) = plan["estimate"]["benchmarks"]
    assert (bench["run"], bench["n"]) == (None, 0)


def test_plan_run_says_whose_window_is_longer_than_that_of_the_profile(planned: Callable[..., Any]) -> None:
    words = ("run", "--profile", "default", "--select", "c")
    assert "longer: " not in planned(*words, "--override", "c.voir.options.stop=60").out
    longer = planned(*words, "--override", "c.voir.options.stop=1000").out
    assert "longer: c: the suite asks for more than 60 observations (voir.options.stop)\n" in longer
    # What the suite states of a launch is stated of its own window.
    assert "longer: " not in planned("run", "--select", "a", "--override", "a.voir.options.stop=1000").out
