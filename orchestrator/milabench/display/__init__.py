"""Events, shown on a terminal while they happen."""
