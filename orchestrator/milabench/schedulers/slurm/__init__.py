"""Slurm as a scheduler: its commands, its states, its batch scripts."""
