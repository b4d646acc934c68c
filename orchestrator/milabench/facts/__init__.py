"""The facts of a machine: its processors, memory and accelerators, as frozen values."""
