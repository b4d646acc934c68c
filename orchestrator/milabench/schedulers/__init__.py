"""Batch schedulers: what each has to be; each is a feature."""
