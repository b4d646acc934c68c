"""Accelerators as the instruments see them: a common protocol, with a vendor's library or tool behind each."""
