"""Data from and for JSON: what is inside is known where it is checked or written, not to the type checker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

JsonObject = dict[str, Any]
"""An object to be written: a record of a run, a configuration."""
JsonMapping = Mapping[str, Any]
"""An object that was read: a configuration, the specification of one argument, a record."""
