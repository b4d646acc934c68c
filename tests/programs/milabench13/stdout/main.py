#!/usr/bin/env python
print("trained")
