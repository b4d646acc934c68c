"""A plan is divided into the shares of jobs: nothing twice, nothing lost, and what is compared is not parted."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from milabench.events.shares import Share
from milabench.jobs.planned_shares import shares_of
from milabench.plan.ab import interleaved
from milabench.plan.model import Plan, Step
from tests.examples import examples


def plan(benches: list[str], nodes: list[str], repeats: int, spanning: Set[str] = frozenset()) -> Plan:
    """Replicate blocks of benchmarks with a process on each node; those of `spanning` are one job."""
    steps = [
        Step(
            id=f"{bench}.R{repeat}.{node}",
            bench=bench,
            phase="run",
            argv=("run",),
            repeat=repeat,
            group=f"{bench}.R{repeat}",
            job=f"{bench}.R{repeat}" if bench in spanning else "",
            node=node,
        )
        for repeat in range(repeats)
        for bench in benches
        for node in nodes
    ]
    return Plan(phase="run", steps=tuple(steps), system={"nodes": [{"name": node} for node in nodes]})


def names(count: int, letter: str) -> st.SearchStrategy[list[str]]:
    return st.integers(1, count).map(lambda some: [f"{letter}{number}" for number in range(some)])


@examples(100)
@given(
    names(4, "b"),
    names(4, "n"),
    st.integers(1, 4),
    st.sets(st.sampled_from(["b0", "b2"])),
    st.booleans(),
    st.booleans(),
)
def test_every_step_is_in_one_share_and_a_group_is_parted_by_node_alone(
    benches: list[str], nodes: list[str], repeats: int, spanning: set[str], array: bool, distribute: bool
) -> None:
    made = plan(benches, nodes, repeats, spanning)
    shares = shares_of(made, made.groups(), array=array, distribute=distribute)
    by_id = {step.id: step for step in made.steps}
    assert sorted(step for share in shares for step in share.steps) == sorted(by_id)
    assert [share.name for share in shares] == [f"s{number}" for number in range(1, len(shares) + 1)]
    order = [step.id for step in made.steps]
    share_of = {step: share for share in shares for step in share.steps}
    for share in shares:
        steps = [by_id[step] for step in share.steps]
        assert sorted(share.steps, key=order.index) == list(share.steps)
        assert {step.node for step in steps} == set(share.nodes)
        assert len({step.bench for step in steps}) == 1
        assert not array or len({step.repeat for step in steps}) == 1
        assert not distribute or len(share.nodes) == 1 or steps[0].bench in spanning
        # A limit of tasks can be set for those that were submitted together only.
        assert not share.array or {
            by_id[step].bench for other in shares if other.array == share.array for step in other.steps
        } == {steps[0].bench}
    for group in made.groups():
        parts: dict[str, set[str]] = {}
        for step in group:
            parts.setdefault(share_of[step.id].name, set()).add(step.node)
        is_split = distribute and group[0].bench not in spanning
        assert len(parts) == (len(nodes) if is_split else 1)


def test_all_replicates_of_a_benchmark_are_one_share_and_tasks_of_one_array_when_asked_for() -> None:
    made = plan(["a", "b"], ["n1"], 2)
    assert shares_of(made, made.groups()) == (
        Share(name="s1", steps=("a.R0.n1", "a.R1.n1"), nodes=("n1",)),
        Share(name="s2", steps=("b.R0.n1", "b.R1.n1"), nodes=("n1",)),
    )
    tasks = shares_of(made, made.groups(), array=True)
    assert [(share.steps, share.array) for share in tasks] == [
        (("a.R0.n1",), "s1"),
        (("b.R0.n1",), "s2"),
        (("a.R1.n1",), "s1"),
        (("b.R1.n1",), "s2"),
    ]


def test_both_sides_of_a_pair_are_measured_in_one_job() -> None:
    one = plan(["a", "b"], ["n1"], 3)
    pairs = interleaved(one, replace(one, steps=one.steps), seed=1)
    shares = shares_of(pairs.plan, pairs.bundles)
    assert [{step.split(".")[0] for step in share.steps} for share in shares] in (
        [{"a@A", "a@B"}, {"b@A", "b@B"}],
        [{"b@A", "b@B"}, {"a@A", "a@B"}],
    )
    assert all(len(share.steps) == 6 for share in shares)


def test_a_baseline_is_measured_in_one_job_with_all_that_are_compared_with_it() -> None:
    made = plan(["a", "b", "c", "d"], ["n1"], 2)
    shares = shares_of(made, made.groups(), compared=[("a", "b"), ("a", "d"), ("a", "left out")])
    assert [{step[0] for step in share.steps} for share in shares] == [{"a", "b", "d"}, {"c"}]


def test_distributed_a_benchmark_on_a_node_is_a_share_in_the_order_of_the_nodes() -> None:
    made = plan(["a", "b"], ["n2", "n1"], 2, {"b"})
    shares = shares_of(made, made.groups(), distribute=True)
    assert [(share.steps[0], share.nodes) for share in shares] == [
        ("a.R0.n2", ("n2",)),
        ("a.R0.n1", ("n1",)),
        ("b.R0.n2", ("n2", "n1")),
    ]


def test_a_launcher_that_reaches_other_nodes_gets_them_too() -> None:
    made = plan(["a", "b"], ["n0"], 1)
    made = replace(made, system={"nodes": [{"name": name} for name in ("n0", "n1", "n2")]})
    a, b = shares_of(made, made.groups(), reached={"a": ("n1", "n0")})
    assert (a.nodes, b.nodes) == (("n0", "n1"), ("n0",))
