"""Events, turned into numbers. Pure."""
