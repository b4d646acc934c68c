"""The common parts of everything that an install builds: options, results, child processes that end together."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from milabench.devices.locks import try_lock
from milabench.devices.regular_file import open_descriptor
from milabench.errors import EnvironmentFailed, os_reason
from milabench.execute.activities import Activities
from milabench.execute.package_indexes import pip_settings, url_responds, uv_env
from milabench.plan.context import Dirs

WAIT_S = 0.2
# Which git sets for its hooks (`git rev-parse --local-env-vars`), without those that hold the user's settings.
OF_A_REPOSITORY = {
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_INDEX_VERSION", "GIT_OBJECT_DIRECTORY"),
    *("GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_CONFIG", "GIT_GRAFT_FILE", "GIT_SHALLOW_FILE", "GIT_PREFIX"),
    *(
        "GIT_IMPLICIT_WORK_TREE",
        "GIT_NAMESPACE",
        "GIT_NO_REPLACE_OBJECTS",
        "GIT_REPLACE_REF_BASE",
        "GIT_QUARANTINE_PATH",
    ),
    *("GIT_INTERNAL_SUPER_PREFIX",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallOptions:
    """How to install.

    `benchmate` is the project folder of the instruments. `environ` is the user's environment. `force` rebuilds
    complete environments. `update` rebuilds those that are not pinned, with the newest packages. `ignore_space` begins also
    where the disk seems too small. `pip` are pip's settings; with None, pip is asked once when something is to be built. `uv` is
    the program; with None, pip is used. `is_sealed`: only sources that `pip` and `environ` name are used, no network and
    no indexes of the suite. `capsule` is the folder of the capsule that everything is from. `devices` are the kinds of
    accelerators that the machine has, as far as anybody knows.
    """

    # No Path: these options are pickled for other machines, and Python 3.13 moved its classes to another module.
    benchmate: str
    environ: Mapping[str, str]
    jobs: int = 4
    force: bool = False
    update: bool = False
    ignore_space: bool = False
    is_sealed: bool = False
    capsule: str = ""
    devices: tuple[str, ...] = ()
    pip: Mapping[str, str] | None = None
    uv: str | None = field(default_factory=lambda: find_uv(os.environ))


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """The result for an environment or a program, which can be used unless `why` says in a line why not.

    `log` is the file with all output of a failed installation. `notes` are things that a person should know, a line each.
    """

    name: str
    is_new: bool = False
    why: str = ""
    log: Path | None = None
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}: {self.why}" + (f" (all output: {self.log})" if self.log else "")


def raise_failures(results: Iterable[Installed]) -> None:
    """Raise EnvironmentFailed, with a line for each that failed, if any did."""
    if failures := [str(result) for result in results if result.why]:
        raise EnvironmentFailed("\nerror: ".join(failures))


def find_uv(environ: Mapping[str, str]) -> str | None:
    """Return the path of uv: our own, else the user's, else None."""
    try:
        from uv import find_uv_bin

        return str(find_uv_bin())
    except (ImportError, FileNotFoundError):
        return shutil.which("uv", path=environ.get("PATH"))


def make_folder(folder: Path) -> Path:
    """Create the folder with its parents. Raises EnvironmentFailed when it cannot be created or written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EnvironmentFailed(
            f"{folder}: cannot be created: {os_reason(error)}. Choose another folder with --base"
        ) from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise EnvironmentFailed(f"{folder}: is not writable. Choose another folder with --base")
    return folder


@contextlib.contextmanager
def hold_lock(
    lock: Path, waits: Callable[[], bool] = lambda: True, on_wait: Callable[[], object] = lambda: None
) -> Iterator[int]:
    """Hold the file's lock, waiting for its holder. Yields the descriptor, with which a child keeps it held.

    `on_wait` is called when there is a holder. `waits` is asked now and then whether to go on waiting. Raises EnvironmentFailed
    when it says no.
    """
    descriptor = open_descriptor(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
    try:
        if not try_lock(descriptor):
            on_wait()
            while not try_lock(descriptor):  # not in the kernel: a thread in a blocking lock cannot be interrupted
                if not waits():
                    raise EnvironmentFailed("another process is building it")
                time.sleep(WAIT_S)
        yield descriptor
    finally:
        os.close(descriptor)


class InstallSession:
    """An install: its running child processes, and facts shared by all environments."""

    def __init__(self, dirs: Dirs, options: InstallOptions, activities: Activities) -> None:
        self.activities = activities
        self.dirs = dirs
        self.options = options
        self.store = make_folder(Path(dirs.venv, ".store"))
        if os.statvfs(self.store).f_flag & os.ST_NOEXEC:
            what = "its file system is mounted noexec, and compiled packages and scripts could not be loaded from it"
            raise EnvironmentFailed(f"{self.store}: {what}. Choose another folder with --base")
        # Asked once, before there are threads: it takes half a second.
        self.pip_settings = options.pip if options.pip is not None else pip_settings(options.environ)
        self.packages: dict[str, int] = {}  # how many an environment gets, by its group, where that is known
        self.fetching = threading.Lock()  # several environments may want the same interpreter
        self._lock = threading.Lock()
        self._once = threading.Lock()
        self._children: set[subprocess.Popen[str]] = set()
        self.is_stopped = False
        self._reachable: dict[str, bool] = {}

    def stop(self) -> None:
        """End every child, and start no more."""
        with self._lock:
            self.is_stopped = True
            for child in self._children:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)

    def is_reachable(self, index: str) -> bool:
        """Return whether an index answers, asked once."""
        if self.options.is_sealed:
            return False
        with self._once:
            if index not in self._reachable:
                environ = {**self.options.environ, **uv_env(self.pip_settings, self.options.environ)}
                self._reachable[index] = url_responds(index, environ)
                if not self._reachable[index]:
                    self.activities.report(f"note: {index} cannot be reached. Using the configured indexes")
            return self._reachable[index]

    def start(self, argv: Sequence[str], env: Mapping[str, str], lock: int) -> subprocess.Popen[str]:
        """Start a child that `stop` ends. It inherits the lock: a child that outlives us keeps others out of its folder."""
        with self._lock:
            if self.is_stopped:
                raise EnvironmentFailed("interrupted")
            child = subprocess.Popen(
                argv,
                env=dict(env),
                cwd=self.store,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                process_group=0,  # `stop` kills what it started too, and Ctrl-C reaches only us
                pass_fds=(lock,),
            )
            self._children.add(child)
            return child

    def forget(self, child: subprocess.Popen[str]) -> None:
        """Drop a child that has ended."""
        with self._lock:
            self._children.discard(child)
