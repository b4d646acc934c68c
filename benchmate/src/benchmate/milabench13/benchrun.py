"""`benchrun`: torchrun whose workers inherit the pipe for voir's data lines."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any


@contextlib.contextmanager
def forward_voir_file() -> Iterator[None]:
    """Let the workers that torchrun starts inherit the descriptor DATA_FD. Do nothing where there is none.

    Programs that use benchmate need it not: their records go to the agent's socket.
    """
    try:
        descriptor = int(os.environ.get("DATA_FD", ""))
        os.fstat(descriptor)
    except (ValueError, OSError):
        yield
        return
    from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler

    original = SubprocessHandler._popen

    def popen(self: Any, args: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            args,
            env=env,
            stdout=self._stdout,
            stderr=self._stderr,
            start_new_session=True,  # torch ends the group of each worker
            pass_fds=(descriptor,),
        )

    SubprocessHandler._popen = popen
    try:
        yield
    finally:
        SubprocessHandler._popen = original


def main(args: Sequence[str] | None = None) -> None:
    """Run torchrun with these arguments."""
    from torch.distributed import run

    with forward_voir_file():
        run.run(run.parse_args(sys.argv[1:] if args is None else args))


if __name__ == "__main__":
    main()
