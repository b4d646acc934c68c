"""Steps of transformers' Trainer, or the loop over batches of the inference programs; items by the option `counted`."""

from __future__ import annotations

from benchmate import option, probes

LOOPS = {
    # the loop, and the items of a batch
    "generate": (
        "batches",
        lambda batch: batch[0].numel() if "prompt" in option("counted") else len(batch[0]) * batch[1],
    ),
    "classify": ("batches", lambda batch: len(next(iter(batch.values())))),
    "encode": ("requests", len),
}


def instrument_program(ov):
    program, units = option("program"), option("units")
    if program not in LOOPS:
        probes.trainer(ov, units=units, items=items)
        return
    yield ov.phases.load_script
    loop, size = LOOPS[program]
    probes.iterable(ov, f"__main__.{loop}", units=units, batch_size=size, task="inference", stop=True)


def items(trainer, model, inputs, *_):
    """Elements of the inputs that are counted, padding included; of none the samples. Shapes, so that nothing waits."""
    counted = option("counted")
    return sum(inputs[name].numel() for name in counted) if counted else len(next(iter(inputs.values())))


def instrument_ranks(ov):
    probes.accelerated_ranks(ov)
