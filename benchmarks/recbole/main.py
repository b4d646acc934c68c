"""Calls RecBole's quick start; every further `--name value` is a setting of RecBole's."""

import argparse
import os

import yaml
from recbole.quick_start import run_recbole


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--model", required=True)
    parser.add_argument("--dataset", required=True)
    args, rest = parser.parse_known_args()
    names = [name.removeprefix("--") for name in rest[::2]]
    settings = dict(zip(names, map(yaml.safe_load, rest[1::2]), strict=True))
    # RecBole sets CUDA_VISIBLE_DEVICES to gpu_id: 0, unless told, also where this process was given another device.
    settings.setdefault("gpu_id", os.environ.get("CUDA_VISIBLE_DEVICES", "0"))
    run_recbole(args.model, args.dataset, config_dict=settings, saved=False)


if __name__ == "__main__":
    main()
