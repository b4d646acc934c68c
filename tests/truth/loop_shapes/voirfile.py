"""How each shape is observed: as the README of benchmate would have it, and knowing nothing of the program's clock."""

from __future__ import annotations

import os

from benchmate import probes

BATCH = 16
BY_CALLS = {
    "gan": lambda ov: probes.optimizer_step(ov, units="samples/s", items=BATCH),
    "accumulation": lambda ov: probes.optimizer_step(ov, units="samples/s", items=4 * BATCH),
    "optimizer_made_again": lambda ov: probes.optimizer_step(ov, units="samples/s", items=BATCH),
    "halves": lambda ov: probes.calls(ov, "__main__.halved", units="samples/s", items=len),
    "images_without_a_loader": lambda ov: probes.iterable(ov, "__main__.listed", units="samples/s"),
    "generator": lambda ov: probes.iterable(
        ov, "__main__.batches_of_lists", units="samples/s", batch_size=lambda batch: len(batch[0])
    ),
    "lightning": lambda ov: probes.lightning(ov, units="samples/s"),
    "lightning_limited": lambda ov: probes.lightning(ov, units="samples/s"),
    "trainer": lambda ov: probes.trainer(ov, units="samples/s", items=BATCH),
    "keras": lambda ov: probes.calls(
        ov,
        "keras.src.backend.torch.trainer.TorchTrainer.train_step",
        units="samples/s",
        items=lambda _model, data: len(data[0]),
    ),
    "jax": lambda ov: probes.iterable(ov, "__main__.jax_batches", units="samples/s"),
}


def instrument_program(ov):
    name = os.environ["MILABENCH_NAME"]
    observe = BY_CALLS.get(name, lambda ov: probes.dataloader(ov, units="samples/s"))
    observe(ov)
    if name == "pause_with_a_loop":
        probes.pause(ov, "__main__.validate", name="validation")
    if name == "loader_and_optimizer":
        probes.optimizer_step(ov, units="samples/s", items=BATCH)
