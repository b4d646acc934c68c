"""Check that the environment can be made and played; nothing is downloaded."""

from __future__ import annotations

import argparse

import gym


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--env-id", default="CartPole-v1")
    args, _ = parser.parse_known_args()
    env = gym.make(args.env_id)
    env.reset()
    env.step(env.action_space.sample())
    env.close()
    print(f"{args.env_id}: observations {env.observation_space}, actions {env.action_space}")


if __name__ == "__main__":
    main()
