"""The declarations of a benchmark folder in its benchfile.py."""
