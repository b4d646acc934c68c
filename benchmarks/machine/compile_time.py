"""How long torch.compile takes: the first call of blocks of a transformer, or of a perceptron.

Cold and warm are fresh processes. Cold has an empty cache of compiled code, of its own; warm has the cache that the cold one
left. Neither counts the start of Python. The compiled module must give what the plain one gives.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from command import wrong

import benchmate
from benchmate.session import current

CHILD = Path(__file__).with_name("compile_once.py")
TOLERANCE = 1e-3


def main() -> None:
    parser = argparse.ArgumentParser(
        description=f"{__doc__}\n\nFurther arguments are those of {CHILD.name}.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--repeats", type=int, default=1, help="of cold and warm, in turn")
    args, of_child = parser.parse_known_args()
    for _ in range(args.repeats):
        cache = Path(tempfile.mkdtemp(prefix="compile_time."))
        try:
            for case in ("cold", "warm"):
                seconds = in_fresh_process(case, cache, of_child)
                benchmate.metric("compile_time", seconds, "s", "lower", case=case, main=case == "cold", clock="host")
                print(f"{case}: {seconds:.2f} s", flush=True)
        finally:
            shutil.rmtree(cache, ignore_errors=True)
    current().finish()


def in_fresh_process(case: str, cache: Path, arguments: Sequence[str]) -> float:
    """The seconds of the first call in a process that keeps compiled code in `cache` alone."""
    env = {name: value for name, value in os.environ.items() if name not in ("MILABENCH_SINK", "DATA_FD")}
    env |= {"TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"), "TRITON_CACHE_DIR": str(cache / "triton")}
    done = subprocess.run(
        [sys.executable, str(CHILD), *arguments], env=env, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"error: compile_time: {case}: the process that compiles ended with {done.returncode}")
    result = json.loads(done.stdout.splitlines()[-1])
    if not result["error"] <= TOLERANCE:
        wrong(f"compile_time: {case}: the compiled block differs from the plain one by {result['error']:.1e}")
    return float(result["seconds"])


if __name__ == "__main__":
    main()
