"""The results of a child process that imports packages: the current import, and why some could not be imported."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Collection
from dataclasses import dataclass, field

from milabench.execute.import_probe import MARK

ABSENT = "not installed"
# What says that the driver of this kind of device is missing: the libraries that no package brings, and what its users then
# say. AMD's driver is a part of the kernel: wheels for ROCm bring every library above it.
_NO_DRIVER = {
    "cuda": r"lib(cuda|nvidia-ml|nvidia-ptxjitcompiler|nvidia-encode|nvcuvid)\.so[.\d]*: {absent}"
    r"|found no (nvidia )?driver|no CUDA-capable device|CUDA driver version is insufficient",
    "rocm": r"no HIP GPUs",
    "xpu": r"lib(ze_\w+|OpenCL)\.so[.\d]*: {absent}",
    "hpu": r"lib(Synapse\w*|hl_\w+|habana\w*)\.so[.\d]*: {absent}",
}
_ANY = r"0 active drivers"  # of triton, whose message names no kind
_ABSENT = "(cannot open|.*not found)"


def is_driver_missing(why: str, devices: Collection[str]) -> bool:
    """Return whether an import failed because this machine, with devices of these kinds, lacks the driver of another kind.

    A machine that has such a device has its driver: a package that fails there does not fit.
    """
    absent = [kind for kind in _NO_DRIVER if kind not in devices]
    patterns = [_NO_DRIVER[kind].replace("{absent}", _ABSENT) for kind in absent] + ([] if devices else [_ANY])
    return any(re.search(pattern, why, re.IGNORECASE) for pattern in patterns)


@dataclass(slots=True)
class ImportsTried:
    """The results so far. `module` is being imported, `untried` says why no module of a package was imported."""

    module: str = ""
    untried: dict[str, str] = field(default_factory=dict)
    _package: str = ""
    _failed: dict[str, str] = field(default_factory=dict)
    _is_over: bool = False

    def hear(self, line: str) -> None:
        """Take in a line of output. Lines of others are passed over."""
        if not line.startswith(MARK):
            return
        entry = json.loads(line.removeprefix(MARK))
        if "why" in entry:
            self._failed.setdefault(entry["package"], entry["why"])
        elif "nothing" in entry:
            self.untried[entry["package"]] = entry["nothing"]
        elif "absent" in entry:
            self._failed[entry["package"]] = ABSENT
        else:
            self._package, self.module = entry.get("package", ""), entry.get("module", "")
            self._is_over = entry.get("end", False)

    def problems(self, code: int) -> dict[str, str]:
        """Return why packages could not be imported, given the exit code of the process, which a package may have killed."""
        if self._is_over:
            return self._failed
        name = signal.Signals(-code).name if -code in {*signal.Signals} else f"exit code {code}"
        return {**self._failed, self._package or "benchmate": f"the process ended with {name}"}
