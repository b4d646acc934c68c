"""Where benchmate and the orchestrator meet: a real program under the runner, a real agent, and what the analysis makes of it."""

from __future__ import annotations

import importlib.util
import json
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from milabench.analysis.measure import Measurement, measure
from milabench.events.batch_decoder import decode_lines

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed; the end-to-end tests bring it"
)
MEASURE = {"measure": {"warmup_steps": 3, "warmup_s": 0, "window_steps": 10, "window_s": 0}}

LOOP = """
    import benchmate

    def batches():
        for index in range(1000):
            sum(range(2000))
            yield [index] * 4

    def train():
        for step, batch in enumerate(batches()):
            benchmate.observe_loss(1 / (step + 1))

    if __name__ == "__main__":
        train()
"""
PROBE = """
    from benchmate import metric, probes

    def instrument_main(ov):
        metric("accuracy", 0.5, "fraction", "higher")
        probes.iterable(ov, "__main__.batches", units="items/s", batch_size=len)
"""


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(textwrap.dedent(text))
    return path


def run(agent: Any, folder: Path, script: str, probe: str, *launcher: str, config: Any = MEASURE, **more: Any) -> Any:
    """Runs a script under a voirfile; what the agent says of its end."""
    command = [
        *(launcher or (sys.executable,)),
        *("-m", "benchmate.run", "--config", write(folder, "config.json", json.dumps(config))),
        *("--voirfile", write(folder, "voirfile.py", probe), write(folder, "script.py", script)),
    ]
    return agent.run(*command, **more)


def measured(agent: Any) -> Measurement:
    """What the analysis makes of the records of the step."""
    return measure("s", decode_lines(bytes(agent.records["s"]), "s"))


def test_the_agent_reads_what_the_instruments_write(agent: Any, tmp_path: Path) -> None:
    said = run(agent, tmp_path, LOOP, PROBE, needs_data=True)
    assert (said["outcome"], said["return_code"], agent.text("stderr")) == ("passed", 0, "")
    rates = [data for data in agent.data("data") if "rate" in data]
    assert [data["batch_id"] for data in rates] == list(range(13))
    assert [data.get("warmup", False) for data in rates] == [True] * 3 + [False] * 10
    assert all(data["rate"] == pytest.approx(4 / data["elapsed"], rel=1e-6) for data in rates)
    assert all(data["host_ns"] == pytest.approx(data["elapsed"] * 1e9) for data in rates)
    assert all(0 < data["parts"]["wait"] <= data["elapsed"] for data in rates)
    assert [phase["name"] for phase in agent.data("phase")][-1] == "finalize"
    assert agent.data("stop") == [{"reason": "train: 10 observations"}]
    names = {data["metric"] for data in agent.data("data") if "metric" in data}
    assert {"accuracy", "first_step", "host_memory_peak"} <= names


def test_the_analysis_computes_what_the_loop_did(agent: Any, tmp_path: Path) -> None:
    run(agent, tmp_path, LOOP, PROBE)
    found = measured(agent)
    assert found.throughput is not None
    assert (found.task, found.throughput.units, found.throughput.observations) == ("train", "items/s", 10)
    (totals,) = found.throughput.totals
    assert found.throughput.value == pytest.approx(totals.items / totals.seconds)
    assert "clocks-disagree" not in found.throughput.doubts
    assert found.window is not None
    assert found.window.why == "complete"
    assert found.losses.first == 1.0


def test_an_instrument_that_fails_fails_the_step_although_the_script_ended_well(agent: Any, tmp_path: Path) -> None:
    said = run(agent, tmp_path, "def main(): pass", PROBE)
    assert (said["outcome"], said["why"]) == ("failed", "probe")
    assert "__main__.batches" in said["detail"]


@pytest.mark.parametrize("end", ["os._exit(0)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_observations_before_a_sudden_end_are_recorded(agent: Any, tmp_path: Path, end: str) -> None:
    script = LOOP.replace("benchmate.observe_loss", f"step == 7 and {end}; benchmate.observe_loss")
    run(agent, tmp_path, script.replace("import benchmate", "import benchmate, os, signal"), PROBE)
    assert [data["batch_id"] for data in agent.data("data") if "rate" in data] == list(range(7))


def test_a_loader_that_yields_nothing_is_no_data(agent: Any, tmp_path: Path) -> None:
    probe = PROBE.replace('metric("accuracy", 0.5, "fraction", "higher")', "pass")
    said = run(agent, tmp_path, LOOP.replace("range(1000)", "range(0)"), probe, needs_data=True)
    assert (said["outcome"], said["why"]) == ("failed", "no-data")
    assert {"message": "train: a loader yielded nothing"} in agent.data("message")


RANKS = """
    import torch, torch.distributed as dist

    def make_loader(rank):
        return [torch.randn(4 + 4 * rank, 8) for _ in range(10 + 5 * rank)]

    if __name__ == "__main__":
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        torch.manual_seed(0)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
        try:
            with model.join():
                for epoch in range(1 if {ends} else 10000):
                    for batch in make_loader(dist.get_rank()):
                        model(batch).sum().backward()
        finally:
            dist.destroy_process_group()
"""
RANKS_PROBE = """
    from benchmate import probes

    def instrument_main(ov):
        probes.loader(ov, "//make_loader() as loader", units="items/s")
"""


@needs_torch
@pytest.mark.parametrize("window_steps", [5, 100])
def test_two_ranks_under_torchrun_are_one_job_also_when_their_counts_differ(
    agent: Any, tmp_path: Path, window_steps: int
) -> None:
    # 100: the loaders of the ranks end before the window, one of them earlier than the other.
    config = {"measure": {**MEASURE["measure"], "window_steps": window_steps}}
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    script = RANKS.replace("{ends}", str(window_steps == 100))
    said = run(agent, tmp_path, script, RANKS_PROBE, *launcher, config=config, env={"OMP_NUM_THREADS": "1"})
    assert said["outcome"] == "passed", agent.text("stderr")
    found = measured(agent)
    assert {series.rank for series in found.series} == {0, 1}
    assert found.throughput is not None
    by_rank = {totals.rank: totals for totals in found.throughput.totals}
    assert (by_rank[0].items / by_rank[0].steps, by_rank[1].items / by_rank[1].steps) == (4, 8)
    slowest_s = max(totals.seconds for totals in by_rank.values())
    assert found.throughput.value == pytest.approx(sum(totals.items for totals in by_rank.values()) / slowest_s)
