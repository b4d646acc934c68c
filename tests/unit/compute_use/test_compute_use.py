"""The use of a device: operations a second beside the published and the measured peak, each worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from milabench import pages as html
from milabench.analysis.comparison_model import System
from milabench.analysis.rescoring import relative_to
from milabench.analysis.summary import summarise
from milabench.analysis.summary_io import summary_from_json
from milabench.analysis.summary_model import ComputeUse, Summary
from milabench.compute_use.device_peaks import PEAKS, published_peak
from milabench.events.rundir import Run
from milabench.report import brief, text
from milabench.report import json as json_report
from tests.recorded_run import SYSTEM, Recorded, data, rates, record

LLM = {"flops_per_item": 6.6e9, "precision": "bf16"}  # 6 operations for each of 1.1e9 parameters, of a token


def system(name: str = "NVIDIA H100 80GB HBM3", *, count: int = 2, arch: str = "cuda") -> dict[str, Any]:
    (node,) = SYSTEM["nodes"]
    devices = [{"index": i, "uuid": f"G{i}", "name": name, "arch": arch, "memory_MiB": 81559} for i in range(count)]
    return {"system": {"arch": arch, "nodes": [{**node, "devices": devices}]}}


def step(bench: str = "llm", *, device: int = 0, config: dict[str, Any] = LLM, rate: float = 50_000.0) -> Recorded:
    return Recorded(
        bench=bench, tag=f"D{device}", devices=(device,), config=config, events=rates(rate, units="tokens/s")
    )


def products(tera: float, precision: str = "bf16", device: int = 0) -> Recorded:
    metric = data(metric="tflops", value=tera, units="Tflop/s", direction="higher", case=precision)
    return Recorded(bench="flops", tag=f"D{device}", devices=(device,), events=(*rates(1.0, units="Tflop/s"), metric))


def use_of(run: Run | Summary, bench: str = "llm") -> ComputeUse:
    summary = run if isinstance(run, Summary) else summarise(run)
    (use,) = [each.compute for each in summary.benchmarks if each.bench == bench]
    assert use is not None
    return use


def test_operations_a_second_are_those_of_the_items_on_each_device(tmp_path: Path) -> None:
    # Two devices of 50,000 tokens a second each: 330e12 operations a second on one of them.
    use = use_of(record(tmp_path, step(), step(device=1), manifest=system()))
    assert use.achieved == pytest.approx(3.3e14)
    assert (use.peak, use.mfu) == (989.4e12, pytest.approx(3300 / 9894))
    assert (use.measured_peak, use.mfu_measured) == (None, None)


def test_a_job_over_two_devices_shares_its_operations_among_them(tmp_path: Path) -> None:
    ranks = (*rates(100_000.0, rank=0, units="tokens/s"), *rates(100_000.0, rank=1, units="tokens/s"))
    job = Recorded(bench="llm", tag="", devices=(0, 1), method="multigpu", config=LLM, events=ranks)
    summary = summarise(record(tmp_path, job, manifest=system()))
    assert summary.benchmarks[0].perf is not None
    assert use_of(summary).achieved == pytest.approx(6.6e9 * summary.benchmarks[0].perf / 2)


def test_instances_that_share_the_devices_add_up(tmp_path: Path) -> None:
    shared = [
        Recorded(
            bench="llm",
            tag=str(n),
            devices=(0, 1),
            method="njobs",
            config=LLM,
            events=rates(10_000.0, units="tokens/s"),
        )
        for n in range(4)
    ]
    assert use_of(record(tmp_path, *shared, manifest=system())).achieved == pytest.approx(4 * 10_000 * 6.6e9 / 2)


@pytest.mark.parametrize(("units", "seconds"), [("tokens/min", 60), ("tokens / hour", 3600), ("tokens/s", 1)])
def test_the_time_in_the_unit_of_a_rate_is_heeded(tmp_path: Path, units: str, seconds: float) -> None:
    slow = Recorded(bench="llm", config=LLM, events=rates(50_000.0, units=units))
    assert use_of(record(tmp_path, slow, manifest=system())).achieved == pytest.approx(3.3e14 / seconds)


def test_a_rate_of_another_kind_has_no_operations_a_second(tmp_path: Path) -> None:
    other = Recorded(bench="llm", config=LLM, events=rates(50_000.0, units="tokens/step"))
    assert summarise(record(tmp_path, other, manifest=system())).benchmarks[0].compute is None


@pytest.mark.parametrize(
    ("rate", "reached", "is_doubted"), [(50_000, 300, False), (200_000, 900, True), (100_000, 300, True)]
)
def test_more_operations_than_a_device_can_do_are_suspect(
    tmp_path: Path, rate: float, reached: float, is_doubted: bool
) -> None:
    summary = summarise(record(tmp_path, step(rate=rate), products(reached), manifest=system()))
    (bench,) = [each for each in summary.benchmarks if each.bench == "llm"]
    assert ("above-peak" in bench.doubts) is is_doubted
    assert bench.validity == "suspect" or not is_doubted


def test_the_measured_peak_is_the_median_of_the_matrix_products_in_that_precision(tmp_path: Path) -> None:
    steps = (step(), *(products(tera, device=index) for index, tera in enumerate((600, 630, 690))))
    use = use_of(record(tmp_path, *steps, manifest=system(count=3)))
    assert (use.measured_peak, use.measured_by) == (630e12, "flops")
    assert use.mfu_measured == pytest.approx(330 / 630)


def test_products_that_go_on_count_where_they_reach_more_than_a_short_trial(tmp_path: Path) -> None:
    sustained = {"flops_per_item": 1e12, "precision": "bf16"}
    trial = data(metric="tflops", value=600, units="Tflop/s", direction="higher", case="bf16")
    flops = Recorded(bench="flops", config=sustained, events=(*rates(660.0, units="Tflop/s"), trial))
    run = record(tmp_path, step(), flops, manifest=system())
    assert use_of(run).measured_peak == pytest.approx(660e12)
    assert use_of(run, "flops").mfu_measured == pytest.approx(1)


def test_products_in_another_precision_are_no_peak(tmp_path: Path) -> None:
    assert use_of(record(tmp_path, step(), products(300, "fp16"), manifest=system())).measured_peak is None


def test_on_a_processor_there_is_a_measured_peak_only_of_the_whole_of_it(tmp_path: Path) -> None:
    config = {"flops_per_item": 1e6, "precision": "fp32"}
    slots = [step(device=slot, config=config, rate=2000.0) for slot in range(2)]
    run = record(tmp_path, *slots, products(0.1, "fp32"), manifest=system("EPYC", arch="cpu"))
    use = use_of(run)
    # Two slots of 2,000 items: 4e9 operations a second beside 1e11.
    assert (use.achieved, use.peak, use.measured_peak) == (pytest.approx(4e9), None, 1e11)
    assert use.mfu_measured == pytest.approx(0.04)


def test_without_operations_of_an_item_nothing_is_said(tmp_path: Path) -> None:
    summary = summarise(record(tmp_path, step(config={}), manifest=system()))
    assert summary.benchmarks[0].compute is None
    assert "compute" not in summary.to_json()["benchmarks"][0]


def test_a_reference_of_the_same_device_lends_its_measured_peak(tmp_path: Path) -> None:
    run = System(name="run", summary=summarise(record(tmp_path / "a", step(), manifest=system())), manifest={})

    def beside(name: str) -> ComputeUse:
        folder = tmp_path / name
        other = summarise(record(folder, step(), products(700), manifest=system(name)))
        return use_of(relative_to(run, System(name="reference", summary=other, manifest={})))

    assert beside("NVIDIA H100 80GB HBM3").measured_by == "flops of the reference"
    assert beside("NVIDIA H100 80GB HBM3").measured_peak == 700e12
    assert beside("NVIDIA H100 PCIe").measured_peak is None


def test_it_is_read_back_from_a_report(tmp_path: Path) -> None:
    summary = summarise(record(tmp_path, step(), products(660), manifest=system()))
    value = json.loads(json_report.render([summary]))
    again = summary_from_json(value)
    assert use_of(again) == use_of(summary)
    (written,) = [bench["compute"] for bench in value["benchmarks"] if bench["bench"] == "llm"]
    assert (written["mfu"], written["mfu_measured"]) == (pytest.approx(3300 / 9894), 0.5)


def test_every_kind_of_report_shows_it(tmp_path: Path) -> None:
    summary = summarise(record(tmp_path, step(), products(660), manifest=system()))
    for render in (text.render, brief.render):
        (line,) = [line for line in render([summary]).splitlines() if line.startswith("llm ") and "bf16" in line]
        assert [cell.strip() for cell in line.split("|")] == [
            *("llm", "bf16", "330.00", "989.40", "33.4", "660.00", "50.0", "flops")
        ]
    page = html.render([summary])
    assert "33.4% of the published peak (NVIDIA H100 Tensor Core GPU data sheet, SXM)" in page


# --- what the makers publish


@pytest.mark.parametrize(
    ("name", "precision", "tera"),
    [
        ("NVIDIA H100 80GB HBM3", "fp8", 1978.9),
        ("NVIDIA H100 PCIe", "bf16", 756),
        ("NVIDIA H100 NVL", "bf16", 835.5),
        ("NVIDIA H200", "tf32", 494.7),
        ("NVIDIA A100-SXM4-80GB", "bf16", 312),
        ("NVIDIA A100 80GB PCIe", "int8", 624),
        ("NVIDIA GB200", "bf16", 2500),
        ("NVIDIA B200", "bf16", 2250),
        ("NVIDIA L40S", "fp8", 733),
        ("NVIDIA L4", "bf16", 121),
        ("Tesla V100-SXM2-32GB", "fp16", 125),
        ("Tesla V100-PCIE-16GB", "fp16", 112),
        ("NVIDIA GeForce RTX 4090", "bf16", 165.2),
        ("AMD Instinct MI300X", "bf16", 1307.4),
        ("AMD Instinct MI325X OAM", "fp8", 2614.9),
        ("HL-325L", "bf16", 1835),
        ("Intel(R) Data Center GPU Max 1550", "bf16", 839),
    ],
)
def test_a_device_is_known_by_the_name_that_its_driver_gives(name: str, precision: str, tera: float) -> None:
    peak = published_peak(name, precision)
    assert peak is not None
    assert peak.value == tera * 1e12
    assert peak.source


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", "bf16"),  # a part of one
        ("Tesla V100-SXM2-32GB", "bf16"),  # has no such products
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "bf16"),
        ("Something else", "fp32"),
        ("", "fp32"),
    ],
)
def test_what_is_not_published_is_not_known(name: str, precision: str) -> None:
    assert published_peak(name, precision) is None


def test_a_die_of_two_has_half_of_the_peak() -> None:
    whole, die = (published_peak("AMD Instinct MI250X", "bf16", gib * 1024) for gib in (128, 64))
    assert whole is not None and die is not None
    assert (die.value, whole.value) == (191.5e12, 383e12)
    assert die.source.endswith("one of two dies")


def test_narrower_formats_are_never_slower() -> None:
    """A slip of a digit, or a number with sparsity among dense ones, would show here."""
    for peak in PEAKS:
        known = [peak.tera[name] for name in ("fp64", "fp32", "tf32", "bf16", "fp8") if name in peak.tera]
        assert known == sorted(known), peak.pattern
        if "bf16" in peak.tera and "fp8" in peak.tera and "Gaudi 3" not in peak.source:
            assert peak.tera["fp8"] == pytest.approx(2 * peak.tera["bf16"], rel=0.02), peak.pattern
