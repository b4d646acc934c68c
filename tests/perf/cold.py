"""What a cold call costs over a hot one: prints the median of a sum, by size of its input, in one thread.

    python tests/perf/cold.py [--device cpu]

hot: the same input again and again. turns: copies in turn that exceed the last cache level together, nothing else thrown out.
cold, as `--exec-mode cold` measures it: copies in turn, and the cache overwritten before each call. Needs torch.
"""

from __future__ import annotations

import argparse
import functools
import itertools

import torch

from benchmate.ops.device import torch_device
from benchmate.ops.sampling import rotate_inputs, sample_calls
from benchmate.ops.statistics import StopRule

RULE = StopRule(precision=0.01, seconds=0.2, longest_s=2.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    place = torch_device(parser.parse_args().device)
    torch.set_num_threads(1)  # threads that wake up would be in the time
    print(f"last cache level: {place.cache_bytes / 2**20:.0f} MiB")
    for kib in (16, 64, 256, 1024, 4096):
        values = torch.randn(kib * 256, device=place.device)
        rotation = rotate_inputs(
            lambda args, kwargs: functools.partial(torch.sum, *args, **kwargs), [values], {}, place
        )
        if rotation is None:
            continue
        turns = itertools.cycle(rotation.calls)

        def turn() -> object:
            return next(turns)()  # noqa: B023 - not called after this size

        found = {
            "hot": sample_calls("end-to-end", rotation.calls[0], place, RULE),
            "turns": sample_calls("end-to-end", turn, place, RULE),
            "cold": sample_calls("cold", rotation.calls[0], place, RULE, in_turn=rotation.calls),
        }
        told = ", ".join(f"{name} {one.estimate.median * 1e6:8.1f} us" for name, one in found.items())
        print(f"{kib:>6} KiB, {len(rotation.calls):>5} copies: {told}")


if __name__ == "__main__":
    main()
