"""Results of many runs in a store, their trend, and results from and for other programs.

Builds on: archives.
"""

STORE = "history.sqlite"
"""The results store in a base."""
