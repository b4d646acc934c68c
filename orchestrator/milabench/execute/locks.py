"""Locks of run directories and base folders, with the name of their holder. Tells living orchestrators from dead ones.

A lock is flock's: it falls with the process that holds it, however that ends, and holds between the machines of a shared
file system (NFS turns it into a lock of the server, for which the file must be open for writing).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from milabench.devices.locks import try_lock, user_name
from milabench.devices.regular_file import open_descriptor, open_regular
from milabench.errors import EnvironmentFailed, MilabenchError, RecordError, Unreachable, os_reason
from milabench.events.wire import parse_object
from milabench.execute.agent.procfs import read_process, read_text
from milabench.execute.heartbeat import beating, beats_again, is_beating

BASE_LOCK = ".milabench.lock"
RUN_LOCK = "orchestrator.lock"
# A reader that asks whether the lock is held takes it for an instant.
TRIES, PAUSE_S = 20, 0.05
WAIT_S = 0.2
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Orchestrator:
    """A control plane process that executes, or executed, a run.

    `pid_start` (ticks since boot) and `boot` tell it from a later process with its pid. Every process that it started carries
    `marker`. `since` is in unix seconds. A `detached` orchestrator has left its terminal, and continues
    unobserved.
    """

    pid: int
    pid_start: int
    boot: str
    host: str
    user: str
    marker: str
    since: float
    detached: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the entry for the lock file and the journal."""
        return asdict(self)

    @property
    def is_local(self) -> bool:
        """Whether it ran on this host."""
        return self.host == socket.gethostname()

    @property
    def is_of_this_boot(self) -> bool:
        """Whether something that it started may still run: not after a restart of its machine."""
        return self.boot == this_boot()

    @property
    def is_alive(self) -> bool:
        """Whether it still runs. On another host only the lock can tell, so this is False."""
        process = read_process(self.pid) if self.is_local and self.is_of_this_boot else None
        return process is not None and process.start == self.pid_start

    def __str__(self) -> str:
        return (
            f"{self.user}@{self.host} (pid {self.pid}{', detached' if self.detached else ''}) since {_time(self.since)}"
        )


def this_orchestrator(marker: str, *, detached: bool = False) -> Orchestrator:
    """Return this process, about to execute a run whose processes carry `marker`."""
    process = read_process(os.getpid())
    return Orchestrator(
        pid=os.getpid(),
        pid_start=process.start if process else 0,
        boot=this_boot(),
        host=socket.gethostname(),
        user=user_name(),
        marker=marker,
        since=time.time(),
        detached=detached,
    )


def orchestrator_of(entry: Mapping[str, object]) -> Orchestrator | None:
    """Return the orchestrator that a journal entry or a lock file names. None when it names none."""
    kinds = {"pid": int, "pid_start": int, "boot": str, "host": str, "user": str, "marker": str, "since": float}
    try:
        fields = {name: kind(entry[name]) for name, kind in kinds.items()}
        return Orchestrator(**fields, detached=entry.get("detached") is True)
    except (KeyError, TypeError, ValueError):
        return None


@contextlib.contextmanager
def hold_run(path: Path, who: Orchestrator) -> Iterator[None]:
    """Hold a run directory for an orchestrator.

    Raises Unreachable, with the holder, when it is held, RecordError when the directory cannot be locked.
    """

    def take(fd: int) -> None:
        if not _lock_run(fd):
            raise Unreachable(
                f"{path}: this run is still active, run by {_orchestrator_in(fd) or 'an unknown process'}."
                " See `milabench status`, or end it with `milabench cancel`"
            )

    with _hold(_open_lock(path, RUN_LOCK), path, take, who.to_json(), RecordError):
        yield


@contextlib.contextmanager
def hold_share(path: Path, share: str, who: Orchestrator) -> Iterator[None]:
    """Hold a share of the run in a directory for the single process that carries it out, and beat meanwhile.

    On a file system without locks the heartbeat of another process refuses us. Raises Unreachable, with the holder,
    when it is held, RecordError when the directory cannot be written.
    """

    def take(fd: int) -> None:
        beat = path / share_beat(share)
        try:
            is_ours = _lock_run(fd)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            is_ours = not is_beating(beat)
        before = _orchestrator_in(fd)
        if is_ours and before is not None and not before.is_local and is_beating(beat):
            is_ours = not beats_again(beat)  # a lock may hold on one host only (Lustre's localflock)
        if not is_ours:
            raise Unreachable(
                f"{path}: share {share} is carried out already, by {_orchestrator_in(fd) or 'an unknown process'}."
                " See `milabench status`"
            )

    fd = _open_lock(path, share_lock(share))
    with _hold(fd, path, take, who.to_json(), RecordError), beating(path / share_beat(share)):
        yield


def share_lock(share: str) -> str:
    """Return the name of the lock file of a share."""
    return f"share.{share}.lock"


def share_beat(share: str) -> str:
    """Return the name of the file that the process of a share touches."""
    return f"share.{share}.beat"


