"""Read the dataset once: bundled ones need no network, others are downloaded now instead of during the run."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from benchmate.prepared_data import exclusive, hidden_folder


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--dataset", required=True)
    args, _ = parser.parse_known_args()
    # PyKEEN takes a file that is there for whole, also what a download that was killed has left: so it downloads elsewhere.
    home = Path(os.environ["PYSTOW_HOME"])
    home.parent.mkdir(parents=True, exist_ok=True)
    with exclusive(home), hidden_folder(home) as partial:
        os.environ["PYSTOW_HOME"] = str(partial)  # read when pykeen is imported

        from pykeen.datasets import get_dataset

        dataset = get_dataset(dataset=args.dataset)
        for downloaded in partial.glob("pykeen/datasets/*"):
            kept = home / downloaded.relative_to(partial)
            kept.parent.mkdir(parents=True, exist_ok=True)
            if not os.path.lexists(kept):  # whoever put it there
                downloaded.rename(kept)
    print(f"{args.dataset}: {dataset.training.num_triples} training triples, {dataset.num_entities} entities")


if __name__ == "__main__":
    main()
