"""Stand-ins for missing parts of a published package: put into an environment that cannot do without them, and reported."""

from __future__ import annotations

import pkgutil
import re
from functools import cache
from pathlib import Path

from milabench.events.shims import TORCHVISION
from milabench.execute.inventory import COMPLETE, read_marker

# Its extension wants the libraries of CUDA, so that beside a cpu build of torch it is not loaded and defines nothing.
_NO_OPERATORS = re.compile(r"\boperator torchvision::nms does not exist\b")


def shim_for(why: str) -> str | None:
    """Return the shim that helps against this reason why a package cannot be imported."""
    return TORCHVISION if _NO_OPERATORS.search(why) else None


def add_shim(venv: Path, shim: str) -> None:
    """Put a shim into an environment. Raises OSError."""
    source = pkgutil.get_data("milabench.execute", f"{shim}_shim.py")
    assert source is not None
    for site in venv.glob("lib/python*/site-packages"):
        (site / f"milabench_{shim}_shim.py").write_bytes(source)
        (site / f"milabench_{shim}_shim.pth").write_text(f"import milabench_{shim}_shim\n")


@cache
def shims_of(venv: str) -> tuple[str, ...]:
    """Return the shims of an environment, as its manifest lists them. Empty where there is none."""
    shims = read_marker(Path(venv, COMPLETE)).get("shims")
    return tuple(map(str, shims)) if isinstance(shims, list) else ()