def _open_lock(path: Path, name: str) -> int:
    try:
        # Only its owner executes a run; others may ask who does.
        return open_descriptor(path / name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        raise RecordError(f"{path}: cannot be written: {os_reason(error)}") from None


@contextlib.contextmanager
def hold_base(base: Path, purpose: str, *, say: Callable[[str], object]) -> Iterator[bool]:
    """Hold `base` for `purpose` (install, prepare), so that no two commands build the same thing at once.

    A holder is reported and waited for. Yields whether there was a holder. Raises EnvironmentFailed when the folder cannot be
    locked.
    """

    has_waited = False

    def take(fd: int) -> None:
        nonlocal has_waited
        while not try_lock(fd):  # not in the kernel: a signal that comes just before would be slept through
            if not has_waited:
                say(f"{base} is held by {_base_holder(fd)}. Waiting for it to end")
            has_waited = True
            time.sleep(WAIT_S)

    try:
        base.mkdir(parents=True, exist_ok=True)
        # Several users may share a base, as far as their umask permits, and each must be able to lock it.
        fd = open_descriptor(base / BASE_LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        raise EnvironmentFailed(f"{base}: cannot be written: {os_reason(error)}. Choose another --base") from None
    holder = {"purpose": purpose, "pid": os.getpid(), "host": socket.gethostname(), "user": user_name()}
    with _hold(fd, base / BASE_LOCK, take, {**holder, "since": time.time()}, EnvironmentFailed):
        yield has_waited


@contextlib.contextmanager
def hold_in_use(locks: Mapping[str, str]) -> Iterator[None]:
    """Hold the locks of installed items, by path, for their use: a held item is not made again.

    The values are names for people. Raises Unreachable for an item that is being made. Items without a lock were not made by us.
    """
    with contextlib.ExitStack() as held:
        for path, name in locks.items():
            try:
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                continue
            held.callback(os.close, fd)
            try:
                fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Unreachable(f"{name}: another process is building it. Try again when it has ended") from None
            except OSError:  # a file system without locks
                continue
        yield


def take_alone(descriptor: int, *, wait: bool = False) -> bool:
    """Lock an open file or folder. Return whether it is ours, which it is on a file system without locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        return not isinstance(error, BlockingIOError)
    return True


@contextlib.contextmanager
def hold_alone(lock: Path | None) -> Iterator[bool]:
    """Hold the lock of an item, if it has a lock. Yields whether it could be taken."""
    try:
        descriptor = None if lock is None else os.open(lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        descriptor = None
    except OSError:
        yield False
        return
    try:
        yield descriptor is None or take_alone(descriptor)
    finally:
        if descriptor is not None:
            os.close(descriptor)


def is_lock_free(lock: Path) -> bool:
    """Return whether nobody holds the lock of a thing. True where it has none."""
    with hold_alone(lock) as is_held:
        return is_held


@contextlib.contextmanager
def _hold(
    fd: int, path: Path, take: Callable[[int], None], holder: Mapping[str, object], failure: type[MilabenchError]
) -> Iterator[None]:
    """Hold a lock file that is open, taken by `take`, with the holder's name in it. Close it at the end."""
    try:
        take(fd)
        with contextlib.suppress(OSError):  # on a full disk the lock still holds, only the name is missing
            os.ftruncate(fd, 0)
            os.pwrite(fd, json.dumps(holder).encode() + b"\n", 0)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # the name in a free lock would mislead: a former holder may live on
                os.ftruncate(fd, 0)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        raise failure(
            f"{path}: this file system has no locks: {os_reason(error)}. Choose a --base on another file system"
        ) from None
    finally:
        os.close(fd)


def holder_of(path: Path) -> Orchestrator | None:
    """Return the orchestrator that executes the run in a directory now. None without an orchestrator."""
    return _holder_in(path / RUN_LOCK, None)


def share_holder(path: Path, share: str) -> Orchestrator | None:
    """Return the process that carries out a share of the run in a directory now. None without a holder.

    Some file systems keep locks for each host by itself (Lustre mounted with `localflock`), or have none: of a process on
    another host, whose lock looks free, the heartbeat decides.
    """
    return _holder_in(path / share_lock(share), path / share_beat(share))


def _holder_in(path: Path, beat: Path | None) -> Orchestrator | None:
    with contextlib.suppress(OSError), open_regular(path) as lock:
        holder = _orchestrator_in(lock.fileno())
        if holder is not None and holder.is_local:
            return holder if holder.is_alive else None
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            if beat is None or isinstance(error, BlockingIOError):
                return holder
        return holder if beat is not None and holder is not None and is_beating(beat) else None
    return None


def wait_for_release(path: Path) -> None:
    """Block until the run directory is no longer held. Nothing polls."""
    with contextlib.suppress(OSError), open_regular(path / RUN_LOCK) as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)


def _lock_run(fd: int) -> bool:
    for _ in range(TRIES):
        if try_lock(fd):
            return True
        # A reader lets go at once and a dead one's name may still be in the file: only a living holder ends our patience.
        holder = _orchestrator_in(fd)
        if holder is not None and (holder.is_alive or not holder.is_local):
            break
        time.sleep(PAUSE_S)
    return False


def _orchestrator_in(fd: int) -> Orchestrator | None:
    from milabench.events.stored_run import parse_entry

    try:
        return orchestrator_of(parse_entry(os.pread(fd, 4096, 0)))
    except (OSError, ValueError):
        return None


def _base_holder(fd: int) -> str:
    try:
        holder = parse_object(os.pread(fd, 4096, 0))
        return f"`{holder['purpose']}` of {holder['user']}@{holder['host']} (pid {holder['pid']}) since {_time(holder['since'])}"
    except (OSError, ValueError, KeyError, TypeError):
        return "an unknown process"


def _time(since: float) -> str:
    try:
        return datetime.fromtimestamp(since).strftime("%Y-%m-%d %H:%M:%S")
    except (OSError, OverflowError, TypeError, ValueError):
        return "an unknown time"


def this_boot() -> str:
    """Return the id of this start of the machine. Empty where the kernel has none."""
    return read_text("/proc/sys/kernel/random/boot_id").strip()
