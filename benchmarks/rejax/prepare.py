"""Write the configuration file that the script reads, from the suite's options; nothing is downloaded."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import benchmate

DEFAULTS = {
    "env": "CartPole-v1",
    "agent_kwargs": {"activation": "tanh"},
    "num_envs": 64,
    "num_steps": 64,
    "num_epochs": 4,
    "num_minibatches": 4,
    "learning_rate": 0.00075,
    "max_grad_norm": 0.5,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "clip_eps": 0.2,
    "ent_coef": 0.01,
    "vf_coef": 0.5,
    # The program is one call without an evaluation before its end, which the runner does not wait for.
    "skip_initial_evaluation": True,
    "total_timesteps": 1_000_000_000,
    "eval_freq": 1_000_000_000,
}


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--config", type=Path, required=True)
    args, _ = parser.parse_known_args()
    settings = {"ppo": {**DEFAULTS, **benchmate.option("ppo")}}
    # JSON is YAML.
    benchmate.prepare_file(args.config, settings, lambda file: file.write_text(json.dumps(settings, indent=2)))


if __name__ == "__main__":
    main()
