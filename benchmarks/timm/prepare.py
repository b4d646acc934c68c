"""Check that timm knows the model, and make the folder of images where one is read."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import images
import timm


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--data", type=Path)
    args, _ = parser.parse_known_args()
    if not timm.is_model(args.model):
        sys.exit(f"error: timm {timm.__version__} has no model {args.model}; timm.list_models() names those it has")
    if args.data is None:
        print(f"{args.model}: the program makes its images itself")
        return
    images.make(args.data)


if __name__ == "__main__":
    main()
