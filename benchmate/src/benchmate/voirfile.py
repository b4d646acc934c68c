"""Voirfiles: Python files whose instruments place the probes in a program."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import cast

from benchmate.errors import BenchmateError
from benchmate.phases import Instrument

VOIRFILE_MODULE = "__voir__"


def load_instruments(path: str) -> list[Instrument]:
    """Return the instruments of the voirfile at `path`: `__instruments__` (nested lists and mappings of them) where it is
    defined, else every global whose name starts with `instrument_`.

    The module stays in sys.modules, so that instances of classes that it defines can be pickled.
    """
    if not Path(path).is_file():
        raise BenchmateError(f"{path}: no such voirfile")
    spec = importlib.util.spec_from_file_location(VOIRFILE_MODULE, path)
    if spec is None or spec.loader is None:
        raise BenchmateError(f"{path}: a voirfile is a Python file")
    module = importlib.util.module_from_spec(spec)
    # Before it runs, as for every import: a data class asks sys.modules for its own module.
    sys.modules[VOIRFILE_MODULE] = module
    spec.loader.exec_module(module)
    named = [value for name, value in vars(module).items() if name.startswith("instrument_")]
    return list(_flat(getattr(module, "__instruments__", named)))


def _flat(value: object) -> Iterable[Instrument]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if not isinstance(value, (list, tuple)):
        yield cast("Instrument", value)  # the overseer reports what is not an instrument
        return
    for item in value:
        yield from _flat(item)
