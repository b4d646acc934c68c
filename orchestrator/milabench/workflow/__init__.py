"""The use cases that the command line, programs and notebooks share."""
