"""Calls RecBole's quick start; every further `--name value` is a setting of RecBole's."""

import argparse

import yaml
from recbole.quick_start import run_recbole


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--model", required=True)
    parser.add_argument("--dataset", required=True)
    args, rest = parser.parse_known_args()
    names = [name.removeprefix("--") for name in rest[::2]]
    settings = dict(zip(names, map(yaml.safe_load, rest[1::2]), strict=True))
    run_recbole(args.model, args.dataset, config_dict=settings, saved=False)


if __name__ == "__main__":
    main()
