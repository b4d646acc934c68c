"""Measures for a second."""

import time

import benchmate

for _ in benchmate.observed(range(100), units="items/s", batch_size=1):
    time.sleep(0.01)
print("done")
