"""Check that the environment can be made and played; nothing is downloaded."""

from __future__ import annotations

import argparse

import gymnasium


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--env", required=True)
    args, _ = parser.parse_known_args()
    env = gymnasium.make(args.env)
    env.reset(seed=0)
    env.step(env.action_space.sample())
    env.close()
    print(f"{args.env}: observations {env.observation_space}, actions {env.action_space}")


if __name__ == "__main__":
    main()
