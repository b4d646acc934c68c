"""Runs whose shares are carried out by jobs of a batch scheduler: `run --submit`, and following, resuming and cancelling them.

Builds on: following.
"""
