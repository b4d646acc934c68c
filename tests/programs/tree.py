"""Starts five kinds of descendants that outlive a careless supervisor; prints their pids as JSON, then waits or exits (argv[1])."""

import json, os, signal, subprocess, sys, time

SLEEP = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
DEAF = [
    sys.executable,
    "-S",
    "-c",
    "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)",
]
DEAF_TO_HUP = lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)

pids = {"child": subprocess.Popen(SLEEP).pid}
pids["nohup"] = subprocess.Popen(SLEEP, preexec_fn=DEAF_TO_HUP).pid
pids["setsid"] = subprocess.Popen(SLEEP, start_new_session=True).pid
deaf = subprocess.Popen(DEAF, stdout=subprocess.PIPE)
deaf.stdout.readline()
pids["deaf"] = deaf.pid

read, write = os.pipe()
if os.fork() == 0:  # a daemon: forked twice, in a session of its own, orphaned; without our marker when asked to
    os.setsid()
    if os.fork() == 0:
        os.write(write, str(os.getpid()).encode())
        os.close(write)
        if "bare" in sys.argv:
            for fd in (0, 1, 2):
                os.close(fd)
            os.execve(SLEEP[0], SLEEP, {})
        os.execv(SLEEP[0], SLEEP)
    os._exit(0)
os.close(write)
pids["daemon"] = int(os.read(read, 100))
os.wait()
pids["leader"] = os.getpid()

print(json.dumps(pids), flush=True)
if sys.argv[1] == "wait":
    time.sleep(600)
