"""Finds obstacles to a run, on this machine and on the nodes of a system: `milabench doctor` and `nodes check`."""
