"""The vocabulary between doing and telling: what happened in a run, as frozen values."""
