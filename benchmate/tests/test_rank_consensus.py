"""Several ranks: every one reports, and none is left waiting for another."""

from __future__ import annotations

import importlib.util
import sys
import textwrap
import types

import pytest

from benchmate import rank_consensus
from benchmate.rank_consensus import RankConsensus
from benchmate.ring import take_entries

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")


class Store(dict):
    def set(self, key, value):
        self[key] = value

    def check(self, keys):
        return all(key in self for key in keys)


@pytest.mark.parametrize("complete_at", [(3, 3, 3), (3, 9, 5), (9, 3, 3), (1, 2, 20)])
def test_ranks_in_lock_step_end_at_the_same_step(monkeypatch, complete_at):
    store = Store()
    monkeypatch.setattr(rank_consensus, "_store", lambda: store)
    ranks = [RankConsensus("train", rank, 3) for rank in range(3)]
    ended: dict[int, int] = {}
    for count in range(1, 40):
        # A rank may reach the end of a step after the others, but not of the next.
        for rank in (2, 0, 1):
            if rank not in ended and count >= complete_at[rank] and ranks[rank].may_stop(count):
                ended[rank] = count
    assert set(ended) == {0, 1, 2}
    assert len(set(ended.values())) == 1
    assert max(ended.values()) <= max(complete_at) + 3


def test_a_single_process_needs_no_consensus(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    assert RankConsensus("train", 0, 1).may_stop(1)
    assert RankConsensus("train", 1, 4).may_stop(1)


TRAIN = """
    import os, torch, torch.distributed as dist
    from torch.utils.data import DataLoader

    def make_loader():
        return DataLoader(torch.randn(40, 4), batch_size=4)

    if __name__ == "__main__":
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
        loader = make_loader()
        try:
            for epoch in range(10000):
                for batch in loader:
                    model(batch).sum().backward()
        finally:
            # Leaving without it, gloo aborts the process now and then.
            dist.destroy_process_group()
"""


@needs_torch
def test_two_ranks_under_torchrun_both_report_and_end_together(agent, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(TRAIN))
    voirfile = tmp_path / "voirfile.py"
    voirfile.write_text(
        "from benchmate import probes\n"
        "def instrument_main(ov):\n"
        "    probes.loader(ov, '//make_loader() as loader', units='items/s')\n"
    )
    # The ranks' own windows differ, as the clocks of real ones do.
    config = {"measure": {"warmup_steps": 2, "warmup_s": 0, "window_steps": 5, "window_s": 0.05}}
    options = ["--standalone", "--nproc-per-node=2", "-m", "benchmate.run", "--voirfile", str(voirfile), str(script)]
    ran = agent.run(*options, config=config, module="torch.distributed.run", env={"OMP_NUM_THREADS": "1"})
    assert agent.controls("fail") == []
    assert {hello["rank"] for hello in agent.controls("hello")} == {0, 1}
    assert len(agent.windows()) == 2
    counts = {}
    for meta, memory in agent.rings:
        counts[meta["rank"]] = sum(entry.steps for entry in take_entries(memory))
    assert counts[0] == counts[1]
    assert ran.code == 0, ran.stderr
