"""The names that a benchfile of milabench 1.3 imports: its foreign code describes itself with them, and starts nothing.

Standard library only, Python 3.10. Found first on the path of compat13/child.py, and never imported by the control plane.
"""
