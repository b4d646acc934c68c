"""Rigid-body simulation by MuJoCo XLA's own speed test, unmodified, from the wheel that the environment holds."""

from __future__ import annotations

from milabench import Benchmark

benchmark = Benchmark(
    # No source of its own: mujoco.mjx is a part of the package mujoco and can be imported only where both are installed.
    module="mujoco.mjx.testspeed",
    requirements="../_environments/jax",
    # Otherwise JAX takes three quarters of the device's memory at once, and no reading of it means anything.
    env={"XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
    # How many steps of the simulation an observation lasts; it divides --nstep.
    options={"steps_per_observation": 1},
)
