"""The nodes of an allocation, from the variables that Slurm sets in it."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milabench.errors import ConfigError
from milabench.facts.allocated_nodes import AllocatedNode, expand_nodelist
from milabench.slurm.job_variables import allocation_of
from tests.slurm.cluster import why_no_slurm

JOB = {"SLURM_JOB_ID": "12", "SLURM_JOB_NODELIST": "n[1-2]"}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("n1", ["n1"]),
        ("n1,n2", ["n1", "n2"]),
        ("n[1-3,5]", ["n1", "n2", "n3", "n5"]),
        ("n[3,1]", ["n3", "n1"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("n[9-11]", ["n9", "n10", "n11"]),
        ("n[009-11]", ["n009", "n010", "n011"]),
        ("n[1-02]", ["n1", "n2"]),
        ("a[1-2]b[3-4]", ["a1b3", "a1b4", "a2b3", "a2b4"]),
        ("n[1-2][3-4]", ["n13", "n14", "n23", "n24"]),
        ("n[1-2],gpu[01-02]-ib", ["n1", "n2", "gpu01-ib", "gpu02-ib"]),
        ("rack[0-1]node[00-01,5]x", [f"rack{r}node{n}x" for r in "01" for n in ("00", "01", "5")]),
        ("n1,,n2,", ["n1", "n2"]),
    ],
)
def test_a_node_list_stands_for_names(text: str, names: list[str]) -> None:
    assert expand_nodelist(text) == tuple(names)


@pytest.mark.parametrize(
    "text",
    [
        "n[1",
        "n1]",
        "n[]",
        "n[3-1]",
        "n[1-a]",
        "n[1-]",
        "n[[1]]",
        "n[1-99999999]",
        "n[1-9999999999999999999999]",
        "n[1,,2]",
    ],
)
def test_what_is_no_node_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="'"):
        expand_nodelist(text)


@st.composite
def node_lists(draw: st.DrawFn) -> str:
    """Lists as Slurm 22.05 reads them: nothing behind the last bracket."""

    def numbers() -> str:
        first = draw(st.integers(0, 30))
        text = str(first).zfill(draw(st.integers(1, 4)))
        return text if draw(st.booleans()) else f"{text}-{first + draw(st.integers(0, 6))}"

    def entry() -> str:
        prefixes = draw(st.lists(st.sampled_from(["n", "gpu", "rack-a", "x.y"]), min_size=1, max_size=2))
        if draw(st.booleans()):
            return prefixes[0] + str(draw(st.integers(0, 300)))
        ranges = [",".join(numbers() for _ in range(draw(st.integers(1, 3)))) for _ in prefixes]
        return "".join(f"{prefix}[{each}]" for prefix, each in zip(prefixes, ranges, strict=True))

    return ",".join(entry() for _ in range(draw(st.integers(1, 3))))


@pytest.fixture(scope="module")
def conf(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    if (why := why_no_slurm()) is not None:
        pytest.skip(why)
    # scontrol asks nobody to expand a list; it only has to find a configuration.
    file = tmp_path_factory.mktemp("slurm") / "slurm.conf"
    file.write_text("ClusterName=t\nSlurmctldHost=localhost\nNodeName=n1\n")
    return {"SLURM_CONF": str(file), "PATH": "/usr/bin:/bin:/usr/sbin"}


@given(text=node_lists())
def test_names_and_their_order_are_those_of_slurm(conf: dict[str, str], text: str) -> None:
    done = subprocess.run(["scontrol", "show", "hostnames", text], env=conf, capture_output=True, text=True, check=True)
    assert expand_nodelist(text) == tuple(done.stdout.split())


def test_outside_of_an_allocation_there_is_none() -> None:
    assert allocation_of({"PATH": "/bin", "SLURM_CONF": "/etc/slurm/slurm.conf"}) is None


@pytest.mark.parametrize(("node", "here"), [("n2", "n2"), ("login", ""), ("", "")])
def test_an_allocation_has_the_nodes_of_its_job_and_one_of_them_may_be_ours(node: str, here: str) -> None:
    found = allocation_of({**JOB, "SLURM_JOB_CPUS_PER_NODE": "4(x2)", "SLURMD_NODENAME": node})
    assert found is not None
    assert found.nodes == (AllocatedNode(name="n1", job="12", cpus=4), AllocatedNode(name="n2", job="12", cpus=4))
    assert (found.job, found.here) == ("12", here)


def test_each_component_of_a_heterogeneous_job_has_a_number_of_its_own() -> None:
    groups = {"SLURM_HET_SIZE": "2", "SLURM_JOB_NODELIST_HET_GROUP_0": "n1", "SLURM_JOB_NODELIST_HET_GROUP_1": "n[2-3]"}
    cpus = {"SLURM_JOB_CPUS_PER_NODE_HET_GROUP_0": "1", "SLURM_JOB_CPUS_PER_NODE_HET_GROUP_1": "8(x2)"}
    found = allocation_of({"SLURM_JOB_ID": "12", "SLURM_JOB_NODELIST": "n1", **groups, **cpus})
    assert found is not None
    assert [(node.name, node.job, node.cpus) for node in found.nodes] == [
        ("n1", "12+0", 1),
        ("n2", "12+1", 8),
        ("n3", "12+1", 8),
    ]


def test_a_step_of_one_task_has_the_nodes_of_its_job_and_one_of_many_is_refused() -> None:
    step = {**JOB, "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "n1"}
    found = allocation_of({**step, "SLURM_STEP_NUM_TASKS": "1"})
    assert found is not None
    assert [node.name for node in found.nodes] == ["n1", "n2"]
    with pytest.raises(ConfigError, match="starts milabench 2 times"):
        allocation_of({**step, "SLURM_STEP_NUM_TASKS": "2"})


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"SLURM_JOB_NODELIST": "n[1"}, "SLURM_JOB_NODELIST=n"),
        ({"SLURM_JOB_NODELIST": ""}, "SLURM_JOB_NODELIST: is not set"),
        ({"SLURM_HET_SIZE": "two"}, "SLURM_HET_SIZE=two"),
        ({"SLURM_HET_SIZE": "1"}, "SLURM_JOB_NODELIST_HET_GROUP_0"),
    ],
)
def test_variables_that_cannot_be_read_are_one_line_that_names_them(variables: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named.replace("[", r"\[")):
        allocation_of({**JOB, **variables})


@pytest.mark.parametrize("text", ["4(x2", "many", "4(x999999999)"])
def test_processors_that_cannot_be_read_are_not_known(text: str) -> None:
    found = allocation_of({**JOB, "SLURM_JOB_CPUS_PER_NODE": text})
    assert found is not None
    assert {node.cpus for node in found.nodes} == {None}
