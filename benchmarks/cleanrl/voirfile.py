"""Environment steps of each pass of CleanRL's main loop, which stands at module level, its loss and its returns."""

from __future__ import annotations

import sys
from collections import deque

from benchmate import fail, metric, observe_loss, option, probes

RECENT_EPISODES = 50
# What the scripts call a loss that they write down as a whole.
LOSSES = ("losses/td_loss", "losses/loss", "losses/qf1_loss")


def instrument_cleanrl(ov):
    written = {}
    returns = deque(maxlen=RECENT_EPISODES)

    def listening(add_scalar):
        def also_heard(writer, tag, value, *rest, **more):
            written[tag] = value
            if tag == "charts/episodic_return":
                returns.append(float(value))
            elif tag == "losses/entropy":  # of ppo, written after the other two terms
                observe_loss(ppo_loss(written))
            elif tag in LOSSES:
                observe_loss(value)
            return add_scalar(writer, tag, value, *rest, **more)

        return also_heard

    probes.iterable(ov, "__main__.range", units="env steps/s", batch_size=env_steps, when=is_main_loop)
    probes.patch(ov, "torch.utils.tensorboard.SummaryWriter.add_scalar", listening)
    try:
        yield ov.phases.run_script
    finally:
        if returns:
            judge(sum(returns) / len(returns))


def is_main_loop(*bounds):
    """`range(1, num_updates + 1)` of the scripts that play rollouts, `range(args.total_timesteps)` of the others."""
    return (len(bounds) == 2 and bounds[0] == 1) or bounds == (arguments().total_timesteps,)


def env_steps(_index):
    """An update plays num_steps steps in each of num_envs environments and then learns from them; other scripts play one."""
    args = arguments()
    return getattr(args, "num_envs", 1) * getattr(args, "num_steps", 1)


def arguments():
    return sys.modules["__main__"].args


def ppo_loss(written):
    """The loss that the script minimised in its last minibatch, from the three terms that it writes down."""
    args = arguments()
    return (
        written["losses/policy_loss"]
        - args.ent_coef * written["losses/entropy"]
        + args.vf_coef * written["losses/value_loss"]
    )


def judge(mean_return):
    metric("episodic_return", mean_return, units="reward", direction="higher")
    least = option("least_return")
    if least is not None and mean_return < least:
        fail(
            "invalid", f"the mean return of the last episodes is {mean_return:.1f}, at least {least} was to be learned"
        )
