"""Measures, or runs out of memory when the batch is larger than the limit; a negative limit is an error of another kind."""

import argparse
import time

import benchmate

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int)
parser.add_argument("--limit", type=int)
args = parser.parse_args()
if args.limit < 0:
    raise ValueError("a negative limit")
if args.batch_size > args.limit:
    raise MemoryError(f"a batch of {args.batch_size} does not fit")
for _ in benchmate.observed(range(30), units="items/s", batch_size=args.batch_size):
    time.sleep(0.001)
