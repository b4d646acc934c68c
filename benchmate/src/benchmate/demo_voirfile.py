"""The voirfile of `python -m benchmate demo SCRIPT.py`: every loop over a torch DataLoader, to its own end."""

from __future__ import annotations

from typing import Any

from benchmate import observe_loss, probes


def instrument_main(ov: Any) -> None:
    """Observe loops and, where the script calls the usual functions, losses."""
    probes.dataloader(ov, units="items/s", stop=False)
    for name in ("cross_entropy", "mse_loss"):
        probes.result(ov, f"torch.nn.functional.{name}", observe_loss, required=False)
