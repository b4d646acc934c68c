"""Downloads of models and data sets from the hub, for prepare scripts. The name is spelled as milabench 1.3 spells it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

NOT_NEEDED = ("*.git*", "*.md", "*.onnx")
"""Files of a model that no benchmark reads. Text files are kept: the vocabulary of a tokenizer may be a text file."""


def download_hf_model(
    model_id: str,
    token: str | None = None,
    cache_dir: str | None = None,
    ignore_patterns: Sequence[str] | None = None,
) -> str:
    """Download a model into the cache (HF_HOME, or `cache_dir`). Return its folder. Ends the program when it cannot be had."""

    def download() -> str:
        from huggingface_hub import snapshot_download

        patterns = list(NOT_NEEDED if ignore_patterns is None else ignore_patterns)
        folder: str = snapshot_download(model_id, token=_token(token), cache_dir=cache_dir, ignore_patterns=patterns)
        return folder

    folder: str = _downloaded(f"model {model_id}", download)
    print(f"model {model_id}: {folder}")
    return folder


def download_hf_dataset(
    dataset_name: str, split: str | None = None, name: str | None = None, token: str | None = None
) -> bool:
    """Download a data set, or a single split, into the cache. Return True. Ends the program when it cannot be had."""

    def download() -> Any:
        from datasets import load_dataset

        return load_dataset(dataset_name, name=name, split=split, token=_token(token))

    dataset = _downloaded(f"data set {dataset_name}", download)
    parts = dataset if isinstance(dataset, dict) else {split or "all": dataset}
    for part, rows in parts.items():
        print(f"data set {dataset_name}, {part}: {len(rows)} rows")
    return True


def _token(token: str | None) -> str | None:
    return token or os.environ.get("HF_TOKEN") or os.environ.get("MILABENCH_HF_TOKEN") or None


def _downloaded(what: str, download: Callable[[], Any]) -> Any:
    print(f"{what}: downloading", flush=True)
    try:
        return download()
    except ImportError as error:
        raise SystemExit(f"{what}: cannot be downloaded: the package {error.name} is not installed") from error
    # The hub's own exceptions, those of its transport and of a full disk have no class in common but these.
    except (OSError, ValueError, RuntimeError) as error:
        reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise SystemExit(f"{what}: cannot be downloaded: {reason}") from error
