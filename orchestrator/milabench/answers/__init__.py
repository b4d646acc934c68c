"""Checks whether the devices of a run computed the same: the losses of their first steps, computed twice."""
