#!/usr/bin/env python

from benchmate.datagen import generate_fakeimagenet

if __name__ == "__main__":
    generate_fakeimagenet()
