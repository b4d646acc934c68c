"""Runs what the suite says under `ops`."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmate.ops.suite import main

if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parent))
