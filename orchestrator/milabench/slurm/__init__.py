"""Slurm as a batch scheduler: its commands and scripts, its jobs, the nodes that a run holds, and commands on these by srun."""
