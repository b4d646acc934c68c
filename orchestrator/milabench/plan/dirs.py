"""The folders under a base, as protocol.md, section 3, names them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath

from milabench.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Dirs:
    """Absolute paths of everything milabench writes."""

    base: str
    venv: str
    code: str
    data: str
    cache: str
    extra: str
    runs: str

    def environment(self) -> dict[str, str]:
        """Return `MILABENCH_DIR_*` and the caches of the frameworks, all below this base."""
        return {
            "MILABENCH_DIR_VENV": self.venv,
            "MILABENCH_DIR_CODE": self.code,
            "MILABENCH_DIR_DATA": self.data,
            "MILABENCH_DIR_RUNS": self.runs,
            "MILABENCH_DIR_EXTRA": self.extra,
            "MILABENCH_DIR_CACHE": self.cache,
            "XDG_CACHE_HOME": self.cache,
            "TORCH_HOME": f"{self.cache}/torch",
            "HF_HOME": f"{self.cache}/huggingface",
        }


def dirs_under(base: str, overrides: Mapping[str, str]) -> Dirs:
    """Return the folders under `base`; `overrides` (the system file's `dirs`) move single ones elsewhere.

    Raises ConfigError for `runs`.
    """

    if "runs" in overrides:
        raise ConfigError(
            "system.dirs.runs: runs stay below the base, where every verb looks for them; choose it with --base"
        )

    names = ("venv", "code", "data", "cache", "extra", "runs")
    return Dirs(base=base, **{name: str(PurePath(base, overrides.get(name, name))) for name in names})
