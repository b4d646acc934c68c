"""How each program is observed: as the README of benchmate would have it, and knowing nothing of the program's clock."""

from __future__ import annotations

import os

from benchmate import probes


def instrument_program(ov):
    name = os.environ["MILABENCH_NAME"]
    if name in (
        "torch_loop",
        "loader_workers",
        "iterable_dataset",
        "validation",
        "declared",
        "accelerated",
        "two_ranks",
        "four_ranks",
        "four_ranks_one_slow",
    ):
        probes.dataloader(ov, units="samples/s")
    if name == "declared":
        probes.pause(ov, "__main__.validate", name="validation")
    if name == "accumulation":
        probes.optimizer_step(ov, units="samples/s", items=4 * 32)
    if name == "trainer":
        probes.trainer(ov, units="tokens/s")
    if name == "lightning":
        probes.lightning(ov, units="samples/s")
    if name == "jax":
        probes.iterable(ov, "__main__.jax_batches", units="samples/s")
    if name == "sklearn":
        probes.iterable(
            ov,
            "sklearn.neural_network._multilayer_perceptron.gen_batches",
            units="samples/s",
            batch_size=lambda rows: rows.stop - rows.start,
        )
