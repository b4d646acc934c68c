"""Measures every cell of the experiment in fresh processes; `--help` tells the arguments."""

from __future__ import annotations

import sys

from benchmate.audit.__main__ import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
