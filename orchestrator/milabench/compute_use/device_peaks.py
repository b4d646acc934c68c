"""The peak of each accelerator by number format, as its maker publishes it: dense products, no structured sparsity.

Where a sheet gives a number with sparsity only, half of it stands here. A device whose name says that it is a part of one
(a MIG instance) has no published peak.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

TERA: Final = 1e12


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePeak:
    """An accelerator, by a pattern in the name that its driver gives, and its peaks in 1e12 operations a second.

    `half_below_gib`: a device of the name with less memory than that is one of its two dies.
    """

    pattern: str
    tera: Mapping[str, float]
    source: str
    half_below_gib: float = 0.0


def _hopper(fp64: float, tf32: float, bf16: float, fp8: float) -> dict[str, float]:
    """Return the peaks of a Hopper device: its tensor cores do products of fp64 as fast as its other cores those of fp32."""
    return {"fp64": fp64, "fp32": fp64, "tf32": tf32, "bf16": bf16, "fp16": bf16, "fp8": fp8, "int8": fp8}


def _matrix(fp64: float, fp32: float, half: float, **others: float) -> dict[str, float]:
    return {"fp64": fp64, "fp32": fp32, "bf16": half, "fp16": half, **others}


_H100, _B200 = "NVIDIA H100 Tensor Core GPU data sheet", "NVIDIA HGX B200 data sheet"
_MI300, _MI200 = "AMD Instinct MI300 series data sheets", "AMD Instinct MI200 series data sheets"

PEAKS: Final[tuple[DevicePeak, ...]] = (  # the first whose pattern is in the name
    DevicePeak(
        pattern=r"\bGB200\b",
        tera={"fp64": 40, "fp32": 80, "tf32": 1250, "bf16": 2500, "fp16": 2500, "fp8": 5000, "int8": 5000},
        source="NVIDIA GB200 NVL72 data sheet, of each GPU",
    ),
    DevicePeak(
        pattern=r"\bB200\b",
        tera={"fp64": 37, "fp32": 75, "tf32": 1125, "bf16": 2250, "fp16": 2250, "fp8": 4500, "int8": 4500},
        source=_B200,
    ),
    DevicePeak(pattern=r"\bH200 NVL\b", tera=_hopper(60, 417.5, 835.5, 1670.5), source="NVIDIA H200 data sheet"),
    DevicePeak(pattern=r"\bH200\b", tera=_hopper(67, 494.7, 989.4, 1978.9), source="NVIDIA H200 data sheet"),
    DevicePeak(pattern=r"\bGH200\b", tera=_hopper(67, 494.7, 989.4, 1978.9), source="NVIDIA GH200 data sheet"),
    DevicePeak(pattern=r"\bH100 PCIe\b", tera=_hopper(51, 378, 756, 1513), source=_H100),
    DevicePeak(pattern=r"\bH100 NVL\b", tera=_hopper(60, 417.5, 835.5, 1670.5), source=_H100),
    DevicePeak(pattern=r"\bH100\b", tera=_hopper(67, 494.7, 989.4, 1978.9), source=f"{_H100}, SXM"),
    DevicePeak(
        pattern=r"\bA100\b",
        tera={"fp64": 19.5, "fp32": 19.5, "tf32": 156, "bf16": 312, "fp16": 312, "int8": 624},
        source="NVIDIA A100 Tensor Core GPU data sheet",
    ),
    DevicePeak(
        pattern=r"\bA30\b",
        tera={"fp64": 10.3, "fp32": 10.3, "tf32": 82, "bf16": 165, "fp16": 165, "int8": 330},
        source="NVIDIA A30 data sheet",
    ),
    DevicePeak(
        pattern=r"\bA40\b",
        tera={"fp32": 37.4, "tf32": 74.8, "bf16": 149.7, "fp16": 149.7, "int8": 299.3},
        source="NVIDIA A40 data sheet",
    ),
    DevicePeak(
        pattern=r"\bA10\b",
        tera={"fp32": 31.2, "tf32": 62.5, "bf16": 125, "fp16": 125, "int8": 250},
        source="NVIDIA A10 data sheet",
    ),
    DevicePeak(
        pattern=r"\bL40S\b",
        tera={"fp32": 91.6, "tf32": 183, "bf16": 362, "fp16": 362, "fp8": 733, "int8": 733},
        source="NVIDIA L40S data sheet",
    ),
    DevicePeak(
        pattern=r"\bL40\b",
        tera={"fp32": 90.5, "tf32": 90.5, "bf16": 181, "fp16": 181, "fp8": 362, "int8": 362},
        source="NVIDIA L40 data sheet",
    ),
    DevicePeak(
        pattern=r"\bL4\b",
        tera={"fp32": 30.3, "tf32": 60, "bf16": 121, "fp16": 121, "fp8": 242.5, "int8": 242.5},
        source="NVIDIA L4 data sheet",
    ),
    DevicePeak(
        pattern=r"\bV100S?-SXM",
        tera={"fp64": 7.8, "fp32": 15.7, "fp16": 125},
        source="NVIDIA V100 data sheet, SXM2",
    ),
    DevicePeak(
        pattern=r"\bV100\b",
        tera={"fp64": 7, "fp32": 14, "fp16": 112},
        source="NVIDIA V100 data sheet, PCIe",
    ),
    DevicePeak(pattern=r"\bT4\b", tera={"fp32": 8.1, "fp16": 65, "int8": 130}, source="NVIDIA T4 data sheet"),
    DevicePeak(
        pattern=r"\bRTX 4090\b(?! D| Laptop)",
        tera={"fp32": 82.6, "tf32": 82.6, "bf16": 165.2, "fp16": 165.2, "fp8": 330.3, "int8": 660.6},
        source="NVIDIA Ada GPU architecture, sums in fp32",
    ),
    DevicePeak(
        pattern=r"\bRTX 3090\b(?! Ti)",
        tera={"fp32": 35.6, "tf32": 35.6, "bf16": 71, "fp16": 71, "int8": 284},
        source="NVIDIA Ampere GA102 GPU architecture, sums in fp32",
    ),
    DevicePeak(
        pattern=r"MI355X",
        tera=_matrix(78.6, 157.3, 2516.6, fp8=5033.2, int8=5033.2),
        source="AMD Instinct MI355X data sheet",
    ),
    DevicePeak(
        pattern=r"MI300X|MI325X",
        tera=_matrix(163.4, 163.4, 1307.4, tf32=653.7, fp8=2614.9, int8=2614.9),
        source=_MI300,
    ),
    DevicePeak(
        pattern=r"MI300A",
        tera=_matrix(122.6, 122.6, 980.6, tf32=490.3, fp8=1961.2, int8=1961.2),
        source=_MI300,
    ),
    DevicePeak(pattern=r"MI250X", tera=_matrix(95.7, 95.7, 383, int8=383), source=_MI200, half_below_gib=100),
    DevicePeak(pattern=r"MI250", tera=_matrix(90.5, 90.5, 362.1, int8=362.1), source=_MI200, half_below_gib=100),
    DevicePeak(pattern=r"MI210", tera=_matrix(45.3, 45.3, 181, int8=181), source=_MI200),
    DevicePeak(
        pattern=r"(?i)\bgaudi ?3\b|\bHL-3\d\d", tera={"bf16": 1835, "fp8": 1835}, source="Intel Gaudi 3 white paper"
    ),
    DevicePeak(
        pattern=r"(?i)\bgaudi ?2\b|\bHL-2\d\d", tera={"bf16": 432, "fp8": 865}, source="Intel Gaudi 2 white paper"
    ),
    DevicePeak(
        pattern=r"\bMax 1550\b",
        tera=_matrix(52, 52, 839, tf32=419, int8=1678),
        source="Intel Data Center GPU Max series product brief",
        half_below_gib=100,
    ),
    DevicePeak(
        pattern=r"\bMax 1100\b",
        tera=_matrix(22, 22, 352, tf32=176, int8=704),
        source="Intel Data Center GPU Max series product brief",
    ),
)
_A_PART: Final = re.compile(r"\bMIG\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedPeak:
    """Operations a second that the maker of a device publishes, and where."""

    value: float
    source: str


def published_peak(name: str, precision: str, memory_mib: float | None = None) -> PublishedPeak | None:
    """Return the peak of a device in a number format; None where its maker publishes none, or we do not know the device."""
    if _A_PART.search(name):
        return None
    known = next((peak for peak in PEAKS if re.search(peak.pattern, name)), None)
    if known is None or precision not in known.tera:
        return None
    is_half = bool(memory_mib and memory_mib < 1024 * known.half_below_gib)
    value = TERA * known.tera[precision] / (2 if is_half else 1)
    return PublishedPeak(value=value, source=f"{known.source}, one of two dies" if is_half else known.source)
