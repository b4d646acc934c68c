"""Several ranks: every one reports, and none is left waiting for another."""

from __future__ import annotations

import importlib.util
import sys
import textwrap
import threading
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


def ends(monkeypatch, complete_at, may_queue, steps=400):
    """Where ranks end that each run in a thread, as far ahead of each other as `may_queue(counts, rank)` allows."""
    store = Store()
    monkeypatch.setattr(rank_consensus, "_store", lambda: store)
    counts, ended = [0] * len(complete_at), {}
    moved = threading.Condition()

    def train(rank):
        consensus = RankConsensus("train", rank, len(complete_at))
        while counts[rank] < steps:
            with moved:
                moved.wait_for(lambda: may_queue(counts, rank))
                counts[rank] += 1
                moved.notify_all()
            if counts[rank] >= complete_at[rank] and consensus.may_stop(counts[rank]):
                ended[rank] = counts[rank]
                break

    threads = [threading.Thread(target=train, args=(rank,), daemon=True) for rank in range(len(complete_at))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert not any(thread.is_alive() for thread in threads), f"a rank waits for ever: {counts}, ended: {ended}"
    return ended


@pytest.mark.parametrize("complete_at", [(3, 3, 3), (3, 9, 5), (9, 3, 3), (1, 2, 20)])
def test_ranks_in_lock_step_end_at_the_same_step(monkeypatch, complete_at):
    # A rank may reach the end of a step after the others, but not of the next.
    ended = ends(monkeypatch, complete_at, lambda counts, rank: counts[rank] <= min(counts))
    assert set(ended) == {0, 1, 2}
    assert len(set(ended.values())) == 1
    assert max(ended.values()) <= max(complete_at) + 3


@pytest.mark.parametrize("complete_at", [(20, 14), (14, 20), (20, 1)])
@pytest.mark.parametrize("lead", [5, 40])
def test_ranks_whose_hosts_run_ahead_of_their_devices_end_at_the_same_step(monkeypatch, complete_at, lead):
    # With NCCL the host only queues: another rank's host may be many steps behind.
    ended = ends(monkeypatch, complete_at, lambda counts, rank: counts[rank] <= min(counts) + (lead if rank else 0))
    assert len(set(ended.values())) == 1
    assert set(ended) == {0, 1}


def test_ranks_that_wait_for_each_other_at_every_eighth_step_end_at_the_same_step(monkeypatch):
    # Gradient accumulation: a collective operation every eighth step.
    ended = ends(monkeypatch, (11, 13, 12), lambda counts, rank: (counts[rank] + 1) // 8 <= (min(counts) + 1) // 8)
    assert len(set(ended.values())) == 1
    assert set(ended) == {0, 1, 2}


def test_a_rank_that_has_queued_more_steps_than_rank_0_proposes_does_not_stop_behind_them(monkeypatch):
    store = Store()
    monkeypatch.setattr(rank_consensus, "_store", lambda: store)
    first, second = (RankConsensus("train", rank, 2) for rank in range(2))
    assert not second.may_stop(100)
    assert not first.may_stop(101)  # proposes a step
    assert not second.may_stop(107)  # its host was on its way there: steps 102 to 107 need rank 0


def test_a_rank_without_collective_operations_does_not_keep_the_others_for_all_its_steps(monkeypatch):
    store, agreed = Store(), threading.Event()
    plain_set = store.set
    monkeypatch.setattr(store, "set", lambda key, value: (plain_set(key, value), "agreed" in key and agreed.set()))
    monkeypatch.setattr(rank_consensus, "_store", lambda: store)
    first, second = (RankConsensus("train", rank, 2) for rank in range(2))
    assert not second.may_stop(5000)
    assert not first.may_stop(5)
    last_look = threading.Thread(target=second.may_stop, args=(5001,), daemon=True)
    last_look.start()
    assert agreed.wait(30)
    assert [first.may_stop(count) for count in (6, 7)] == [False, True]
    last_look.join(30)
    assert not last_look.is_alive()


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
