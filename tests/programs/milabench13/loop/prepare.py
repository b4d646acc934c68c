#!/usr/bin/env python
import sys

print("prepared", *sys.argv[1:])
