"""Make molecules by seed: a random tree of atoms at the lengths of bonds, and an energy that their pairs add up to."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch_geometric.data import Data

import benchmate

SEED = 20260101
ELEMENTS = (1, 6, 7, 8)  # hydrogen, carbon, nitrogen, oxygen


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--data", type=Path, required=True)
    args, _ = parser.parse_known_args()
    count = benchmate.option("molecules")
    benchmate.prepare_file(
        args.data, {"seed": SEED, "molecules": count}, lambda file: torch.save(molecules(count), file)
    )


def molecules(count: int) -> list[Data]:
    generator = torch.Generator().manual_seed(SEED)
    return [molecule(generator) for _ in range(count)]


def molecule(generator: torch.Generator) -> Data:
    atoms = int(torch.randint(10, 28, (1,), generator=generator))
    z = torch.tensor(ELEMENTS)[torch.randint(len(ELEMENTS), (atoms,), generator=generator)]
    places, bonds = [torch.zeros(3)], []
    while len(places) < atoms:
        neighbour = int(torch.randint(len(places), (1,), generator=generator))
        step = torch.randn(3, generator=generator)
        place = places[neighbour] + 1.4 * step / step.norm()
        if min(float((place - other).norm()) for other in places) > 1.0:
            bonds += [(neighbour, len(places)), (len(places), neighbour)]
            places.append(place)
    pos = torch.stack(places)
    distance = torch.pdist(pos)
    first, second = torch.triu_indices(atoms, atoms, 1)
    pairs = torch.sqrt(z[first].float() * z[second].float()) * torch.exp(-distance)
    return Data(z=z, pos=pos, edge_index=torch.tensor(bonds).t().contiguous(), y=(pairs.sum() / 10).reshape(1))


if __name__ == "__main__":
    main()
