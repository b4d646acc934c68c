"""What a child process that imports packages has written: which one it imports, and why some could not be imported."""

from __future__ import annotations

import json
import re
import signal
from dataclasses import dataclass, field

from milabench.execute.import_probe import MARK

ABSENT = "not installed"
# Where a library of a driver, which no package brings, is missing: on a login node, or where the image is made.
_NO_DRIVER = re.compile(
    r"lib(cuda|nvidia-\w+|nvcuvid|hsa-runtime64|amdhip64|hip\w+|roc\w+|rccl|MIOpen|ze_\w+|OpenCL|Synapse\w*|habana\w*|hl_\w+)"
    r"\.so[.\d]*: (cannot open|.*not found)"
    r"|found no (nvidia )?driver|no CUDA-capable device|CUDA driver version is insufficient|no HIP GPUs|0 active drivers",
    re.IGNORECASE,
)


def is_driver_missing(why: str) -> bool:
    """Return whether an import failed because this machine lacks the driver of an accelerator."""
    return _NO_DRIVER.search(why) is not None


@dataclass(slots=True)
class ImportsTried:
    """What was heard so far; `module` is being imported."""

    module: str = ""
    _package: str = ""
    _failed: dict[str, str] = field(default_factory=dict)
    _is_over: bool = False

    def hear(self, line: str) -> None:
        """Take in a line of output; those of others are passed over."""
        if not line.startswith(MARK):
            return
        entry = json.loads(line.removeprefix(MARK))
        if "why" in entry:
            self._failed.setdefault(entry["package"], entry["why"])
        elif "absent" in entry:
            self._failed[entry["package"]] = ABSENT
        else:
            self._package, self.module = entry.get("package", ""), entry.get("module", "")
            self._is_over = entry.get("end", False)

    def problems(self, code: int) -> dict[str, str]:
        """Return why packages could not be imported, given the exit code of the process, which may have died of one."""
        if self._is_over:
            return self._failed
        name = signal.Signals(-code).name if -code in {*signal.Signals} else f"exit code {code}"
        return {**self._failed, self._package or "benchmate": f"the process ended with {name}"}
