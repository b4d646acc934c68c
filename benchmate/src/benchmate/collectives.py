"""When this process entered the collective operations of its last steps, out of torch's own flight recorder.

The recorder is on by default and holds 2,000 operations. Nothing runs in the measured loop.
"""

from __future__ import annotations

import json
import sys
from bisect import bisect_left
from collections.abc import Sequence

_RECORDERS = {"_dump_fr_trace_json": "time_created_ns", "_dump_nccl_trace_json": "duration_ms"}
"""Of torch's functions, what tells who was last. NCCL's host enters long before its device: there it is how long the device
was in the operation, which torch knows with TORCH_NCCL_ENABLE_TIMING=1."""


def last_collectives(ends_ns: Sequence[int], unix_minus_mono_ns: int) -> list[dict[str, object]]:
    """Return the operations of each process group in the steps that end at `ends_ns` (monotonic), column by column.

    Lists are empty where torch knows nothing. `number` counts the operations of the group, `step` is an index of `ends_ns`;
    `entered_us` is since the first of these ends, which is `t0_ns` in unix time, and `lasted_us` is on the device.
    """
    groups: dict[str, dict[str, list[int]]] = {}
    module = getattr(getattr(sys.modules.get("torch"), "_C", None), "_distributed_c10d", None)
    for name, key in _RECORDERS.items():
        dump = getattr(module, name, None)
        for entry in () if dump is None else json.loads(dump(True, False)).get("entries") or ():
            since_ns = entry["time_created_ns"] - unix_minus_mono_ns
            step = bisect_left(ends_ns, since_ns)
            if key not in entry or entry["is_p2p"] or not 0 < step < len(ends_ns):
                continue
            is_device = key == "duration_ms"
            columns = groups.setdefault(
                entry["process_group"][0],
                {"number": [], "step": [], "lasted_us" if is_device else "entered_us": []},
            )
            values = (entry["collective_seq_id"], step)
            time_us = round(entry[key] * 1000) if is_device else (since_ns - ends_ns[0]) // 1000
            for column, value in zip(columns.values(), (*values, time_us), strict=True):
                column.append(value)
    mean_us = (ends_ns[-1] - ends_ns[0]) // max(1, len(ends_ns) - 1) // 1000 if ends_ns else 0
    return [
        {"group": group, "t0_ns": ends_ns[0] + unix_minus_mono_ns, "step_us": mean_us, **columns}
        for group, columns in groups.items()
    ]
