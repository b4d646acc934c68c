"""Expected values of a fleet, and what falls out of them."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest

from milabench.analysis.summary import summarise
from milabench.analysis.summary_model import Summary
from milabench.errors import RecordError
from milabench.fleet.baseline import Baseline, Expected, baseline, baseline_from_json, outliers, robust, samples
from tests.changed_values import replace
from tests.recorded_run import SYSTEM, Recorded, data, rates, record


def system(host: str, devices: int = 2) -> dict[str, Any]:
    told = [{"index": index, "uuid": f"GPU-{host}-{index}", "name": "H100"} for index in range(devices)]
    return {"system": {"arch": "cuda", "nodes": [{**SYSTEM["nodes"][0], "hostname": host, "devices": told}]}}


def node(
    base: Path, host: str, *levels: float, energy: float | None = None, outcome: str = "passed", why: str | None = None
) -> Summary:
    """A run on one machine, a rate for each of its devices."""
    more = () if energy is None else (data(metric="energy", value=energy, units="J", direction="lower"),)
    steps = [
        Recorded(
            tag=f"D{device}",
            devices=(device,),
            repeat=repeat,
            outcome=outcome if device == 1 else "passed",
            why=why if device == 1 else None,
            events=(*rates(level, level, level), *more),
        )
        for repeat in range(2)
        for device, level in enumerate(levels)
    ]
    return summarise(record(base / host, *steps, name=host, manifest=system(host, len(levels))))


@pytest.fixture
def fleet(tmp_path: Path) -> list[Summary]:
    rng = random.Random(3)
    return [node(tmp_path, f"n{i}", *(800 * math.exp(rng.gauss(0, 0.004)) for _ in range(2))) for i in range(4)]


def test_the_known_answer_of_median_and_deviation() -> None:
    middle, spread = robust([10, 12, 11, 13, 12, 11, 10, 50])
    assert (middle, spread / 1.4826) == (11.5, 1.0)


def test_a_place_is_a_device_of_a_machine_with_its_uuid(fleet: list[Summary]) -> None:
    found = samples(fleet[2])
    assert [(str(one.location), one.metric, one.units) for one in found] == [
        ("n2/D0 (GPU-n2-0)", "rate", "images/s"),
        ("n2/D1 (GPU-n2-1)", "rate", "images/s"),
    ]


def test_a_slow_device_falls_out_by_name(fleet: list[Summary], tmp_path: Path) -> None:
    found = outliers([node(tmp_path, "bad", 800, 720)], baseline(fleet))
    assert found.judged == 2
    [one] = found.outliers
    assert (one.location.node, one.location.device, one.location.uuid) == ("bad", "D1", "GPU-bad-1")
    assert (one.metric, one.side, one.value) == ("rate", "worse", pytest.approx(720))
    assert one.deviation == pytest.approx(-0.1, abs=0.01)
    assert "median of 8 places" in one.rule


def test_bad_nodes_in_the_baseline_do_not_hide_themselves(fleet: list[Summary], tmp_path: Path) -> None:
    bad = node(tmp_path, "bad", 640, 640)
    with_bad = baseline([*fleet, bad])
    assert {str(one.location.node) for one in outliers([*fleet, bad], with_bad).outliers} == {"bad"}


def test_energy_for_an_item_is_judged_and_more_is_worse(fleet: list[Summary], tmp_path: Path) -> None:
    nodes = [node(tmp_path, f"e{i}", 800, 800, energy=800 * 3 * 0.5) for i in range(3)]
    found = outliers([node(tmp_path, "hot", 800, 800, energy=800 * 3 * 0.6)], baseline(nodes))
    assert [(one.metric, one.units, one.side) for one in found.outliers] == [("energy", "J/image", "worse")] * 2
    assert found.outliers[0].value == pytest.approx(0.6)


def test_a_device_on_which_a_benchmark_failed_falls_out(fleet: list[Summary], tmp_path: Path) -> None:
    bad = node(tmp_path, "dead", 800, 800, outcome="failed", why="out-of-memory")
    found = outliers([bad], baseline(fleet))
    assert {(str(one.location), one.side) for one in found.outliers} == {("dead/D1 (GPU-dead-1)", "failed")}
    assert "out-of-memory" in found.outliers[0].rule


def test_a_device_with_a_wrong_result_is_named_also_where_the_baseline_lacks_the_benchmark(
    fleet: list[Summary], tmp_path: Path
) -> None:
    bad = node(tmp_path, "bad", 800, 800, outcome="failed", why="wrong")
    for known in (fleet, ()):
        found = outliers([bad], baseline(known))
        assert {(str(one.location), one.side) for one in found.outliers} == {("bad/D1 (GPU-bad-1)", "wrong")}


def test_a_machine_on_which_a_benchmark_failed_is_named_whatever_the_step_is_called(tmp_path: Path) -> None:
    names = [f"node{number}" for number in range(1, 7)]
    nodes = [{**SYSTEM["nodes"][0], "name": name, "hostname": f"host-{name}"} for name in names]
    manifest = {"system": {"arch": "cuda", "nodes": nodes}}

    def fleet_run(dead: str) -> Summary:
        steps = [
            Recorded(node=name, suffix=f"node{index}", events=rates(100.0 + index), outcome=outcome, why=why)
            for index, name in enumerate(names)
            for outcome, why in [("failed", "lost-node") if name == dead else ("passed", None)]
        ]
        return summarise(record(tmp_path / (dead or "all"), *steps, manifest=manifest))

    [one] = outliers([fleet_run("node2")], baseline([fleet_run("")])).outliers
    assert (one.location.node, one.side) == ("host-node2", "failed")
    assert one.rule == "digits.D0.node1 on node2 did not pass: lost-node"


def test_too_few_places_and_other_units_are_not_judged(fleet: list[Summary], tmp_path: Path) -> None:
    few = outliers([node(tmp_path, "a", 100, 100)], baseline(fleet[:2]))
    assert (few.outliers, few.judged) == ((), 0)
    assert few.unjudged == (("digits rate", "the baseline has 4 nodes or devices and needs 5"),)


def test_a_suspect_number_counts_and_is_told(fleet: list[Summary], tmp_path: Path) -> None:
    hot = replace(node(tmp_path, "hot", 800, 800), run="hot")
    doubtful = replace(hot, benchmarks=(replace(hot.benchmarks[0], validity="suspect", doubts=("throttled",)),))
    made = baseline([*fleet, doubtful])
    assert made.suspects == outliers([doubtful], made).suspects == ("digits of hot: throttled",)
    assert baseline_from_json(json.loads(json.dumps(made.to_json())), "b.json") == made
    assert len(made.expected[0].values) == 10
    assert baseline(fleet).suspects == ()


def test_other_arguments_than_those_of_the_baseline_are_not_judged(fleet: list[Summary]) -> None:
    def asking(run: Summary, size: str) -> Summary:
        return replace(run, manifest={"suite": {"digits": {"argv": {"--size": size}}}})

    made = baseline([asking(run, "1") for run in fleet])
    read = baseline_from_json(json.loads(json.dumps(made.to_json())), "b.json")
    assert outliers([asking(fleet[0], "1")], read).judged == 2
    assert outliers([asking(fleet[0], "2")], read).unjudged == (
        ("digits rate", "does other work than the baseline: --size 2, there --size 1"),
    )
    assert outliers([fleet[0]], read).unjudged == (
        ("digits rate", "may do other work than the baseline: its arguments are not recorded in the run"),
    )


def test_each_size_has_its_own_expectation(fleet: list[Summary], tmp_path: Path) -> None:
    def of_size(run: Summary, size: str) -> Summary:
        return replace(run, benchmarks=tuple(replace(bench, size=size) for bench in run.benchmarks))

    device = [of_size(run, "device") for run in fleet]
    tiny = [of_size(node(tmp_path / "tiny", f"n{i}", 51_000, 51_000 + i), "tiny") for i in range(4)]
    made = baseline([*device, *tiny])
    assert [(one.size, round(one.median, -3)) for one in made.expected] == [("device", 1000), ("tiny", 51_000)]
    assert baseline_from_json(json.loads(json.dumps(made.to_json())), "b.json") == made
    assert outliers([device[0], tiny[0]], made).outliers == ()
    other = outliers([tiny[0]], baseline(device))
    assert (other.judged, other.outliers) == (0, ())
    assert other.unjudged == (("digits rate", "is not in the baseline at the size tiny"),)


def test_a_benchmark_that_the_run_lacks_is_told(fleet: list[Summary], tmp_path: Path) -> None:
    other = summarise(record(tmp_path, Recorded(bench="other", events=rates(1, 1, 1)), name="x"))
    unjudged = outliers([other], baseline(fleet)).unjudged
    assert unjudged == (("other rate", "is not in the baseline"), ("digits", f"{other.run} did not run it"))


def test_a_good_place_stays_in_as_often_as_the_level_says() -> None:
    rng = random.Random(4)
    for n in (8, 16, 64):
        fallen = 0
        for _ in range(1500):
            middle, spread = robust([rng.gauss(0, 0.02) for _ in range(n)])
            values = {str(place): 1.0 for place in range(n)}
            one = Expected(
                bench="b", metric="rate", units="", direction="higher", median=1.0, spread=spread, values=values
            )
            fallen += abs(rng.gauss(0, 0.02) - middle) > one.limit(0.99, 0.0)
        assert fallen <= 1500 * 0.01 + 3 * math.sqrt(1500 * 0.01), n


def test_what_is_written_is_read_back(fleet: list[Summary]) -> None:
    made = baseline(fleet)
    assert baseline_from_json(json.loads(json.dumps(made.to_json())), "b.json") == made


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({}, "b.json: is not a baseline. Make it with `milabench baseline RUN"),
        ({"kind": "milabench-baseline", "schema": 9}, "has schema 9"),
        (
            {"kind": "milabench-baseline", "schema": 1, "expected": [{"median": -1}]},
            r"expected\.0\.median is -1, not a number",
        ),
    ],
)
def test_another_file_is_no_baseline(value: dict[str, Any], told: str) -> None:
    with pytest.raises(RecordError, match=told):
        baseline_from_json(value, "b.json")


def test_nothing_is_expected_of_nothing() -> None:
    assert baseline([]) == Baseline(runs=(), expected=())


def test_nodes_that_share_a_host_name_go_by_their_own_names(tmp_path: Path) -> None:
    [entry] = system("clone", 1)["system"]["nodes"]
    nodes = [{**entry, "name": name} for name in ("n1", "n2")]
    steps = [Recorded(tag="D0", node=entry["name"], events=rates(800, 800, 800)) for entry in nodes]
    run = summarise(record(tmp_path / "run", *steps, manifest={"system": {"arch": "cuda", "nodes": nodes}}))
    assert {one.location.node for one in samples(run)} == {"n1", "n2"}
