"""Make the folder of images that is learned from (--data-dir)."""

from __future__ import annotations

import argparse
from pathlib import Path

import images


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--data-dir", type=Path, required=True)
    args, _ = parser.parse_known_args()
    images.make(args.data_dir)


if __name__ == "__main__":
    main()
