"""Capsules, made and installed: a suite with all that it needs without a network.

Builds on: archives.
"""
