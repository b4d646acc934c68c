"""Slurm's commands: found on PATH, bounded in time, without the variables by which users change their answers."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from milabench.errors import Unreachable, os_reason
from milabench.shown import cut_text, visible_line

SILENT_S = 5.0  # after which a person wants to know what is waited for
MOST_BYTES = 16 << 20  # of an answer
MOST_ERROR_BYTES = 1 << 20  # of what is said on standard error
MOST_SHOWN = 400  # characters of Slurm's own reason
# Where Slurm is and who we are. All others would filter, reorder or reformat what is answered, ask all clusters, or, inside
# of an allocation, pass its limits on to the jobs that are submitted from it.
_KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT")
_DROPPED = ("SLURM_", "SQUEUE_", "SACCT_", "SCONTROL_", "SCANCEL_")
# A site's or a user's defaults for sbatch stay, as for every job of theirs: what we set ourselves we also say on its command
# line, which wins. These are about what we do not set.
_DROPPED_OF_SBATCH = ("SBATCH_ARRAY_INX", "SBATCH_CLUSTERS", "SBATCH_ERROR", "SBATCH_INPUT", "SBATCH_WAIT")

# The commands are installed, and know no cluster.
_NO_CLUSTER = re.compile("establish a configuration source|unable to process configuration file", re.I)


class NoAnswer(Unreachable):
    """A command did not end in time: its work may have been done, or may still be done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer of a command."""

    code: int
    output: str
    errors: str

    @property
    def reason(self) -> str:
        """Slurm's own words for the error, on a line."""
        lines = [line.partition("error: ")[2] or line for line in self.errors.splitlines()]
        kept = [line.strip() for line in lines if line.strip() and not line.startswith("Try ")]
        # The last lines: the first may be of a site's plugin that says so each time.
        return cut_text(visible_line("; ".join(dict.fromkeys(kept[-3:]))), MOST_SHOWN) or f"exit code {self.code}"


class Commands:
    """Runs Slurm's commands with these variables, each for at most `timeout_s` seconds. `say` gets a line for a slow command."""

    def __init__(
        self, environ: Mapping[str, str], timeout_s: float, say: Callable[[str], object] = lambda _: None
    ) -> None:
        self.timeout_s = timeout_s
        self._say = say
        self._environ = {
            name: value
            for name, value in environ.items()
            if name in _KEPT or (not name.startswith(_DROPPED) and name not in _DROPPED_OF_SBATCH)
        }

    def ask(self, name: str, *words: str, timeout_s: float | None = None) -> Answer:
        """Run a command. Raises Unreachable when it is not there or knows no cluster, NoAnswer when it does not answer in
        time, Unreachable when it says too much. It is then ended, with all that it started.
        """
        path = shutil.which(name, path=self._environ.get("PATH"))
        if path is None:
            raise Unreachable(
                f"no {name} on PATH: this is no login node of a Slurm cluster, or its module is not loaded"
            )
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        try:
            process = subprocess.Popen(
                [path, *words],
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise Unreachable(f"{name}: {os_reason(error)}") from None
        # A thread that waits for an answer does not hold up our end, after which nobody would end the command.
        end = partial(_kill, process)
        atexit.register(end)
        try:
            output, errors = self._answer(process, name, limit_s)
        except subprocess.TimeoutExpired:
            end()
            raise NoAnswer(f"{name} did not answer within {limit_s:g} s") from None
        except BaseException:
            end()
            raise
        finally:
            atexit.unregister(end)
        answer = Answer(code=process.returncode, output=output, errors=errors)
        if answer.code and _NO_CLUSTER.search(errors):
            raise Unreachable(
                f"{name}: this machine belongs to no Slurm cluster, or SLURM_CONF is wrong: {answer.reason}"
            )
        return answer

    def _answer(self, process: subprocess.Popen[bytes], name: str, limit_s: float) -> tuple[str, str]:
        """Return the output of a command. Raises subprocess.TimeoutExpired, and Unreachable for too much of it."""
        assert process.stdout is not None
        assert process.stderr is not None
        begun_s, is_late = time.monotonic(), False
        written = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
        output, errors = written.values()
        with process.stdout, process.stderr, selectors.DefaultSelector() as pipes:
            for pipe in written:
                pipes.register(pipe, selectors.EVENT_READ)
            while pipes.get_map():
                left_s = begun_s + limit_s - time.monotonic()
                if left_s <= 0:
                    raise subprocess.TimeoutExpired(name, limit_s)
                if not is_late and left_s <= limit_s - SILENT_S:
                    is_late = True
                    reason = f": {Answer(code=1, output='', errors=_decoded(errors)).reason}" if errors.strip() else ""
                    self._say(f"slurm: no answer of {name} yet, waiting for it for up to {left_s:.0f} s more{reason}")
                for key, _ in pipes.select(left_s if is_late else min(left_s, SILENT_S)):
                    piece = os.read(key.fd, 1 << 16)
                    written[key.fd] += piece
                    if not piece:
                        pipes.unregister(key.fd)
                    most = MOST_BYTES if written[key.fd] is output else MOST_ERROR_BYTES
                    if len(written[key.fd]) > most:
                        raise Unreachable(f"{name}: its answer has more than {most >> 20} MiB")
        process.wait(max(0.0, begun_s + limit_s - time.monotonic()))
        return _decoded(output), _decoded(errors)


def _decoded(written: bytearray) -> str:
    return written.decode(errors="backslashreplace").replace("\r\n", "\n")


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a command and everything that it started: any of those may keep its output open."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    with contextlib.suppress(subprocess.TimeoutExpired):  # one that waits for a dead file server cannot be ended
        process.wait(1.0)
