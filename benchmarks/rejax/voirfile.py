"""Environment steps of each update inside rejax's one compiled program, and the returns of the episodes that it played.

The program is a single call: nothing of it returns to Python before its end. So each update gets a callback, which XLA
calls on the host when the parameters that the update computed are there.
"""

from __future__ import annotations

import logging
from collections import deque

import benchmate
from benchmate import fail, metric, option, probes

RECENT_UPDATES = 20


def instrument_rejax(ov):
    recent = deque(maxlen=RECENT_UPDATES)
    probes.patch(ov, "rejax.algos.ppo.PPO.collect_trajectories", lambda collect: reporting_returns(collect, recent))
    probes.patch(ov, "rejax.algos.ppo.PPO.train_iteration", ending_steps)
    try:
        yield ov.phases.run_script
    finally:
        judge(recent)


def ending_steps(train_iteration):
    mark = benchmate.steps(units="env steps/s")

    def observed_iteration(algorithm, state):
        import jax

        state = train_iteration(algorithm, state)
        items = algorithm.num_envs * algorithm.num_steps
        jax.debug.callback(lambda _: end_step(mark, items), jax.tree.leaves(state.critic_ts.params)[0].ravel()[0])
        return state

    return observed_iteration


def end_step(mark, items):
    mark(items)
    if mark.is_over:
        # The runner ends the program at the next byte code of its main thread, which waits in XLA: end that too.
        logging.getLogger("jax._src.debugging").disabled = True
        raise RuntimeError("the window is complete")


def reporting_returns(collect, recent):
    def observed_collect(algorithm, state):
        import jax

        state, played = collect(algorithm, state)
        jax.debug.callback(
            lambda *sums: recent.append([float(each) for each in sums]), played.reward.sum(), played.done.sum()
        )
        return state, played

    return observed_collect


def judge(recent):
    episodes = sum(done for _, done in recent)
    if not episodes:
        return
    mean_return = sum(reward for reward, _ in recent) / episodes
    metric("episodic_return", mean_return, units="reward", direction="higher")
    least = option("least_return")
    if least is not None and mean_return < least:
        fail(
            "invalid", f"the mean return of the last episodes is {mean_return:.1f}, at least {least} was to be learned"
        )
