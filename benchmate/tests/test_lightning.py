"""Lightning's Trainer, the real one: its loop fetches a batch ahead of the training."""

from __future__ import annotations

import importlib.util
import json
import statistics

import pytest
from test_probes import run

PACKAGES = {"lightning": "lightning.pytorch", "pytorch_lightning": "pytorch_lightning"}
CONFIG = {"measure": {"warmup_steps": 2, "warmup_s": 0, "window_steps": 10**6, "window_s": 0}}
ENV = {"OMP_NUM_THREADS": "1", "PL_DISABLE_FORK": "1"}

SCRIPT = """
    import json, time, warnings
    import torch
    import PACKAGE as pl
    from torch.utils.data import DataLoader, TensorDataset

    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    stamps = []

    class Model(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(8, 1)

        def training_step(self, batch, index):
            time.sleep(0.002)
            return self.layer(batch[0]).pow(2).mean()

        def on_train_start(self):
            stamps.append(time.perf_counter_ns())

        def on_train_batch_end(self, outputs, batch, index):
            stamps.append(time.perf_counter_ns())

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    if __name__ == "__main__":
        loader = DataLoader(TensorDataset(torch.randn(4 * 68 - 2, 8)), batch_size=4)
        trainer = pl.Trainer(
            accelerator="cpu", max_epochs=4, logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, LIMITS
        )
        trainer.fit(Model(), loader)
        print("STAMPS", json.dumps(stamps))
"""


@pytest.fixture(params=PACKAGES)
def script(request):
    if importlib.util.find_spec(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    return SCRIPT.replace("PACKAGE", PACKAGES[request.param])


@pytest.mark.parametrize(("limits", "steps"), [("", 272), ("max_steps=100", 100)])
def test_every_step_is_counted_and_lasts_as_long_as_it_did(agent, tmp_path, script, limits, steps):
    ran = run(
        agent, tmp_path, script.replace("LIMITS", limits), 'probes.lightning(ov, units="samples/s")',
        config=CONFIG, env=ENV,
    )  # fmt: skip
    assert ran.code == 0, ran.stderr
    stamps = json.loads(ran.stdout.partition("STAMPS")[2])
    entries = agent.entries()
    assert len(entries) == steps == len(stamps) - 1
    assert sum(entry.n for entry in entries) == sum(2 if number % 68 == 67 else 4 for number in range(steps))
    # The ends against the program's own clock, and nothing between two steps.
    late_ns = [abs(entry.t0_ns + entry.host_ns - stamp) for entry, stamp in zip(entries, stamps[1:], strict=True)]
    assert statistics.median(late_ns) < 1_000_000
    assert sum(entry.host_ns for entry in entries) == pytest.approx(stamps[-1] - stamps[0], rel=0.02)
    assert len(agent.losses()) >= 64


def test_a_batch_has_the_size_that_its_loader_says_in_every_epoch(agent, tmp_path, script):
    # Graphs, of which the first tensor has a row for each node.
    script = script.replace("batch_size=4)", "batch_size=4, collate_fn=lambda rows: torch.stack([*rows[0] * 7]))")
    ran = run(
        agent, tmp_path, script.replace("LIMITS", ""), 'probes.lightning(ov, units="samples/s")', config=CONFIG, env=ENV
    )
    assert ran.code == 0, ran.stderr
    assert [entry.n for entry in agent.entries()] == [*[4] * 67, 2] * 4


def test_the_window_ends_the_training(agent, tmp_path, script):
    ran = run(agent, tmp_path, script.replace("LIMITS", ""), 'probes.lightning(ov, units="samples/s")', env=ENV)
    assert ran.code == 0, ran.stderr
    assert "STAMPS" not in ran.stdout
    assert [entry.n for entry in agent.entries()] == [4] * 7


def test_a_trainer_that_spawns_its_processes_runs_and_the_step_says_why_there_is_no_rate(agent, tmp_path, script):
    limits = "max_steps=2, devices=1, strategy='ddp_spawn'"
    ran = run(agent, tmp_path, script.replace("LIMITS", limits), 'probes.lightning(ov, units="samples/s")', env=ENV)
    assert (ran.code, ran.stdout.splitlines()[-1]) == (1, "STAMPS []"), ran.stderr
    assert "The processes that it spawned are not under the instruments" in agent.controls("fail")[0]["detail"]


def test_the_first_steps_are_made_again_with_the_same_losses(agent, tmp_path, script):
    config = {"measure": {**CONFIG["measure"], "window_steps": 20}, "answers": {"steps": 4, "gradients": True}}
    ran = run(
        agent, tmp_path, script.replace("LIMITS", ""), 'probes.lightning(ov, units="samples/s")', config=config, env=ENV
    )
    assert ran.code == 0, ran.stderr
    [found] = [record["answers"] for record in agent.records() if "answers" in record]
    assert len(set(found["first"])) == 4
    assert found["again"] == found["first"]
    assert found["gradients"]["again"] == found["gradients"]["first"]
