"""Make the model's configuration and tokenizer; nothing is downloaded."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import benchmate

SHARED = Path(__file__).resolve().parent.parent / "_environments" / "serving"

if __name__ == "__main__":
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--model", type=Path, required=True)
    args, _ = parser.parse_known_args()
    sys.path.append(str(SHARED))
    import models

    models.prepare(args.model, benchmate.option("model"))
