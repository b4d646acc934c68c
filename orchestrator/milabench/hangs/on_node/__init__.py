"""What runs on the nodes of a step, as part of their agents: standard library only, Python 3.8."""
