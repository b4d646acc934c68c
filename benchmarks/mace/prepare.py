"""Make frames of displaced copper by seed, with energies and forces by ASE's toy potential; nothing is downloaded."""

from __future__ import annotations

import argparse
from pathlib import Path

import ase.build
import ase.io
import numpy as np
from ase.calculators.emt import EMT

import benchmate

SEED = 20260101
DISPLACEMENT = 0.1  # angstroms


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--train_file", type=Path, required=True)
    args, _ = parser.parse_known_args()
    size = {"count": benchmate.option("frames"), "repeat": benchmate.option("repeat")}
    benchmate.prepare_file(
        args.train_file, {"seed": SEED, **size}, lambda file: ase.io.write(file, frames(**size), format="extxyz")
    )


def frames(count: int, repeat: int) -> list[ase.Atoms]:
    rng = np.random.default_rng(SEED)
    made = []
    for _ in range(count):
        atoms = ase.build.bulk("Cu", cubic=True).repeat(repeat)
        atoms.positions += rng.normal(scale=DISPLACEMENT, size=atoms.positions.shape)
        atoms.calc = EMT()
        # Other names than ASE's own, which it moves into a calculator when it reads the file.
        energy, forces = atoms.get_potential_energy(), atoms.get_forces()
        atoms.calc = None
        atoms.info["REF_energy"] = energy
        atoms.arrays["REF_forces"] = forces
        made.append(atoms)
    return made


if __name__ == "__main__":
    main()
