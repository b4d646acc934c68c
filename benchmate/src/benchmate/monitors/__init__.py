"""Watching a group of steps from outside, in a process of its own: the load must not share its interpreter."""
