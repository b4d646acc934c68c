"""Tokens of every step of torchtitan's trainer, and the loss that it logs."""

from __future__ import annotations

from benchmate import observe_loss, probes


def instrument_torchtitan(ov):
    probes.calls(ov, "torchtitan.trainer.Trainer.train_step", units="tokens/s", items=share_of_tokens)
    probes.patch(ov, "torchtitan.components.metrics.MetricsProcessor.log", hearing)


def share_of_tokens(trainer, *_):
    """A rank's part: those that share a model (tensor, context or pipeline parallel) see the same tokens."""
    training, dims = trainer.config.training, trainer.parallel_dims
    sequences = trainer.gradient_accumulation_steps * training.local_batch_size
    return sequences * training.seq_len / (dims.tp * dims.cp * dims.pp)


def hearing(log):
    def also_heard(processor, step, global_avg_loss, *args, **kwargs):
        if global_avg_loss >= 0:  # in a pipeline only the last stage has one
            observe_loss(float(global_avg_loss))
        return log(processor, step, global_avg_loss, *args, **kwargs)

    return also_heard
