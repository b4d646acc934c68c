"""What lies in a base and what of it nothing refers to, and the processes that crashed runs have left: `milabench gc`.

Builds on: archives, capsule.
"""
