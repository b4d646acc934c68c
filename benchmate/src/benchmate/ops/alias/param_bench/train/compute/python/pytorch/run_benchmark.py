"""An old name of a command of benchmate.ops."""

from __future__ import annotations

import sys

from benchmate.ops.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
