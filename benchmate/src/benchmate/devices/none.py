"""The devices of a machine without any: nothing to read, and nothing that the monitor must treat in another way."""

from __future__ import annotations

from collections.abc import Sequence

from benchmate.devices.api import Device


class NoVendor:
    """No devices."""

    arch = "cpu"
    period_s = 1.0
    devices: Sequence[Device] = ()

    def close(self) -> None:
        """Nothing to let go of."""
