"""Loops of every shape, in real torch: what a step is, what it consists of, and who reports it."""

from __future__ import annotations

from test_probes import needs_torch, run

from benchmate.ring import take_entries

pytestmark = needs_torch

QUIET = {"measure": {"warmup_steps": 2, "warmup_s": 0, "window_steps": 8, "window_s": 0}}
LONG = {"measure": {**QUIET["measure"], "window_steps": 1000}}

HEAD = """
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(0)
data = TensorDataset(torch.randn(24, 64), torch.randint(0, 4, (24,)))
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
criterion = torch.nn.CrossEntropyLoss()
loader = DataLoader(data, batch_size=4)
"""
DATALOADER = 'probes.dataloader(ov, units="samples/s")'


def observed_with(agent, tmp_path, body, probe, config=QUIET, code=0):
    ran = run(agent, tmp_path, HEAD + body, probe, config=config)
    assert (ran.code, ran.stderr, agent.malformed) == (code, "", [])
    return agent.entries()


def test_a_step_consists_of_forward_backward_and_optimizer(agent, tmp_path):
    body = """
for epoch in range(100):
    for x, y in loader:
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""
    entries = observed_with(agent, tmp_path, body, DATALOADER + "\nprobes.parts(ov)")
    assert len(entries) == 10
    for entry in entries:
        assert entry.parts_ns is not None
        assert all(part > 0 for part in entry.parts_ns)
        assert sum(entry.parts_ns) + entry.wait_ns <= entry.host_ns


def test_with_gradient_accumulation_only_some_steps_have_an_optimizer(agent, tmp_path):
    body = """
while True:
    for step, (x, y) in enumerate(loader):
        (criterion(model(x), y) / 2).backward()
        if step % 2:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
"""
    entries = observed_with(agent, tmp_path, body, DATALOADER + "\nprobes.parts(ov)")
    assert [entry.parts_ns[2] > 0 for entry in entries] == [False, True] * 5
    assert all(entry.parts_ns[1] > 0 for entry in entries)


def test_accumulated_steps_may_be_counted_by_the_optimizer(agent, tmp_path):
    body = """
while True:
    for step, (x, y) in enumerate(loader):
        (criterion(model(x), y) / 2).backward()
        if step % 2:
            optimizer.step()
            optimizer.zero_grad()
"""
    entries = observed_with(agent, tmp_path, body, 'probes.optimizer_step(ov, units="samples/s", items=8)')
    assert [entry.n for entry in entries] == [8] * 10


def test_several_losses_and_several_optimizers_add_up(agent, tmp_path):
    body = """
other = torch.nn.Linear(64, 1)
second = torch.optim.Adam(other.parameters())
while True:
    for x, y in loader:
        criterion(model(x), y).backward()
        optimizer.step()
        other(x).mean().backward()
        second.step()
"""
    probe = DATALOADER + '\nprobes.parts(ov)\nprobes.result(ov, "torch.nn.functional.cross_entropy", observe_loss)'
    entries = observed_with(agent, tmp_path, body, probe)
    assert all(all(part > 0 for part in entry.parts_ns) for entry in entries)
    assert len(agent.losses()) == len(entries) == 10


def test_an_evaluation_between_epochs_is_a_task_of_its_own_and_has_no_backward(agent, tmp_path):
    body = """
while True:
    for x, y in loader:
        criterion(model(x), y).backward()
    with torch.no_grad():
        for x, y in DataLoader(data, batch_size=12):
            model(x)
"""
    probe = DATALOADER + '\nprobes.parts(ov)\nprobes.parts(ov, "validation")'
    entries = observed_with(agent, tmp_path, body, probe)
    assert [entry.flags for entry in entries] == [1, 1, 0, 0, 0, 2, 0, 0, 0, 0]
    validation = agent.entries("validation")
    assert [entry.n for entry in validation] == [12, 12]
    assert all(entry.parts_ns[0] > 0 and entry.parts_ns[1] == -1 for entry in validation)


def test_two_loaders_in_step_are_one_loop_when_one_is_left_alone(agent, tmp_path):
    body = """
unlabelled = DataLoader(TensorDataset(torch.randn(48, 64)), batch_size=8)
while True:
    for (x, y), (u,) in zip(loader, unlabelled):
        (criterion(model(x), y) + model(u).mean()).backward()
"""
    probe = 'probes.dataloader(ov, units="samples/s", when=lambda loader: loader.batch_size == 4)'
    entries = observed_with(agent, tmp_path, body, probe)
    assert [entry.n for entry in entries] == [4] * 10


def test_two_loaders_in_step_that_are_both_observed_are_refused(agent, tmp_path):
    body = """
for epoch in range(2):
    for (x, y), (u, v) in zip(loader, DataLoader(data, batch_size=8)):
        pass
"""
    assert len(observed_with(agent, tmp_path, body, DATALOADER, config=LONG, code=1)) < 20
    (failure,) = agent.controls("fail")
    assert failure["why"] == "probe"
    assert "both count the same time" in failure["detail"]


def test_steps_inside_a_generator_of_the_script_are_steps(agent, tmp_path):
    body = """
