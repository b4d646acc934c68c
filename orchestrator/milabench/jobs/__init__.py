"""Runs whose shares are carried out by jobs of a batch scheduler: `run --submit`, and what follows, resumes and cancels them.

Builds on: following.
"""
