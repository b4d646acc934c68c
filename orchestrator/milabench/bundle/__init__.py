"""Runs in one zip file that shows whether it was modified; and zip files from elsewhere, read with care."""
