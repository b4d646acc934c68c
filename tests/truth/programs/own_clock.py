"""A clock of the program's own, which knows nothing of the instruments: one line for each step, written at the end."""

import atexit
import os
import pathlib
import time


class OwnClock:
    """Stamps in ns of `time.perf_counter`: the begin of the loop, then begin, end and items of each step.

    A stretch that the program takes for no part of its work (a validation) is a line without items.
    """

    def __init__(self, name=None):
        self.rows = []
        self.since = self.begun = time.perf_counter_ns()
        self.path = pathlib.Path(name or f"stamps.{os.environ.get('RANK', '0')}.txt").resolve()
        atexit.register(self.write)

    def begin(self):
        self.since = time.perf_counter_ns()

    def end(self, items):
        self.rows.append((self.since, time.perf_counter_ns(), items))

    def write(self):
        rows = (f"{'pause' if items is None else items} {since} {until}" for since, until, items in self.rows)
        self.path.write_text("\n".join([f"begin {self.begun}", *rows]))
