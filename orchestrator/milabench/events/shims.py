"""What the shims mean that records name: stand-ins in an environment for parts of packages that it had to do without."""

from __future__ import annotations

from collections.abc import Mapping

TORCHVISION = "torchvision"
NOTES: Mapping[str, str] = {
    TORCHVISION: "the operators of torchvision (nms, roi_align and others) raise an error in this environment: its wheel "
    "does not fit the cpu build of torch; models, transforms and data sets work"
}


def note_of(shim: str) -> str:
    """Return what a shim means, for a person; also of one that only another version of milabench knows."""
    return NOTES.get(
        shim, "stands in for what a package lacks in this environment; this version of milabench knows no more"
    )
