"""What is not the same on systems that are compared: named in one line, and left out where the work is another."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milabench.analysis.compare import compare_systems
from milabench.analysis.comparison_model import Comparison, System
from milabench.analysis.rescoring import relative_to
from milabench.report import text
from tests.unit.analysis.test_compare import bench, only, system

MIRRORED = {"FASTER": "SLOWER", "SLOWER": "FASTER"}


def manifest(
    argv: Mapping[str, Any] | list[str], resolved: Mapping[str, str] | None = None, **more: Any
) -> dict[str, Any]:
    """A manifest whose suite has one benchmark of these arguments, which came to `resolved` in its step."""
    words = [word for pair in (resolved or {}).items() for word in pair]
    base = more.pop("base", "/results")
    step = {"bench": "digits", "config": {"argv": words}, "env": {"MILABENCH_DIR_DATA": f"{base}/data"}}
    suite = {"digits": {"argv": argv, "install_group": "torch", "weight": 1.0}}
    return {"suite": suite, "plan": {"steps": [step]}, "locks": {"torch": "l1"}, "options": {"base": base}, **more}


def against(a: Mapping[str, Any], b: Mapping[str, Any], **options: Any) -> Comparison:
    return compare_systems([system("a", bench(), manifest=a), system("b", bench(level=120), manifest=b)], **options)


def test_another_batch_is_named_and_left_out_of_index_and_verdict_unless_across() -> None:
    a, b = manifest({"--batch-size": 64}), manifest({"--batch-size": 128})
    found = against(a, b)
    assert found.differs == "--batch-size 64 / 128"
    assert (found.rows[0].contrasts, found.indices[0].value) == ((None,), None)
    assert found.excluded == (
        ("digits", "b does other work than a: --batch-size 64 / 128 (--across compares it all the same)"),
    )
    across = against(a, b, across=True)
    assert (across.differs, only(across).verdict) == ("--batch-size 64 / 128", "FASTER")
    assert "\ndiffers: --batch-size 64 / 128\n" in text.render_comparison(across)


def test_a_batch_that_the_device_decided_on_is_other_work_and_the_number_of_workers_is_not() -> None:
    declared = {"--batch-size": "auto_batch(64)", "--workers": "{n_worker}"}
    a, b, c = (
        manifest(declared, {"--batch-size": batch, "--workers": workers})
        for batch, workers in (("64", "4"), ("128", "4"), ("64", "8"))
    )
    assert "--batch-size 64 / 128" in against(a, b).excluded[0][1]
    found = against(a, c)
    assert (found.excluded, found.differs) == ((), "--workers 4 / 8")


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (manifest({"--seed": 1, "--lr": 0.1}), manifest({"--lr": 0.1, "--seed": 2})),
        (manifest({"--master_port": 2000}), manifest({"--master_port": 3000})),
        (manifest({"--rdzv": "10.0.0.1:29500"}), manifest({"--rdzv": "10.0.7.9:1234"})),
        (manifest({"--data": "/results/data/x"}), manifest({"--data": "/elsewhere/data/x"}, base="/elsewhere")),
        (
            manifest({"--data": "{milabench_data}/x"}, {"--data": "/results/data/x"}),
            manifest({"--data": "{milabench_data}/x"}, {"--data": "/elsewhere/data/x"}, base="/elsewhere"),
        ),
        (manifest({}, seed=1), manifest({}, seed=2)),
        (manifest({}, suite_file="/home/me/suite.yaml"), manifest({}, suite_file="suite.yaml")),
        (manifest({}, validations=["loss", "rate"]), manifest({}, validations=["rate", "loss"])),
    ],
)
def test_seeds_addresses_ports_places_and_the_order_of_a_set_are_no_causes(ours: Any, theirs: Any) -> None:
    found = against(ours, theirs)
    assert (found.differs, found.excluded) == ("nothing that was recorded", ())


def test_the_values_of_several_nodes_and_environments_are_a_set() -> None:
    nodes = [{"name": "n1", "kernel": "6.1"}, {"name": "n2", "kernel": "6.2"}]
    numpy = ["2.4.6", "1.26.4"]
    a, b = (
        system(
            name,
            bench(),
            manifest=manifest({}),
            system={"arch": "cpu", "nodes": nodes[::order]},
            software={"numpy": ", ".join(numpy[::order])},
        )
        for name, order in (("a", 1), ("b", -1))
    )
    assert compare_systems([a, b]).differs == "nothing that was recorded"


def test_one_line_names_arguments_weights_versions_drivers_locks_nodes_and_profiles_in_this_order() -> None:
    ours = manifest({"--precision": "fp32", "--width": 1}, profile="quick")
    theirs = manifest({"--precision": "bf16", "--width": 2}, profile="default", locks={"torch": "l2"})
    theirs["suite"]["digits"]["weight"] = 2.0
    a, b = (
        system(
            name,
            bench(),
            manifest=told,
            software={"torch": torch},
            accelerators=({"driver": driver},),
            system={"arch": "cuda", "nodes": [{"name": f"n{place}", "kernel": "6.1"} for place in range(count)]},
        )
        for name, told, torch, driver, count in (("a", ours, "2.13.0", "550", 1), ("b", theirs, "2.4.0", "560", 2))
    )
    assert compare_systems([a, b]).differs == (
        "--precision fp32 / bf16; --width 1 / 2; weight 1.0 / 2.0; torch version 2.13.0 / 2.4.0; driver 550 / 560; lock file;"
        " number of nodes 1 / 2; profile quick / default"
    )


def test_what_cannot_be_checked_is_not_compared_and_the_sentence_says_why() -> None:
    systems = [system("a", bench(), manifest=manifest({"--x": 1})), system("b", bench(level=50.0))]
    found = compare_systems(systems)
    assert found.differs == "arguments and locks of b are not recorded"
    why = "b may do other work than a: its arguments are not recorded in b (--across compares it all the same)"
    assert found.excluded == (("digits", why),)
    assert only(compare_systems(systems, across=True)).ratio == pytest.approx(0.5)


def test_two_runs_that_could_record_no_arguments_are_compared_and_two_reports_that_lost_them_are_not() -> None:
    runs = [system("a", bench()), system("b", bench(level=50.0))]
    assert only(compare_systems(runs)).ratio == pytest.approx(0.5)
    found = compare_systems([replace(each, is_checkable=False) for each in runs])
    assert found.rows[0].contrasts == (None,)
    assert "not recorded in a and b" in found.excluded[0][1]


def weighted(name: str, x: float, y: float, weights: tuple[float | None, float | None]) -> System:
    return system(name, bench("x", x, weight=weights[0]), bench("y", y, weight=weights[1]))


def test_suites_of_unlike_weights_have_an_index_by_each() -> None:
    a, b = weighted("a", 100, 100, (1.0, 3.0)), weighted("b", 200, 100, (3.0, 1.0))
    found = compare_systems([a, b])
    assert [(index.weights_of, index.value) for index in found.indices] == [
        ("a", pytest.approx(2**0.25)),
        ("b", pytest.approx(2**0.75)),
    ]
    assert "by the weights of a" in found.sentence and "by the weights of b" in found.sentence
    assert "b (weights of a)" in text.render_comparison(found)
    (given_weights,) = compare_systems([a, b], weights={"x": 1.0, "y": 1.0}).indices
    assert (given_weights.value, given_weights.weights_of) == (pytest.approx(2**0.5), "")


def test_weights_in_proportion_are_the_same_weights() -> None:
    (index,) = compare_systems([weighted("a", 1, 1, (1.0, 3.0)), weighted("b", 2, 1, (2.0, 6.0))]).indices
    assert (index.value, index.weights_of) == (pytest.approx(2**0.25), "")


def test_a_score_relative_to_a_run_of_other_weights_has_the_runs_own() -> None:
    reference, run = weighted("a", 100, 100, (1.0, 3.0)), weighted("b", 200, 100, (3.0, 1.0))
    assert relative_to(run, reference).score.value == pytest.approx(2**0.75)


benchmarks = st.fixed_dictionaries(
    {
        "level": st.floats(0.5, 2.0),
        "noise": st.lists(st.floats(-0.05, 0.05), min_size=1, max_size=6),
        "weight": st.sampled_from([0.0, 1.0, 2.0, 5.0]),
    }
)
NAMES = ("x", "y", "z")
systems_of = st.lists(st.dictionaries(st.sampled_from(NAMES), benchmarks, min_size=1), min_size=1, max_size=3)


def made(name: str, runs: list[dict[str, Any]]) -> System:
    first, *later = (
        system(
            f"{name}{place}",
            *(
                bench(
                    each,
                    100 * told["level"],
                    [math.exp(noise) for noise in told["noise"]],
                    weight=told["weight"],
                    # One in three is lower-is-better, on both sides.
                    direction="lower" if each == "z" else "higher",
                )
                for each, told in sorted(run.items())
            ),
        )
        for place, run in enumerate(runs)
    )
    return replace(first, name=name, later=tuple(later))


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(systems_of, systems_of)
def test_a_comparison_turned_round_says_the_same(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> None:
    a, b = made("a", ours), made("b", theirs)
    forth, back = compare_systems([a, b]), compare_systems([b, a])
    for row, turned in zip(forth.rows, back.rows, strict=True):
        (contrast,), (mirror,) = row.contrasts, turned.contrasts
        assert (contrast is None) == (mirror is None) and row.margin == turned.margin
        if contrast is not None and mirror is not None:
            _is_mirrored(contrast, mirror)
            assert contrast.p_holm == (None if mirror.p_holm is None else pytest.approx(mirror.p_holm, abs=1e-9))
    by_weights = {index.weights_of: index for index in back.indices}
    assert len(by_weights) == len(forth.indices)
    for index in forth.indices:
        mirror_index = by_weights[index.weights_of]
        assert (index.value is None) == (mirror_index.value is None) and index.complete == mirror_index.complete
        if index.value is not None:
            _is_mirrored(index, mirror_index)
    assert len(forth.excluded) == len(back.excluded)


def _is_mirrored(one: Any, other: Any) -> None:
    ratio, mirror = (each.value if hasattr(each, "value") else each.ratio for each in (one, other))
    assert ratio * mirror == pytest.approx(1.0)
    assert MIRRORED.get(one.verdict, one.verdict) == other.verdict
    assert (one.ci95 is None) == (other.ci95 is None)
    if one.ci95 is not None:
        assert (1 / one.ci95[1], 1 / one.ci95[0]) == pytest.approx(other.ci95)
    assert one.detectable == (None if other.detectable is None else pytest.approx(other.detectable))


def test_the_case_of_the_issue_is_reciprocal() -> None:
    """`compare a b` said 1.341 and `compare b a` 1.027."""
    a, b = weighted("a", 100, 100, (1.0, 8.0)), weighted("b", 180, 95, (8.0, 1.0))
    forth, back = compare_systems([a, b]).indices, compare_systems([b, a]).indices
    assert {i.weights_of: i.value for i in forth} == pytest.approx({i.weights_of: 1 / (i.value or 0) for i in back})


def test_where_a_program_writes_is_no_other_work() -> None:
    before = manifest({"--out": "{milabench_extra}/o", "--lr": "1"}, {"--out": "/results/extra/digits/o"})
    after = manifest({"--out": "{step_dir}/o", "--lr": "1"}, {"--out": "@{step_dir}/o"})
    suite = {"digits": {**after["suite"]["digits"], "keep_step_dir": "failed", "prerun": ""}}
    found = against(before, {**after, "suite": suite})
    assert (found.excluded, found.differs) == ((), "nothing that was recorded")
    other = manifest({"--out": "{step_dir}/o", "--lr": "2"}, {"--out": "@{step_dir}/o"})
    assert "--lr 1 / 2" in against(before, other).excluded[0][1]


@pytest.mark.parametrize(
    ("few", "many"),
    [
        ({"options": {"documents": 10}}, {"options": {"documents": 1000}}),
        ({"env": {"LAYERS": "2"}}, {"env": {"LAYERS": "32"}}),
        ({"flops_per_item": 1.0}, {"flops_per_item": 9.0}),
        ({}, {}),
    ],
)
def test_two_sizes_are_other_work_whatever_differs_between_them(few: dict[str, Any], many: dict[str, Any]) -> None:
    def of_size(size: str, keys: dict[str, Any]) -> dict[str, Any]:
        made = manifest({"--lr": "1"})
        return {**made, "suite": {"digits": {**made["suite"]["digits"], "size": size, **keys}}}

    said = "b does other work than a: size tiny / device (--across compares it all the same)"
    assert said in against(of_size("tiny", few), of_size("device", many)).excluded[0][1]
    # Of one size, what is overridden beside the arguments is told, and compared.
    assert against(of_size("tiny", few), of_size("tiny", many)).excluded == ()


def test_a_size_is_the_same_work_as_before_there_were_sizes_unless_its_data_or_placement_differ() -> None:
    before = manifest({"--lr": "1"})
    digits = {**before["suite"]["digits"], "size": "device"}
    assert against(before, {**before, "suite": {"digits": digits}}).excluded == ()
    other = {**before, "suite": {"digits": {**digits, "options": {"documents": 1000}}}}
    assert "options.documents none / 1000" in against(before, other).excluded[0][1]
