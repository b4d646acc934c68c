"""The contents of a base, and the parts that nothing refers to: `milabench gc`.

Builds on: archives, capsule.
"""
