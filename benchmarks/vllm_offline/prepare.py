"""Make the model's configuration and tokenizer; nothing is downloaded."""

from __future__ import annotations

import argparse
from pathlib import Path

import models

import benchmate

if __name__ == "__main__":
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--model", type=Path, required=True)
    args, _ = parser.parse_known_args()
    models.prepare(args.model, benchmate.option("model"))
