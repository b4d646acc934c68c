"""Two plans become one, in pairs whose order chance decides."""

from __future__ import annotations

from dataclasses import replace

from milabench.plan.ab import Interleaved, interleaved, of_side
from milabench.plan.model import Plan, SkippedBench, Step


def plan(*benches: str, repeats: int = 8, argv: tuple[str, ...] = ("run",), skipped: tuple[str, ...] = ()) -> Plan:
    """Replicate blocks of benchmarks with two instances each."""
    steps = [
        Step(
            id=f"{bench}.{tag}.R{repeat}",
            bench=bench,
            phase="run",
            argv=argv,
            tag=tag,
            repeat=repeat,
            group=f"{bench}.R{repeat}",
            config={"name": bench},
        )
        for repeat in range(repeats)
        for bench in benches
        for tag in ("D0", "D1")
    ]
    return Plan(phase="run", steps=tuple(steps), skipped=tuple(SkippedBench(bench=b, why="too big") for b in skipped))


def made(a: Plan, b: Plan, seed: int = 1) -> Interleaved:
    return interleaved(a, b, seed)


def test_the_sides_of_a_pair_follow_each_other_in_either_order() -> None:
    found = made(plan("x", "y"), plan("y", "x"))
    orders = []
    for bundle in found.bundles:
        assert len({step.repeat for step in bundle}) == 1
        assert len({step.config["name"] for step in bundle}) == 1
        orders.append("".join(dict.fromkeys(step.bench[-1] for step in bundle)))
    assert set(orders) == {"AB", "BA"}
    assert found.plan.steps == tuple(step for bundle in found.bundles for step in bundle)
    assert len(found.plan.groups()) == 2 * len(found.bundles) == 32


def test_the_seed_decides_the_order_and_more_replicates_begin_with_the_fewer() -> None:
    orders = [[step.id for step in made(plan("x"), plan("x"), seed).plan.steps] for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    fewer = [step.id for step in made(plan("x", repeats=5), plan("x", repeats=5)).plan.steps]
    assert orders[0][: len(fewer)] == fewer


def test_every_name_has_its_side_and_the_program_is_told_its_own() -> None:
    step = made(plan("x.y", repeats=1), plan("x.y", repeats=1)).bundles[0][0]
    side = step.bench[-1]
    assert (step.id, step.bench, step.group) == (f"x.y@{side}.D0.R0", f"x.y@{side}", f"x.y@{side}.R0")
    assert step.config["name"] == "x.y"


def test_a_client_waits_for_the_server_of_its_side() -> None:
    one = plan("x", repeats=1)
    paired = {"name": "x", "server": {"step": "x.D0.R0", "ready": "1"}}
    one = replace(one, steps=(one.steps[0], replace(one.steps[1], config=paired)))
    found = [step for step in made(one, one).plan.steps if "server" in step.config]
    assert {step.config["server"]["step"] for step in found} == {"x@A.D0.R0", "x@B.D0.R0"}


def test_what_only_one_side_has_or_can_run_is_skipped_with_the_reason() -> None:
    found = made(plan("x", "a", "big", skipped=("odd",)), plan("x", skipped=("big",)))
    assert {skip.bench: skip.why for skip in found.plan.skipped} == {
        "odd@A": "too big",
        "a@A": "B has no benchmark of this name",
        "big@A": "B skips it: too big",
        "big@B": "too big",
    }
    assert {step.bench for step in found.plan.steps} == {"x@A", "x@B"}


def test_a_pair_knows_whether_both_sides_do_the_same() -> None:
    assert made(plan("x"), plan("x")).pairs == {"x": True}
    assert made(plan("x"), plan("x", argv=("run", "faster"))).pairs == {"x": False}


def test_the_steps_of_a_side_have_the_names_of_its_suite() -> None:
    both = made(plan("x"), plan("x")).plan
    assert {step.bench for step in of_side(both, "A").steps} == {"x"}
    assert {step.id.split(".")[0] for step in of_side(both, "A").steps} == {"x@A"}
