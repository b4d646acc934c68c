"""Images of every training step of an Ignite engine, and its loss; what evaluates and what saves is left out."""

from __future__ import annotations

import functools

from benchmate import observe_loss, pause, probes

ENGINE = "ignite.engine.engine.Engine"
TRAINING_FUNCTIONS = ("update", "step")  # of create_supervised_trainer, of dcgan.py


def instrument_ignite(ov):
    probes.argument(ov, f"{ENGINE}.run", "data", units="images/s", when=lambda engine, *_, **__: trains(engine))
    probes.patch(ov, f"{ENGINE}.run", pausing_evaluation)
    probes.patch(ov, f"{ENGINE}.__init__", observing_losses)
    probes.pause(ov, "ignite.handlers.checkpoint.Checkpoint.__call__", name="checkpoint")


def trains(engine):
    return engine._process_function.__name__ in TRAINING_FUNCTIONS


def pausing_evaluation(run):
    @functools.wraps(run)
    def paused(engine, *args, **kwargs):
        if trains(engine):
            return run(engine, *args, **kwargs)
        with pause("validation"):
            return run(engine, *args, **kwargs)

    return paused


def observing_losses(init):
    @functools.wraps(init)
    def initialise(engine, process_function):
        @functools.wraps(process_function)
        def observed(*args):
            output = process_function(*args)
            if process_function.__name__ in TRAINING_FUNCTIONS:
                observe_loss(output["errD"] if isinstance(output, dict) else output)
            return output

        init(engine, observed)

    return initialise
