"""Environment steps of every update of CleanRL's script, whose loop stands at module level, and its loss."""

from __future__ import annotations

import sys
from collections import deque

from benchmate import metric, observe_loss, probes

RECENT_EPISODES = 50


def instrument_ppo(ov):
    written = {}
    returns = deque(maxlen=RECENT_EPISODES)

    def listening(add_scalar):
        def also_heard(writer, tag, value, *rest, **more):
            written[tag] = value
            if tag == "charts/episodic_return":
                returns.append(float(value))
            elif tag == "losses/entropy":  # written after the other two terms
                observe_loss(total_loss(written))
            return add_scalar(writer, tag, value, *rest, **more)

        return also_heard

    # `for update in range(1, num_updates + 1)`: of the script's ranges the only one that starts at 1. An update plays
    # num_steps steps in each of num_envs environments and then learns from them.
    probes.iterable(
        ov,
        "__main__.range",
        units="env steps/s",
        batch_size=lambda update: arguments().batch_size,
        when=lambda *bounds: len(bounds) == 2 and bounds[0] == 1,
    )
    probes.patch(ov, "torch.utils.tensorboard.SummaryWriter.add_scalar", listening)
    try:
        yield ov.phases.run_script
    finally:
        if returns:
            metric("episodic_return", sum(returns) / len(returns), units="reward", direction="higher")


def arguments():
    """The script's `args`, with what it derives from them: batch_size is num_envs * num_steps."""
    return sys.modules["__main__"].args


def total_loss(written):
    """The loss that the script minimised in its last minibatch, from the three terms that it writes down."""
    args = arguments()
    return (
        written["losses/policy_loss"]
        - args.ent_coef * written["losses/entropy"]
        + args.vf_coef * written["losses/value_loss"]
    )
