"""That an environment of gymnasium can be made and played, shared by the benchmarks of this environment."""

from __future__ import annotations

import argparse

import gymnasium


def check(option: str) -> None:
    """Make the environment that an option of the command line names, and play one step; nothing is downloaded."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument(option, dest="name", required=True)
    args, _ = parser.parse_known_args()
    env = gymnasium.make(args.name)
    env.reset(seed=0)
    env.step(env.action_space.sample())
    env.close()
    print(f"{args.name}: observations {env.observation_space}, actions {env.action_space}")
