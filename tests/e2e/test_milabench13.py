"""Benchmarks written for milabench 1.3, installed, prepared, run and reported: small folders in its style, and its own.

Its own definitions are those of the checkout that MILABENCH13 names, unmodified, with small arguments for a processor.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.milabench13_runs import SMALL, Suite, checkout_suite, needs_checkout, small_suite

pytestmark = [pytest.mark.e2e, pytest.mark.long]

# What a short look at a busy machine doubts of itself.
OF_A_LOOK = {"short", "overlap"}
UNITS = {name: "tok/s" if name == "served" else "items/s" for name in SMALL}
DOUBTS = {"served": {"program-clock"}}
LOSSES = ("loop", "probes", "ranks", "accelerated")

IMAGES = {"--model": "resnet18", "--batch-size": 4, "--num-workers": 0, "--epochs": 3}
# Of the checkout: what the suite says besides its own, and the unit of the rate.
THEIRS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "fp32": ("Tflops", {"argv": {"--number": 2, "--repeat": 40, "--m": 256, "--n": 256, "--dtype": "fp32"}}),
    "resnet50": ("items/s", {"argv": {**IMAGES, "--precision": "fp32"}}),
    "lightning": ("items/s", {"argv": IMAGES}),
    "template": (
        "items/s",
        {"inherits": "_defaults", "definition": "benchmarks/_templates/simple", "plan": {"method": "per_gpu"}},
    ),
    "bert-fp32": ("items/s", {"argv": {"--model": "Bert", "--batch-size": 1, "--num-workers": 0}}),
    "dqn": (
        "items/s",
        {
            "argv": {
                "--num_envs": 8,
                "--buffer_size": 1024,
                "--buffer_batch_size": 64,
                "--env_name": "CartPole-v1",
                "--total_timesteps": 40000,
            }
        },
    ),
    "brax": (
        "steps/s",
        {
            "argv": {
                "--batch-size": 8,
                "--num-minibatches": 4,
                "--num-envs": 32,
                "--num-timesteps": 20000,
                "--num-evals": 10,
                "--episode-length": 20,
            }
        },
    ),
}
SHORT = {"voir": {"options": {"stop": 6, "skip": 1}}}


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    """Our folders, installed and prepared once."""
    folder = tmp_path_factory.mktemp("small")
    yield small_suite(folder).ready()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def benches(suite: Suite) -> Mapping[str, Mapping[str, Any]]:
    """What the report says of each after one run of all."""
    return suite.run("all", "--repeat", "1")


def test_install_and_prepare_have_nothing_to_do_the_second_time(suite: Suite) -> None:
    for verb in ("install", "prepare"):
        assert "nothing to do" in suite(verb).err


@pytest.mark.parametrize("name", SMALL)
def test_every_folder_is_measured(benches: Mapping[str, Mapping[str, Any]], name: str) -> None:
    bench = benches[name]
    assert bench["outcome"] == "passed", bench["failures"]
    assert (bench["units"], bench["perf"] > 0) == (UNITS[name], True)
    assert set(bench["reasons"]) - OF_A_LOOK == DOUBTS.get(name, set())


@pytest.mark.parametrize("name", LOSSES)
def test_losses_are_recorded(benches: Mapping[str, Mapping[str, Any]], name: str) -> None:
    assert {"loss_first", "loss_last"} <= {metric["metric"] for metric in benches[name]["metrics"]}


@pytest.mark.parametrize("name", ["ranks", "accelerated"])
def test_ranks_work_together_and_each_counts_its_own(benches: Mapping[str, Mapping[str, Any]], name: str) -> None:
    (rate,) = [metric for metric in benches[name]["metrics"] if metric["metric"] == "rate"]
    first, second = sorted(rate["totals"], key=lambda total: total["rank"])  # in the order in which they ended
    assert (first["rank"], second["rank"]) == (0, 1)
    # Ranks that exchange gradients take their steps together; alone they would differ by far more.
    assert abs(first["items"] - second["items"]) <= 3 * 32


def test_images_are_made_once_for_all(suite: Suite, benches: Mapping[str, Mapping[str, Any]]) -> None:
    assert benches["probes"]["outcome"] == "passed"
    assert json.loads((suite.base / "data" / "FakeImageNet" / "done").read_text()) == {"train": 80, "val": 8, "test": 8}


def test_what_a_class_clones_lies_in_a_copy_of_its_folder(suite: Suite) -> None:
    (cloned,) = suite.base.glob("code/cloning-*/src/train.py")
    assert cloned.is_file()
    assert not (suite.folder / "cloning" / "src").exists()


@needs_checkout
@pytest.mark.parametrize("name", THEIRS)
def test_a_definition_of_the_checkout_runs_unmodified(name: str, tmp_path: Path) -> None:
    units, keys = THEIRS[name]
    theirs = checkout_suite(tmp_path, {name: {**SHORT, **keys}}, os.environ.get("MILABENCH_TRUTH_BASE")).ready()
    bench = theirs.run(f"theirs-{name}-{os.getpid()}", "--repeat", "1")[name]
    assert bench["outcome"] == "passed", bench["failures"]
    assert (bench["units"], bench["perf"] > 0) == (units, True)
    assert set(bench["reasons"]) - OF_A_LOOK <= {"program-clock"}
