"""An old name of a command of benchmate.ops."""

from __future__ import annotations

import sys

from benchmate.ops.nsys_analysis import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
