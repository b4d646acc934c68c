"""Tenders and offers as files."""

from __future__ import annotations

from pathlib import Path

from milabench.errors import ConfigError
from milabench.procurement.offer import Offer, offer_problems, parse_offer
from milabench.procurement.tender import Tender, parse_tender
from milabench.workflow.files import read_file


def read_tender(path: Path) -> Tender:
    """Read a tender, procurement.yaml. Raises ConfigError with every problem in it."""
    return parse_tender(read_file(path, hint="check the path"), str(path), str(path.absolute().parent))


def read_offer(path: Path, tender: Tender | None = None) -> Offer:
    """Read an offer, offer.yaml, for a tender. Raises ConfigError with every problem in it, or for not fitting the tender."""
    offer = parse_offer(read_file(path, hint="check the path"), str(path), str(path.absolute().parent))
    if tender is not None and (problems := offer_problems(offer, tender)):
        raise ConfigError(problems)
    return offer
