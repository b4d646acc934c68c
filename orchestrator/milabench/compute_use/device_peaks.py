"""The peak of each accelerator by number format, as its maker publishes it: dense products, no structured sparsity.

Where a sheet gives a number with sparsity only, the table has half. A device whose name says that it is a part of one
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

    `half_below_gib`: a device of the name with less memory than this is one of its two halves.
    """

    pattern: str
    tera: Mapping[str, float]
    source: str
    half_below_gib: float = 0.0


def _peak(tera: str, pattern: str, source: str, half_below_gib: float = 0.0) -> DevicePeak:
    """Return a row of PEAKS; `tera` are the peaks in the order of FORMATS, a hyphen where none is published."""
    peaks = {name: float(text) for name, text in zip(FORMATS, tera.split(), strict=True) if text != "-"}
    return DevicePeak(pattern=pattern, tera=peaks, source=source, half_below_gib=half_below_gib)


_H100, _MAX = "NVIDIA H100 Tensor Core GPU data sheet", "Intel Data Center GPU Max series product brief"
_MI300, _MI200 = "AMD Instinct MI300 series data sheets", "AMD Instinct MI200 series data sheets"
FORMATS: Final = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8")
PEAKS: Final[tuple[DevicePeak, ...]] = (  # the first whose pattern is in the name
    #       fp64  fp32  tf32   bf16   fp16    fp8   int8
    _peak("   40    80  1250   2500   2500   5000   5000", r"\bGB200\b", "NVIDIA GB200 NVL72 data sheet, of each GPU"),
    _peak("   37    75  1125   2250   2250   4500   4500", r"\bB200\b", "NVIDIA HGX B200 data sheet"),
    _peak("   60    60 417.5  835.5  835.5 1670.5 1670.5", r"\bH200 NVL\b", "NVIDIA H200 data sheet"),
    _peak("   67    67 494.7  989.4  989.4 1978.9 1978.9", r"\bH200\b", "NVIDIA H200 data sheet"),
    _peak("   67    67 494.7  989.4  989.4 1978.9 1978.9", r"\bGH200\b", "NVIDIA GH200 data sheet"),
    _peak("   51    51   378    756    756   1513   1513", r"\bH100 PCIe\b", _H100),
    _peak("   60    60 417.5  835.5  835.5 1670.5 1670.5", r"\bH100 NVL\b", _H100),
    _peak("   67    67 494.7  989.4  989.4 1978.9 1978.9", r"\bH100\b", f"{_H100}, SXM"),
    _peak(" 19.5  19.5   156    312    312      -    624", r"\bA100\b", "NVIDIA A100 Tensor Core GPU data sheet"),
    _peak(" 10.3  10.3    82    165    165      -    330", r"\bA30\b", "NVIDIA A30 data sheet"),
    _peak("    -  37.4  74.8  149.7  149.7      -  299.3", r"\bA40\b", "NVIDIA A40 data sheet"),
    _peak("    -  31.2  62.5    125    125      -    250", r"\bA10\b", "NVIDIA A10 data sheet"),
    _peak("    -  91.6   183    362    362    733    733", r"\bL40S\b", "NVIDIA L40S data sheet"),
    _peak("    -  90.5  90.5    181    181    362    362", r"\bL40\b", "NVIDIA L40 data sheet"),
    _peak("    -  30.3    60    121    121  242.5  242.5", r"\bL4\b", "NVIDIA L4 data sheet"),
    _peak("  7.8  15.7     -      -    125      -      -", r"\bV100S?-SXM", "NVIDIA V100 data sheet, SXM2"),
    _peak("    7    14     -      -    112      -      -", r"\bV100\b", "NVIDIA V100 data sheet, PCIe"),
    _peak("    -   8.1     -      -     65      -    130", r"\bT4\b", "NVIDIA T4 data sheet"),
    _peak(
        "    -  82.6  82.6  165.2  165.2  330.3  660.6",
        r"\bRTX 4090\b(?! D| Laptop)",
        "NVIDIA Ada GPU architecture, sums in fp32",
    ),
    _peak(
        "    -  35.6  35.6     71     71      -    284",
        r"\bRTX 3090\b(?! Ti)",
        "NVIDIA Ampere GA102 GPU architecture, sums in fp32",
    ),
    _peak(" 78.6 157.3     - 2516.6 2516.6 5033.2 5033.2", r"MI355X", "AMD Instinct MI355X data sheet"),
    _peak("163.4 163.4 653.7 1307.4 1307.4 2614.9 2614.9", r"MI300X|MI325X", _MI300),
    _peak("122.6 122.6 490.3  980.6  980.6 1961.2 1961.2", r"MI300A", _MI300),
    _peak(" 95.7  95.7     -    383    383      -    383", r"MI250X", _MI200, half_below_gib=100),
    _peak(" 90.5  90.5     -  362.1  362.1      -  362.1", r"MI250", _MI200, half_below_gib=100),
    _peak(" 45.3  45.3     -    181    181      -    181", r"MI210", _MI200),
    _peak("    -     -     -   1835      -   1835      -", r"(?i)\bgaudi ?3\b|\bHL-3\d\d", "Intel Gaudi 3 white paper"),
    _peak("    -     -     -    432      -    865      -", r"(?i)\bgaudi ?2\b|\bHL-2\d\d", "Intel Gaudi 2 white paper"),
    _peak("   52    52   419    839    839      -   1678", r"\bMax 1550\b", _MAX, half_below_gib=100),
    _peak("   22    22   176    352    352      -    704", r"\bMax 1100\b", _MAX),
)
_A_PART: Final = re.compile(r"\bMIG\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedPeak:
    """Operations a second that the maker of a device publishes, and where."""

    value: float
    source: str


def published_peak(name: str, precision: str, memory_mib: float | None = None) -> PublishedPeak | None:
    """Return the peak of a device in a number format. None where its maker publishes none, or we do not know the device."""
    if _A_PART.search(name):
        return None
    known = next((peak for peak in PEAKS if re.search(peak.pattern, name)), None)
    if known is None or precision not in known.tera:
        return None
    is_half = bool(memory_mib and memory_mib < 1024 * known.half_below_gib)
    value = TERA * known.tera[precision] / (2 if is_half else 1)
    return PublishedPeak(value=value, source=f"{known.source}, one of two dies" if is_half else known.source)
