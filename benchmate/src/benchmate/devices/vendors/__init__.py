"""The differences of each vendor's devices: a file per vendor, a line for it in registry.py.

The agent, the control plane and the instruments use the same files: `milabench/devices` is a link to this folder, and the
agent takes it along to other machines. Hence: standard library only, Python 3.8, relative imports, nothing from outside.
"""
