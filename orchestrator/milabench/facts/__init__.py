"""What a machine is: its processors, memory and accelerators, as frozen values."""
