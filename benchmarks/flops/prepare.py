"""Check that torch finds its device; the matrices are made by the program."""

from __future__ import annotations

import torch
from main import best_device


def main() -> None:
    device = best_device()
    torch.ones(8, device=device).sum().item()
    print(f"torch {torch.__version__} on {device}")


if __name__ == "__main__":
    main()
