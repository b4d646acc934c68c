"""The collectives of a job as recorded by NCCL and torch: flight recorders and the RAS of NCCL, where they are on."""

from __future__ import annotations

import io
import os
import pickle
import socket
import time

from ...execute.agent.procfs import environment_of, read_bytes

TYPE_CHECKING = False  # see execute/agent/unpack.py
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

DUMP_S = 0.3  # for a process to write what its flight recorder holds
MOST_DUMP_BYTES = 1 << 25
RAS_S = 1.0
RAS_BYTES = 16_000
RAS_ADDRESS = "localhost:28028"
_PIPES = ("TORCH_FR_DEBUG_INFO_PIPE_FILE", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE")
_FILES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_DEFAULT_FILE = "/tmp/nccl_trace_rank_"


class _Plain(pickle.Unpickler):
    """Reads plain values. A dump that wants anything else to be imported is refused."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError("%s.%s in a flight recorder's dump" % (module, name))


def last_collectives(looks: list[dict[str, Any]], by: float) -> dict[int, dict[str, Any]]:
    """Ask the flight recorders that are on for their dumps; return the last collective of each process that wrote one by then."""
    asked = {}
    began = time.time()
    for look in looks:
        variables = _variables(look["pid"]) if look["rank"] is not None else {}
        pipe = next((variables[name] for name in _PIPES if name in variables), None)
        file = next((variables[name] for name in _FILES if name in variables), _DEFAULT_FILE)
        if pipe is not None and _write("%s%d.pipe" % (pipe, look["rank"])):
            asked[look["pid"]] = "%s%d" % (file, look["rank"])
    until = min(by, time.monotonic() + DUMP_S)
    found: dict[int, dict[str, Any]] = {}
    while len(found) < len(asked) and time.monotonic() < until:
        time.sleep(0.02)
        for pid, path in asked.items():
            last = read_dump(read_bytes(path)[:MOST_DUMP_BYTES])
            if last is not None and os.stat(path).st_mtime >= began - 1:
                found[pid] = last
    return found


def read_dump(dump: bytes) -> dict[str, Any] | None:
    """Return the last collective in a dump of a flight recorder: its name, number and state. None where there is none."""
    try:
        entries = _Plain(io.BytesIO(dump)).load()["entries"]
        last = max(entries, key=lambda entry: int(entry["record_id"]))
        return {
            "name": str(last["profiling_name"])[:200],
            "number": int(last["collective_seq_id"]),
            "state": str(last["state"])[:50],
        }
    except Exception:  # of a file that is half written, or of any shape, nothing is known
        return None


def ras_status(pids: list[int]) -> str:
    """Return the report of NCCL's RAS on the job. Empty where none of the processes has NCCL, or it does not answer."""
    with_nccl = [pid for pid in pids if b"libnccl" in read_bytes("/proc/%d/maps" % pid)]
    if not with_nccl:
        return ""
    host, _, port = _variables(with_nccl[0]).get("NCCL_RAS_ADDR", RAS_ADDRESS).rpartition(":")
    try:
        with socket.create_connection((host, int(port)), RAS_S) as connection:
            connection.sendall(b"verbose status\n")
            text = b""
            while len(text) < RAS_BYTES:
                piece = connection.recv(RAS_BYTES)
                if not piece:
                    break
                text += piece
    except (OSError, ValueError):
        return ""
    return text[:RAS_BYTES].decode("utf-8", "replace")


def _variables(pid: int) -> Mapping[str, str]:
    return dict(os.fsdecode(entry).partition("=")[::2] for entry in environment_of(pid))


def _write(pipe: str) -> bool:
    """Write to the pipe on which a process waits. Return whether any process does."""
    try:
        descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.write(descriptor, b"1") == 1
    except OSError:
        return False
    finally:
        os.close(descriptor)
