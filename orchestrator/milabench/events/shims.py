"""The meaning of shims named in records: stand-ins for missing parts of packages in an environment."""

from __future__ import annotations

from collections.abc import Mapping

TORCHVISION = "torchvision"
NOTES: Mapping[str, str] = {
    TORCHVISION: "the operators of torchvision (nms, roi_align and others) raise an error in this environment: its wheel "
    "does not fit the cpu build of torch. Models, transforms and data sets work"
}


def note_of(shim: str) -> str:
    """Return the meaning of a shim for a person, also if only another version of milabench knows it."""
    return NOTES.get(
        shim, "stands in for what a package lacks in this environment. This version of milabench knows no more"
    )
