"""What a benchmark folder declares about itself in its benchfile.py."""
