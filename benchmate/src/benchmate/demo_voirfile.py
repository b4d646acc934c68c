"""The voirfile of `python -m benchmate demo SCRIPT.py`: observes every loop over a torch DataLoader, to its own end."""

from __future__ import annotations

from benchmate import observe_loss, probes
from benchmate.phases import InstrumentHost


def instrument_main(ov: InstrumentHost) -> None:
    """Observe loops and, where the script calls the usual functions, losses."""
    probes.dataloader(ov, units="items/s", stop=False)
    for name in ("cross_entropy", "mse_loss"):
        probes.result(ov, f"torch.nn.functional.{name}", observe_loss, required=False)
