"""Weights and data that only those may fetch who have accepted their terms: for which benchmarks, and is a token there?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from milabench.config.schema import BenchmarkConfig, GatedConfig

VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
HOW = "Accept the terms there, then give a token by HF_TOKEN or `hf auth login`"


def gated_benches(benches: Iterable[BenchmarkConfig]) -> dict[str, GatedConfig]:
    """Return the benchmarks that need accepted terms, with their terms."""
    return {bench.name: bench.gated for bench in benches if bench.gated is not None}


def token_place(environ: Mapping[str, str]) -> str:
    """Return where a token for the hub is: a variable's name or the path of the hub's token file. Empty where there is none."""
    for name in VARIABLES:
        if environ.get(name, "").strip():
            return name
    path = token_file(environ)
    try:
        return str(path) if path.read_text(encoding="utf-8").strip() else ""
    except (OSError, UnicodeDecodeError):
        return ""


def token_file(environ: Mapping[str, str]) -> Path:
    """Return where the hub's programs keep the token of this user."""
    if environ.get("HF_TOKEN_PATH"):
        return Path(environ["HF_TOKEN_PATH"])
    cache = environ.get("XDG_CACHE_HOME") or str(Path(environ.get("HOME", "~")).expanduser() / ".cache")
    return Path(environ.get("HF_HOME") or Path(cache, "huggingface"), "token")


def token_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which a prepare script finds the user's token: the caches of the hub are below the base."""
    place = token_place(environ)
    return {"HF_TOKEN_PATH": place} if place and place not in VARIABLES else {}


def why_refused(bench: str, terms: GatedConfig) -> str:
    """Return why a benchmark cannot be prepared without a token, in a single line."""
    return f"{bench}: no token for {terms.repository}, which is gated: {terms.page}. {HOW}"
