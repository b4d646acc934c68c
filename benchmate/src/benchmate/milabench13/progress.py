"""tqdm that writes at most every 30 seconds, so that a log is not full of bars.

MILABENCH_NO_PROGRESS=1 leaves the bars out. MILABENCH_GLOBAL_PATCH=1 gives these bars to all who import tqdm, too.
"""

from __future__ import annotations

import os
from typing import Any

import tqdm as _tqdm
import tqdm.auto as _auto

MIN_INTERVAL_S = 30.0
MAX_INTERVAL_S = 60.0


def _is_set(name: str) -> bool:
    return os.environ.get(name, "0") not in ("", "0")


class tqdm(_tqdm.tqdm):  # type: ignore[misc]  # noqa: N801  (named as the class that it replaces)
    """A progress bar that is drawn rarely."""

    def __init__(self, *args: Any, **options: Any) -> None:
        options["mininterval"] = max(MIN_INTERVAL_S, options.get("mininterval", 0.0))
        options["maxinterval"] = max(MAX_INTERVAL_S, options.get("maxinterval", 0.0))
        options["disable"] = options.get("disable", False) or _is_set("MILABENCH_NO_PROGRESS")
        super().__init__(*args, **options)


def patch_tqdm() -> None:
    """Give these bars to all who import `tqdm.tqdm` or `tqdm.auto.tqdm` from here on."""
    _tqdm.tqdm = _auto.tqdm = tqdm


if _is_set("MILABENCH_GLOBAL_PATCH"):
    patch_tqdm()
