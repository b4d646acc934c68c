"""Read the dataset once: bundled ones need no network, others are downloaded now instead of during the run."""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--dataset", required=True)
    args, _ = parser.parse_known_args()
    # PyKEEN takes a file that is there for whole, also what a download that was killed has left: so it downloads elsewhere.
    home = Path(os.environ["PYSTOW_HOME"])
    partial = home.with_name(f"{home.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    os.environ["PYSTOW_HOME"] = str(partial)  # read when pykeen is imported

    from pykeen.datasets import get_dataset

    dataset = get_dataset(dataset=args.dataset)
    for downloaded in partial.glob("pykeen/datasets/*"):
        kept = home / downloaded.relative_to(partial)
        kept.parent.mkdir(parents=True, exist_ok=True)
        if not kept.exists():  # whoever put it there
            downloaded.rename(kept)
    shutil.rmtree(partial, ignore_errors=True)
    print(f"{args.dataset}: {dataset.training.num_triples} training triples, {dataset.num_entities} entities")


if __name__ == "__main__":
    main()
