"""Read the dataset once: bundled ones need no network, others are downloaded now instead of during the run."""

from __future__ import annotations

import argparse


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--dataset", required=True)
    args, _ = parser.parse_known_args()

    from pykeen.datasets import get_dataset

    dataset = get_dataset(dataset=args.dataset)
    print(f"{args.dataset}: {dataset.training.num_triples} training triples, {dataset.num_entities} entities")


if __name__ == "__main__":
    main()
