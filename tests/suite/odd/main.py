"""One small program for each way in which a benchmark can behave."""

import os
import signal
import subprocess
import sys
import time

import benchmate


def measured(steps=40, seconds=0.002, stop=None):
    """A loop that is observed."""
    for _ in benchmate.observed(range(steps), units="items/s", batch_size=2, stop=stop):
        time.sleep(seconds)


match sys.argv[1]:
    case "good":
        measured()
    case "long":
        measured(steps=10**6, seconds=0.01)
    case "beside":
        # The first is twice as fast as the second.
        measured(steps=10**6, seconds=0.005 * (1 + int(os.environ["MILABENCH_DEVICES_HELD"][-1])), stop=True)
    case "late":
        if os.environ["MILABENCH_DEVICES_HELD"].endswith("-1"):
            time.sleep(3600)
        measured(steps=10**6, stop=True)
    case "frozen":
        # Half of the way through its window it is stopped for as long as the window lasts.
        for number, _ in enumerate(benchmate.observed(range(10**6), units="items/s", batch_size=2, stop=True)):
            time.sleep(0.01)
            if number == 150:
                subprocess.Popen(["/bin/sh", "-c", f"sleep 3; kill -CONT {os.getpid()}"])
                os.kill(os.getpid(), signal.SIGSTOP)
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
