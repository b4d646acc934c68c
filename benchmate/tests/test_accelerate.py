"""Two ranks started by accelerate: each one reports, whatever it was given to do."""

from __future__ import annotations

import importlib.util
import textwrap

import pytest

from benchmate.ring import take_entries

ACCELERATED = """
    import os, torch
    from accelerate import Accelerator

    def make_loader(rank):
        return [torch.randn(2 + rank, 8) for _ in range(10 + 5 * rank)]

    if __name__ == "__main__":
        torch.set_num_threads(1)
        accelerator = Accelerator(cpu=True)
        model = torch.nn.Linear(8, 1)
        model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
        try:
            with model.join():
                for epoch in range(1 if {ends} else 10000):
                    for batch in make_loader(accelerator.process_index):
                        accelerator.backward(model(batch).sum())
                        optimizer.step()
        finally:
            accelerator.end_training()
"""


@pytest.mark.skipif(importlib.util.find_spec("accelerate") is None, reason="accelerate is not installed")
@pytest.mark.parametrize("window_steps", [5, 100])
def test_two_ranks_under_accelerate_launch_report_also_when_their_counts_differ(agent, tmp_path, window_steps):
    # 100: the loaders of the ranks end before the window, one of them earlier than the other.
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(ACCELERATED.replace("{ends}", str(window_steps == 100))))
    voirfile = tmp_path / "voirfile.py"
    voirfile.write_text(
        "from benchmate import probes\n"
        "def instrument_main(ov):\n"
        "    probes.loader(ov, '//make_loader() as loader', units='items/s')\n"
    )
    config = {"measure": {"warmup_steps": 2, "warmup_s": 0, "window_steps": window_steps, "window_s": 0}}
    # Without --multi_gpu, which only chooses the launcher, accelerate asks for mpirun to start two processes on a CPU.
    flags = (
        "--multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no --dynamo_backend no --main_process_port 0"
    )
    ran = agent.run(
        "launch", *flags.split(), "--module", "benchmate.run", "--voirfile", str(voirfile), str(script),
        config=config, module="accelerate.commands.accelerate_cli", env={"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert ran.code == 0, ran.stderr
    assert agent.controls("fail") == []
    assert {hello["rank"] for hello in agent.controls("hello")} == {0, 1}
    items = {meta["rank"]: {entry.n for entry in take_entries(memory)} for meta, memory in agent.rings}
    assert items == {0: {2}, 1: {3}}
