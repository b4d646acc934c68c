"""benchmarks/machine's links.py in which one link is slow: `slow_link.py FIRST-SECOND SECONDS ARGUMENTS...`, under torchrun."""

import os, sys, time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "machine"))
PAIR, SECONDS = [int(rank) for rank in sys.argv[1].split("-")], float(sys.argv[2])
del sys.argv[1:3]
import links

transfer = links.transfer


def slow_transfer(sent, got, other):
    call = transfer(sent, got, other)
    if sorted(PAIR) != sorted((int(os.environ["RANK"]), other)):
        return call

    def slowly():
        time.sleep(SECONDS)
        call()

    return slowly


links.transfer = slow_transfer
links.main()
