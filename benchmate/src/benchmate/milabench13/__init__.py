"""The modules of benchmate that programs and voirfiles of milabench 1.3 import, over our own clocks, windows and records.

They are imported as `benchmate.NAME`, because this folder is on the package's path, and among themselves too: by another name
each would be loaded a second time.
"""
