"""Found by every Python that `trace record` starts: begins the recording, after the usual `sitecustomize` of that Python."""

import importlib
import sys
from pathlib import Path

_own = str(Path(__file__).resolve().parent)
sys.path[:] = [folder for folder in sys.path if str(Path(folder or ".").resolve()) != _own]
_module = sys.modules.pop("sitecustomize", None)
try:
    importlib.import_module("sitecustomize")
except ModuleNotFoundError as error:
    if error.name != "sitecustomize":
        raise
finally:
    if _module is not None:
        sys.modules.setdefault("sitecustomize", _module)  # whoever imports it wants to find it
try:
    from benchmate.ops.traces.record import start_from_environment
except ImportError as error:
    print(f"warning: {sys.executable}: nothing is recorded: {error}", file=sys.stderr)
else:
    start_from_environment()
