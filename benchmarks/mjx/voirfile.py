"""Steps of all parallel rollouts inside the one compiled program of MJX's speed test.

The program is a single call of a scan over --nstep steps: nothing of it returns to Python before its end. So the scan is cut
into scans of `steps_per_observation`, and XLA calls the host when the state after each of them is there.
"""

from __future__ import annotations

import logging

import benchmate
from benchmate import fail, option, probes


def instrument_mjx(ov):
    mark = benchmate.steps(units="env steps/s", task="inference", stop=True)
    probes.patch(ov, "jax.lax.scan", lambda scan: cutting(scan, mark))


def cutting(scan, mark):
    def cut_scan(step, state, xs=None, length=None, **more):
        # MJX's own functions may scan too: only the loop of the speed test is cut.
        if getattr(step, "__module__", "") != "mujoco.mjx._src.test_util":
            return scan(step, state, xs, length, **more)
        import jax

        steps = option("steps_per_observation")
        if length % steps:
            fail("invalid", f"--nstep {length} is not a multiple of steps_per_observation {steps}")
        rollouts = state.qpos.shape[0]

        def chunk(state, _):
            state, _ = scan(step, state, None, steps, **more)
            is_finite = jax.numpy.isfinite(state.qpos).all() & jax.numpy.isfinite(state.qvel).all()
            jax.debug.callback(lambda sound: end_step(mark, steps * rollouts, bool(sound)), is_finite)
            return state, None

        return scan(chunk, state, None, length // steps)

    return cut_scan


def end_step(mark, items, is_sound):
    if not is_sound:
        fail("invalid", "a position or velocity of the simulation is not finite")
    mark(items)
    if mark.is_over:
        # The runner ends the program at the next byte code of its main thread, which waits in XLA: end that too.
        logging.getLogger("jax._src.debugging").disabled = True
        raise RuntimeError("the window is complete")
