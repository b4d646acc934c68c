"""A program of a part that does what its argument says."""

import subprocess
import sys
import time

from tests.gpu.outcome import claim, not_shown, number, skip

how = sys.argv[1]
if how == "met":
    number("a ratio", 1.0, "x", at_least=0.9, at_most=1.1, seen="1 of 1")
    number("a time", 9.0, "s", at_most=1, timed=True)
    not_shown("the rest")
elif how == "missed":
    number("a ratio", 2.0, "x", at_most=1.1)
elif how == "skipped":
    skip("nothing is here")
elif how == "crashes":
    claim("it begins", holds=True)
    raise ValueError("not today")
elif how == "hangs":
    claim("it begins", holds=True)
    child = subprocess.Popen(["sleep", "600"])
    print(f"child {child.pid}", flush=True)
    time.sleep(600)
