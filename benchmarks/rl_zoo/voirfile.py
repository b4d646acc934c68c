"""Environment steps between the updates of a Stable-Baselines3 algorithm, its loss, and the returns of its episodes."""

from __future__ import annotations

import benchmate
from benchmate import fail, metric, observe_loss, option, probes

# What the algorithms call the loss that their optimizer minimises, or the larger part of it.
LOSSES = ("train/loss", "train/critic_loss", "train/value_loss")


def instrument_rl_zoo(ov):
    probes.patch(ov, "rl_zoo3.exp_manager.ExperimentManager.learn", learning)


def learning(learn):
    def observed_learn(manager, model):
        observe_updates(model)
        try:
            return learn(manager, model)
        finally:
            judge([episode["r"] for episode in model.ep_info_buffer or ()])

    return observed_learn


def observe_updates(model):
    """An update ends a step: the environments were played before it. Its items are what they were played since the last."""
    end_step, train, played = benchmate.steps(units="env steps/s"), model.train, model.num_timesteps

    def observed_train(*args, **kwargs):
        nonlocal played
        train(*args, **kwargs)
        observe_loss(
            next(float(model.logger.name_to_value[name]) for name in LOSSES if name in model.logger.name_to_value)
        )
        played, before = model.num_timesteps, played
        end_step(played - before)

    model.train = observed_train


def judge(returns):
    if not returns:
        return
    mean_return = sum(returns) / len(returns)
    metric("episodic_return", mean_return, units="reward", direction="higher")
    least = option("least_return")
    if least is not None and mean_return < least:
        fail(
            "invalid", f"the mean return of the last episodes is {mean_return:.1f}, at least {least} was to be learned"
        )
