"""Samples of every training step of Flax's script, and the loss of the test that it makes every thousand steps."""

from __future__ import annotations

import functools

from benchmate import observe_loss, probes


def instrument_flax(ov):
    # The loop is inside main(), over a generator of the script's own.
    probes.iterable(ov, "__main__.dataset", units="samples/s", batch_size=lambda batch: batch[0].shape[0])
    # The training step returns nothing; the test step, a function inside main(), returns {"loss": ...}.
    probes.patch(ov, "flax.nnx.jit", observing_tests)


def observing_tests(jit):
    def decorator(*args, **options):
        made = jit(*args, **options)
        return made if args else lambda function: observed(made(function), function.__name__)

    return decorator


def observed(step, name):
    if not name.startswith("test_step"):
        return step

    @functools.wraps(step)
    def test(*args):
        logs = step(*args)
        observe_loss(logs["loss"])
        return logs

    return test
