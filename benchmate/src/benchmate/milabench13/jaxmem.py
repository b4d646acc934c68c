"""The most memory that JAX has held on a device."""

from __future__ import annotations

from collections.abc import Callable


def memory_peak_fetcher() -> Callable[[], float | None]:
    """Return a function that returns the largest peak over this process's devices, in MiB. None where a device counts none."""
    import jax

    def peak() -> float | None:
        statistics = [device.memory_stats() or {} for device in jax.local_devices()]
        peaks = [counts["peak_bytes_in_use"] for counts in statistics if "peak_bytes_in_use" in counts]
        return max(peaks) / 2**20 if peaks else None

    return peak
