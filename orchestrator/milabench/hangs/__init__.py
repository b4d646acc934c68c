"""Which rank the others wait for: the one that hangs, seen before a silent step is ended, and the one that is slow."""
