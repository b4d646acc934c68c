"""`python -m benchmate.audit`."""

from __future__ import annotations

import sys

from benchmate.audit.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
