"""What watches a group of steps from outside: a process of its own, so that the load does not share its interpreter."""
