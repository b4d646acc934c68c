"""Carries plans out: processes, environments, files, nodes."""
