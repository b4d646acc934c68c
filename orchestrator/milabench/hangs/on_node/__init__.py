"""The part that runs on the nodes of a step, in their agents: standard library only, Python 3.8."""
