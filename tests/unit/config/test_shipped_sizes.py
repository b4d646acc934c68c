"""The suites that are shipped at several sizes: every benchmark has all of them, and the hour's acceptance fits its hour."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from milabench.config.read import read_suite
from milabench.config.schema import Suite
from milabench.config.sizes import SIZES
from milabench.plan.profile import PROFILES
from milabench.workflow.context import declared_options

CONFIG = Path(__file__).resolve().parents[3] / "config"
MINUTES = 60
UNSTATED = 3.0  # minutes of a launch that a suite does not state


def shipped(name: str, *overrides: str) -> Suite:
    return read_suite([CONFIG / f"{name}.yaml"], overrides=overrides, declared=declared_options)


@pytest.mark.parametrize("size", SIZES)
def test_every_benchmark_of_the_standard_suite_has_every_size(size: str) -> None:
    benchmarks = shipped("standard", f"size={size}").benchmarks
    assert {name for name, bench in benchmarks.items() if bench.size != size} == set()


def test_ci_runs_the_standard_suite_at_its_smallest_size() -> None:
    ci = shipped("ci")
    assert (ci.size, ci.profile, ci.benchmarks.keys()) == ("tiny", "quick", shipped("standard").benchmarks.keys())


def test_the_hour_holds_just_what_it_names() -> None:
    written = yaml.safe_load((CONFIG / "acceptance-1h.yaml").read_text())
    named = {name for name, keys in written.items() if isinstance(keys, dict) and keys.get("enabled")}
    hour = shipped("acceptance-1h")
    assert {name for name, bench in hour.benchmarks.items() if bench.enabled} == named
    assert named


def test_the_hour_fits_its_hour() -> None:
    hour = shipped("acceptance-1h")
    stated = [bench.resources.minutes for bench in hour.benchmarks.values() if bench.enabled]
    launches = PROFILES[hour.profile].processes
    assert launches * sum(UNSTATED if minutes is None else minutes for minutes in stated) <= MINUTES
    assert sum(minutes is None for minutes in stated) <= 1


def test_each_hyperparameter_is_a_word_of_its_own() -> None:
    """The zoo splits a word at its first colon, and takes all that follows for the value."""
    tail = dict(shipped("standard").benchmarks["sac"].argv)["--"]
    assert tail == ("--hyperparams", "batch_size:4096", "policy_kwargs:dict(net_arch=[1024,1024])")


@pytest.mark.parametrize("name", ["resnet50-input", "timm-train", "clip", "ddpm"])
def test_folders_of_images_hold_a_full_batch_for_each_of_64_ranks(name: str) -> None:
    """Loaders that drop the last batch have none at all for a rank with fewer images than one, and their loops never end."""
    arguments = dict(shipped("standard", "size=cluster").benchmarks[name].argv)
    folder = next(str(arguments[key]) for key in ("--data", "--data-dir", "--train-data") if key in arguments)
    classes, each = re.findall(r"/(\d+)x(\d+)-\d+", folder)[0]
    batch = re.findall(r"\d+", str(arguments["--batch-size"]))[0]
    assert int(classes) * int(each) >= 64 * int(batch)


def test_workers_of_a_loader_outlast_a_pass_over_its_samples() -> None:
    for name, bench in shipped("standard").benchmarks.items():
        if any(item[0] == "--dataloader_num_workers" and item[1] != 0 for item in bench.argv):
            assert ("--dataloader_persistent_workers", "true") in bench.argv, name


@pytest.mark.parametrize("name", ["video", "vit-mae"])
def test_a_pass_over_the_samples_is_several_steps_on_eight_devices(name: str) -> None:
    bench = shipped("standard", "size=node").benchmarks[name]
    batch = re.findall(r"\d+", str(dict(bench.argv)["--per_device_train_batch_size"]))[0]
    assert bench.options["samples"]["count"] >= 4 * 8 * int(batch)


@pytest.mark.parametrize("name", ["imagenet", "mnist", "dcgan"])
def test_programs_that_leave_convolutions_to_torch_compute_them_in_tf32(name: str) -> None:
    bench = shipped("standard").benchmarks[name]
    assert (bench.precision, "tf32" in bench.tags, "fp32" in bench.tags) == ("tf32", True, False)


def test_rloo_has_two_more_forward_passes_than_grpo() -> None:
    benchmarks = shipped("standard").benchmarks
    per_item = {name: benchmarks[name].flops_per_item for name in ("grpo", "rloo")}
    assert per_item["rloo"] == pytest.approx(per_item["grpo"] * 1.5)
    assert [benchmarks[name].resources.minutes for name in per_item] == [15, 15]
