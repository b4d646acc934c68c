"""The items of a base, the unused ones among them, and leftover processes of crashed runs: `milabench gc`.

Builds on: archives, capsule.
"""
