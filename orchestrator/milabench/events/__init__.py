"""The events of a run as frozen values: written by execution, read by analysis and display."""
