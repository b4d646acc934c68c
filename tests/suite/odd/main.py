"""One small program for each way in which a benchmark can behave."""

import os
import subprocess
import sys
import time

import benchmate


def measured(steps=40, seconds=0.002):
    """A loop that is observed."""
    for _ in benchmate.observed(range(steps), units="items/s", batch_size=2):
        time.sleep(seconds)


match sys.argv[1]:
    case "good":
        measured()
    case "long":
        measured(steps=10**6, seconds=0.01)
    case "crash":
        measured()
        raise RuntimeError("the model fell over")
    case "hang":
        while True:
            time.sleep(3600)
    case "nothing":
        pass
    case "binary":
        os.write(1, bytes(range(256)) * 4)
        measured()
    case "outlived":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True)
        measured()
    case "prepare-fails":
        measured()
