"""Make the folder of images that is learned from (--data-dir)."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

SHARED = Path(__file__).resolve().parent.parent / "_environments" / "vision"


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--data-dir", type=Path, required=True)
    args, _ = parser.parse_known_args()
    sys.path.append(str(SHARED))
    import images

    images.make(args.data_dir)


if __name__ == "__main__":
    main()
