"""Runs in one zip file that tells when it was changed; and zip files from elsewhere, read with care."""
