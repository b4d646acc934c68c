"""Downloads of models and data sets from the hub, for prepare scripts. The name is spelled as milabench 1.3 spells it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence

NOT_NEEDED = ("*.git*", "*.md", "*.onnx")
"""Files of a model that no benchmark reads. Text files are kept: the vocabulary of a tokenizer may be a text file."""


def download_hf_model(
    model_id: str,
    token: str | None = None,
    cache_dir: str | None = None,
    ignore_patterns: Sequence[str] | None = None,
) -> str:
    """Download a model into the cache (HF_HOME, or `cache_dir`). Return its folder. Ends the program when it cannot be had."""
    with _downloading(f"model {model_id}"):
        from huggingface_hub import snapshot_download

        patterns = list(NOT_NEEDED if ignore_patterns is None else ignore_patterns)
        folder: str = snapshot_download(model_id, token=_token(token), cache_dir=cache_dir, ignore_patterns=patterns)
    print(f"model {model_id}: {folder}")
    return folder


def download_hf_dataset(
    dataset_name: str, split: str | None = None, name: str | None = None, token: str | None = None
) -> bool:
    """Download a data set, or a single split, into the cache. Return True. Ends the program when it cannot be had."""
    with _downloading(f"data set {dataset_name}"):
        from datasets import load_dataset

        dataset = load_dataset(dataset_name, name=name, split=split, token=_token(token))
    parts = dataset if isinstance(dataset, dict) else {split or "all": dataset}
    for part, rows in parts.items():
        print(f"data set {dataset_name}, {part}: {len(rows)} rows")
    return True


def _token(token: str | None) -> str | None:
    return token or os.environ.get("HF_TOKEN") or os.environ.get("MILABENCH_HF_TOKEN") or None


@contextlib.contextmanager
def _downloading(what: str) -> Iterator[None]:
    """Say what is downloaded. End the program with a line when it cannot be had."""
    print(f"{what}: downloading", flush=True)
    try:
        yield
    except ImportError as error:
        raise SystemExit(f"{what}: cannot be downloaded: the package {error.name} is not installed") from error
    # The hub's own exceptions, those of its transport and of a full disk have no class in common but these.
    except (OSError, ValueError, RuntimeError) as error:
        reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise SystemExit(f"{what}: cannot be downloaded: {reason}") from error
