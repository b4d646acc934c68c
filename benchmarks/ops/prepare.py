"""Check that torch finds its device and that the operators are known; inputs are made by the program."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmate.ops.base import OpsError
from benchmate.ops.benchmark import resolved
from benchmate.ops.suite import configured
from benchmate.session import current


def main() -> int:
    try:
        config = configured(current().config.values, Path(__file__).resolve().parent)
        resolved(config.bench_config)
    except OpsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{len(config.bench_config)} operators on {config.run_options.device}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
