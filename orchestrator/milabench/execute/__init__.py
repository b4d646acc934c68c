"""Executes plans: processes, environments, files, nodes."""
