"""Capsules, made and installed: a suite with all that it needs without a network; bundle/capsule.py has their format."""
