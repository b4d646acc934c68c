"""The base class of the document's example, which the document itself leaves out."""

from __future__ import annotations


class BenchRoBERTa:
    """What the baseline and the quantized cases would share: the model, its data and one epoch of training."""