def stepping(loader):
    for x, y in loader:
        loss = criterion(model(x), y)
        loss.backward()
        yield loss

def main():
    while True:
        for loss in stepping(loader):
            loss.item()

if __name__ == "__main__":
    main()
"""
    entries = observed_with(agent, tmp_path, body, DATALOADER)
    assert [entry.n for entry in entries] == [4] * 10


def test_epochs_shorter_than_the_window_leave_their_gaps_outside_the_steps(agent, tmp_path):
    body = """
import time
while True:
    for x, y in DataLoader(data, batch_size=12):
        model(x)
    time.sleep(0.05)
"""
    entries = observed_with(agent, tmp_path, body, DATALOADER)
    assert [bool(entry.flags & 2) for entry in entries] == [False, True] * 4 + [False, False]
    assert all(entry.host_ns < 50_000_000 for entry in entries)


def test_compiling_is_a_metric_of_its_own_and_probes_break_no_graph(agent, tmp_path):
    body = """
from torch._dynamo.utils import counters
compiled = torch.compile(model, backend="eager", fullgraph=True)
for x, y in loader:
    criterion(compiled(x), y).backward()
    optimizer.step()
print(sum(counters["graph_break"].values()), counters["stats"]["unique_graphs"])
"""
    probe = DATALOADER + '\nprobes.parts(ov)\nprobes.result(ov, "torch.nn.functional.cross_entropy", observe_loss)'
    ran = run(agent, tmp_path, HEAD + body, probe, config=LONG)
    assert (ran.code, ran.stdout) == (0, "0 1\n"), ran.stderr
    (metric,) = [data for data in agent.records() if data.get("metric") == "compile"]
    assert metric["part"] == "torch"
    assert 0 < metric["value"] < agent.metrics()["first_step"]


def test_a_loss_in_a_compiled_step_is_observed_without_compiling_anything_of_ours(agent, tmp_path):
    body = """
@torch.compile(backend="eager")
def step(x):
    loss = model(x).sum()
    loss.backward()
while True:
    for x, y in loader:
        step(x)
"""
    ran = run(
        agent,
        tmp_path,
        HEAD + body,
        DATALOADER + "\nprobes.backward(ov)",
        {"measure": {**QUIET["measure"], "window_steps": 20}},
        env={"TORCH_LOGS": "recompiles"},
    )
    assert (ran.code, len(agent.losses())) == (0, 22), ran.stderr
    assert "observe_loss" not in ran.stderr


def test_a_probe_inside_what_is_compiled_fails_the_step(agent, tmp_path):
    body = """
def scaled(x):
    y = x * 2
    return y
@torch.compile(backend="eager")
def compiled(x):
    return scaled(model(x)).sum()
if __name__ == "__main__":
    compiled(torch.randn(4, 64)).backward()
"""
    ran = run(agent, tmp_path, HEAD + body, 'probes.value(ov, "//scaled > y", id)', config=LONG)
    assert ran.code == 1
    assert "that torch.compile compiles" in agent.controls("fail")[0]["detail"], ran.stderr


SPAWN = """
import torch, torch.distributed as dist, torch.multiprocessing as mp, benchmate

def work(rank, port):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    try:
        for batch in LOADER:
            total = torch.ones(1)
            dist.all_reduce(total)
    finally:
        dist.destroy_process_group()

if __name__ == "__main__":
    import socket
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(work, args=(port,), nprocs=2)
"""


def test_spawned_ranks_that_observe_themselves_report_each(agent, tmp_path):
    script = SPAWN.replace("LOADER", "benchmate.observed([torch.ones(3)] * 12)")
    ran = run(agent, tmp_path, script, "pass", config=QUIET)
    assert ran.code == 0, ran.stderr
    ranks = {meta["rank"]: len(list(take_entries(memory))) for meta, memory in agent.rings}
    assert ranks == {0: 12, 1: 12}
    assert {hello["world_size"] for hello in agent.controls("hello")} == {1, 2}


def test_a_probe_that_is_silent_in_spawned_ranks_hints_at_them(agent, tmp_path):
    script = SPAWN.replace("LOADER", "make_loader()").replace(
        "def work", "def make_loader():\n    return [torch.ones(3)] * 3\n\ndef work"
    )
    ran = run(agent, tmp_path, script, 'probes.iterable(ov, "__main__.make_loader", units="x/s")', config=QUIET)
    assert ran.code == 1
    assert "The processes that it spawned are not under the instruments" in agent.controls("fail")[0]["detail"]
    assert "Traceback" not in ran.stderr


def test_an_audit_counts_the_batches_and_steps_of_the_program_itself(agent, tmp_path):
    body = """
for epoch in range(100):
    for x, y in loader:
        optimizer.step()
"""
    ran = run(agent, tmp_path, HEAD + body, DATALOADER, env={"MILABENCH_AUDIT": "1"})
    assert ran.code == 0
    assert "they agree" in ran.stderr
    (audit,) = [data for data in agent.records("data") if data.get("metric") == "audit"]
    assert audit["value"] == 1
