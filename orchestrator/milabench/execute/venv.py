"""Virtual environments: built at their final path, marked complete last, linked atomically."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from milabench.errors import EnvironmentFailed
from milabench.execute.installer import InstallCommand, Installer, Pip, Uv, explain_failure, pulls_cuda
from milabench.execute.inventory import COMPLETE, is_complete, is_linked, store_folder, venv_link
from milabench.execute.package_indexes import mask, pip_env, pip_settings, uv_env, uv_options
from milabench.execute.thread_map import thread_map
from milabench.plan.dirs import Dirs
from milabench.plan.venvs import VenvSpec

PROBE_S = 3.0
WAIT_S = 0.2
# They would change what is installed, or where; what runs in an environment must not depend on who built it.
_DROPPED = (
    "VIRTUAL_ENV",
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONDONTWRITEBYTECODE",
    "UV_PROJECT_ENVIRONMENT",
    "PIP_TARGET",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallProgress:
    """What is happening to one environment or source; `detail` is one line, without credentials."""

    subject: str
    stage: str
    detail: str = ""


Report = Callable[[InstallProgress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallOptions:
    """How to install.

    `benchmate` is the project folder of the instruments; `environ` the user's environment. `force` rebuilds
    complete environments; `update` rebuilds those that are not pinned, with the newest packages. `pip` are pip's settings;
    None asks pip, once, when something is to be built. `uv` is the program; None uses pip.
    """

    benchmate: Path
    environ: Mapping[str, str]
    jobs: int = 4
    force: bool = False
    update: bool = False
    pip: Mapping[str, str] | None = None
    uv: str | None = field(default_factory=lambda: find_uv(os.environ))


@dataclass(frozen=True, slots=True, kw_only=True)
class VenvReady:
    """The environment can be used. `notes` are things that a person should know, one line each."""

    group: str
    path: Path
    is_new: bool
    seconds: float = 0.0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VenvBroken:
    """The environment could not be built: the reason in one line, and the file with all the output."""

    group: str
    why: str
    log: Path | None = None

    def __str__(self) -> str:
        return f"{self.group}: {self.why}" + (f" (all output: {self.log})" if self.log else "")


VenvOutcome = VenvReady | VenvBroken


def find_uv(environ: Mapping[str, str]) -> str | None:
    """Return the path of uv: the one installed with us, else the user's, else None."""
    try:
        from uv import find_uv_bin

        return str(find_uv_bin())
    except (ImportError, FileNotFoundError):
        return shutil.which("uv", path=environ.get("PATH"))


def benchmate_requirements(project: Path) -> tuple[str, ...]:
    """Return the dependencies of the benchmate distribution, from its pyproject.toml."""
    return tuple(tomllib.loads((project / "pyproject.toml").read_text())["project"].get("dependencies", ()))


def install_venvs(
    specs: Sequence[VenvSpec], dirs: Dirs, options: InstallOptions, report: Report
) -> tuple[VenvOutcome, ...]:
    """Make every environment ready, several at a time; one that fails does not keep the others from being built.

    What is complete already is left alone, at the cost of reading one file. `report` is called from one thread at a
    time. Raises EnvironmentFailed when the base folder cannot be written. On KeyboardInterrupt everything that was
    started is ended first.
    """
    if not any(_must_build(dirs, spec, options) or not is_linked(dirs, spec) for spec in specs):
        return tuple(VenvReady(group=spec.group, path=store_folder(dirs, spec), is_new=False) for spec in specs)
    store = make_folder(Path(dirs.venv, ".store"))
    work = _Work(dirs=dirs, store=store, options=options, report=_one_at_a_time(report))
    return thread_map(work.make_ready, specs, jobs=options.jobs, stop=work.stop)


def make_folder(folder: Path) -> Path:
    """Create the folder with its parents. Raises EnvironmentFailed when it cannot be created or written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EnvironmentFailed(
            f"{folder}: cannot be created: {(error.strerror or str(error)).lower()}; choose another folder with --base"
        ) from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise EnvironmentFailed(f"{folder}: is not writable; choose another folder with --base")
    return folder


@contextlib.contextmanager
def hold_lock(lock: Path, waits: Callable[[], bool] = lambda: True) -> Iterator[int]:
    """Hold the file's lock, waiting for its holder; yields the descriptor, with which a child keeps it held.

    `waits` is asked now and then whether to go on waiting. Raises EnvironmentFailed when it says no.
    """
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        _take(descriptor, waits)
        yield descriptor
    finally:
        os.close(descriptor)


def _take(descriptor: int, waits: Callable[[], bool]) -> None:
    """Lock the file, asking now and then whether to go on waiting: a thread in a blocking lock cannot be interrupted."""
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if not waits():
                raise EnvironmentFailed("another process is building it") from None
            time.sleep(WAIT_S)


class _BuildFailedError(Exception):
    """Building one environment came to an end; the text is one line for a person."""


class _Work:
    """One install: its running child processes, and facts shared by all environments."""

    def __init__(self, *, dirs: Dirs, store: Path, options: InstallOptions, report: Report) -> None:
        self.dirs = dirs
        self.store = store
        self.options = options
        self.report = report
        self._lock = threading.Lock()
        self._once = threading.Lock()
        self._fetching = threading.Lock()
        self._children: set[subprocess.Popen[str]] = set()
        self._is_stopped = False
        self._waited_for: set[str] = set()
        self._settings: Mapping[str, str] | None = options.pip
        self._reachable: dict[str, bool] = {}

    def stop(self) -> None:
        """End every child, and start no more."""
        with self._lock:
            self._is_stopped = True
            for child in self._children:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)

    def make_ready(self, spec: VenvSpec) -> VenvOutcome:
        """Build the environment unless it is complete, and link it."""
        folder = store_folder(self.dirs, spec)
        log = self.store / f"{spec.folder}.log"
        began = time.monotonic()
        try:
            with hold_lock(self.store / f"{spec.folder}.lock", lambda: self._waits(spec)) as lock:
                notes: tuple[str, ...] = ()
                is_new = _must_build(self.dirs, spec, self.options)
                if is_new:
                    with log.open("w", encoding="utf-8") as output:
                        notes = self._build(spec, folder, _Shell(self, output, lock, self._environ(spec)))
                link_to(venv_link(self.dirs, spec.group), folder)
        except (_BuildFailedError, EnvironmentFailed) as error:
            return self._broken(spec, str(error), log)
        except OSError as error:
            return self._broken(spec, _reason(error), log)
        seconds = time.monotonic() - began
        self.report(
            InstallProgress(subject=spec.group, stage="ready", detail=f"{seconds:.1f} s" if is_new else "already there")
        )
        return VenvReady(group=spec.group, path=folder, is_new=is_new, seconds=seconds, notes=notes)

    def _waits(self, spec: VenvSpec) -> bool:
        """Return whether to keep waiting for another process that builds this environment; report the wait once."""
        if spec.group not in self._waited_for:
            self._waited_for.add(spec.group)
            self._say(spec, "waiting", "another process is building it")
        return not self._is_stopped

    def _broken(self, spec: VenvSpec, why: str, log: Path) -> VenvBroken:
        # An unfinished environment never counts, but a gigabyte of it would stay on a disk that may be full.
        if not is_complete(self.dirs, spec):
            shutil.rmtree(store_folder(self.dirs, spec), ignore_errors=True)
        self.report(InstallProgress(subject=spec.group, stage="failed", detail=why))
        return VenvBroken(group=spec.group, why=why, log=log if log.is_file() else None)

    def _build(self, spec: VenvSpec, folder: Path, shell: _Shell) -> tuple[str, ...]:
        if folder.exists():
            (folder / COMPLETE).unlink(missing_ok=True)
            shutil.rmtree(folder)
        installer = self._installer(spec)
        python, notes = self._interpreter(spec, shell)
        self._say(spec, "creating", f"python {spec.python}")
        shell.run(installer.create(spec, python, str(folder)))
        requirements = folder / ".requirements.txt"
        text = spec.requirements_text()
        if not spec.is_pinned:
            # Locks contain the instruments' dependencies; a handwritten file does not.
            text += "".join(f"{need}\n" for need in benchmate_requirements(self.options.benchmate))
        requirements.write_text(text)
        constraints = folder / ".constraints.txt"
        constraints.write_text(spec.constraints.text if spec.constraints else "")
        self._say(spec, "installing", f"{len(spec.lock.pins)} packages")
        upgrade = self.options.update and not spec.is_pinned
        shell.first_of(
            installer.install(
                spec, str(folder), str(requirements), str(constraints) if spec.constraints else None, upgrade
            )
        )
        self._say(spec, "adding benchmate")
        shell.run(installer.add(str(folder), str(self._benchmate_wheel(spec.benchmate, installer, shell))))
        self._say(spec, "verifying")
        notes += self._verify(folder, installer, shell)
        _mark_complete(folder, spec, installer.name)
        return notes

    def _benchmate_wheel(self, digest: str, installer: Installer, shell: _Shell) -> Path:
        """Build the wheel once, so that later environments need neither a build backend nor a network for it."""
        wheels = make_folder(Path(self.dirs.cache, "wheels"))
        home = wheels / f"benchmate-{digest[:16]}"
        with hold_lock(wheels / f"{home.name}.lock"):
            if not home.is_dir():
                building = wheels / f".{home.name}.building"
                shutil.rmtree(building, ignore_errors=True)
                # A copy: build backends write beside what they build, and the source tree may be read-only.
                source = building / "source"
                shutil.copytree(
                    self.options.benchmate, source, ignore=shutil.ignore_patterns("__pycache__", "tests", ".*", "dist")
                )
                shell.first_of(installer.build(str(source), str(building / "wheel")))
                (building / "wheel").rename(home)
                shutil.rmtree(building)
        wheel = next(home.glob("*.whl"), None)
        if wheel is None:
            raise _BuildFailedError(f"building benchmate produced no wheel; remove {home} and try again")
        return wheel

    def _verify(self, folder: Path, installer: Installer, shell: _Shell) -> tuple[str, ...]:
        python = str(folder / "bin" / "python")
        imported = shell.attempt(InstallCommand(argv=(python, "-I", "-c", "import benchmate"), needs_network=False))
        if imported is not None:
            raise _BuildFailedError(f"benchmate cannot be imported: {_last_line(imported)}")
        complaints = shell.attempt(installer.check(str(folder)))
        lines = [line.strip() for line in (complaints or "").splitlines() if re.search(r"requires|not installed", line)]
        ours = next((line for line in lines if re.search(r"\bbenchmate\b.*requires", line)), None)
        if ours:
            raise _BuildFailedError(
                f"the lock does not hold what benchmate needs ({ours}); rewrite it with `milabench pin`"
            )
        return tuple(lines)

    def _interpreter(self, spec: VenvSpec, shell: _Shell) -> tuple[str, tuple[str, ...]]:
        """Return the interpreter that the locks were made for, else the running one with a note."""
        running = f"{sys.version_info.major}.{sys.version_info.minor}"
        version = ".".join(spec.python.split(".")[:2])
        if version == running:
            return sys.executable, ()
        interpreter = self._python(version, shell)
        if interpreter is None and self.options.uv:
            self._say(spec, "fetching", f"python {version}, which its locks are made for")
            with self._fetching:  # several environments may want the same one
                shell.answer((self.options.uv, "python", "install", version, "--no-bin"))
            interpreter = self._python(version, shell)
        if interpreter is not None:
            return interpreter, ()
        note = f"the locks of {spec.group} are made for python {version}, which was not found; python {running} is used"
        self._say(spec, "note", note)
        return sys.executable, (note,)

    def _python(self, version: str, shell: _Shell) -> str | None:
        """Return an interpreter of this version: on PATH, or where uv finds one."""
        candidates = [shutil.which(f"python{version}", path=shell.environ.get("PATH"))]
        if self.options.uv:
            find = (self.options.uv, "python", "find", version, "--no-project", "--no-python-downloads")
            candidates.append((shell.answer(find) or "").strip() or None)
        for candidate in candidates:
            ask = "import sys; print('%d.%d' % sys.version_info[:2])"
            if candidate and (shell.answer((candidate, "-I", "-c", ask)) or "").strip() == version:
                return candidate
        return None

    def _installer(self, spec: VenvSpec) -> Installer:
        if self.options.uv:
            options = uv_options({**self._pip(), **spec.pip})
            return Uv(path=self.options.uv, is_reachable=self._is_reachable, options=options)
        return Pip(python=sys.executable, is_reachable=self._is_reachable)

    def _is_reachable(self, index: str) -> bool:
        with self._once:
            if index not in self._reachable:
                self._reachable[index] = url_responds(
                    index, {**self.options.environ, **uv_env(self._pip(), self.options.environ)}
                )
                if not self._reachable[index]:
                    detail = f"{index} cannot be reached; using the configured indexes"
                    self.report(InstallProgress(subject="torch", stage="note", detail=detail))
            return self._reachable[index]

    def _pip(self) -> Mapping[str, str]:
        with self._lock:
            if self._settings is None:
                self._settings = pip_settings(self.options.environ)
            return self._settings

    def _environ(self, spec: VenvSpec) -> dict[str, str]:
        user = {name: value for name, value in self.options.environ.items() if name not in _DROPPED}
        env = {"UV_PYTHON_DOWNLOADS": "never", **user, "UV_NO_PROGRESS": "1", "NO_COLOR": "1", "COLUMNS": "1000"}
        if not self.options.uv:
            return {**env, "PYTHONWARNINGS": "ignore", **pip_env(spec.pip)}
        ours = uv_env({**self._pip(), **spec.pip}, user)
        if spec.is_hashed:
            # uv refuses constraints that are ranges beside hashes, and a lock leaves nothing to constrain.
            ours.pop("UV_CONSTRAINT", None)
        return {**env, **ours}

    def _say(self, spec: VenvSpec, stage: str, detail: str = "") -> None:
        self.report(InstallProgress(subject=spec.group, stage=stage, detail=detail))

    def start(self, argv: Sequence[str], env: Mapping[str, str], lock: int) -> subprocess.Popen[str]:
        """Start a child that `stop` ends. It inherits the lock: one that outlives us keeps others out of its folder."""
        with self._lock:
            if self._is_stopped:
                raise _BuildFailedError("interrupted")
            child = subprocess.Popen(
                argv,
                env=dict(env),
                cwd=self.store,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                process_group=0,
                pass_fds=(lock,),
            )
            self._children.add(child)
            return child

    def forget(self, child: subprocess.Popen[str]) -> None:
        """Drop a child that has ended."""
        with self._lock:
            self._children.discard(child)


class _Shell:
    """Runs the commands of one environment and logs their output without credentials."""

    def __init__(self, work: _Work, output: Any, lock: int, environ: Mapping[str, str]) -> None:
        self.environ = environ
        self._work = work
        self._output = output
        self._lock = lock

    def run(self, attempt: InstallCommand) -> None:
        """Raise _BuildFailedError unless the command succeeds."""
        self.first_of(iter((attempt,)))

    def first_of(self, attempts: Iterator[InstallCommand]) -> None:
        """Try one command after the other until one succeeds; else raise the most informative error."""
        failures: list[tuple[bool, str]] = []
        for attempt in attempts:
            if attempt.rehearse and (cuda := pulls_cuda(self._rehearsal(attempt))):
                raise _BuildFailedError(
                    f"would pull CUDA packages ({cuda}) into a cpu environment; name an index with a cpu build of "
                    "torch by `pip config`, or lock it with `milabench pin`"
                )
            output = self.attempt(attempt)
            if output is None:
                return
            failures.append((attempt.needs_network, output))
        # Without a cache, attempts that avoid the network fail only for that reason.
        telling = next(
            (output for used_network, output in reversed(failures) if used_network), failures[-1][1] if failures else ""
        )
        raise _BuildFailedError(explain_failure(telling))

    def attempt(self, attempt: InstallCommand) -> str | None:
        """Return None when the command succeeds, else its output."""
        code, output = self._ended(attempt.argv, {**self.environ, **attempt.env})
        return None if code == 0 else output

    def answer(self, argv: Sequence[str]) -> str | None:
        """Return the output of a command that succeeded, else None."""
        code, output = self._ended(argv, self.environ)
        return output if code == 0 else None

    def _rehearsal(self, attempt: InstallCommand) -> str:
        return self._ended((*attempt.argv, "--dry-run"), {**self.environ, **attempt.env})[1]

    def _ended(self, argv: Sequence[str], env: Mapping[str, str]) -> tuple[int, str]:
        self._output.write(f"$ {mask(' '.join(argv))}\n")
        self._output.flush()
        try:
            child = self._work.start(argv, env, self._lock)
        except OSError as error:
            return 127, f"error: {argv[0]}: {error.strerror}"
        output = []
        try:
            assert child.stdout is not None
            for line in child.stdout:
                output.append(mask(line))
                self._output.write(output[-1])
                self._output.flush()
            return child.wait(), "".join(output)
        finally:
            # Reached with the child alive only when the log cannot be written.
            if child.poll() is None:
                child.kill()
            child.wait()
            if child.stdout is not None:
                child.stdout.close()
            self._work.forget(child)


def link_to(link: Path, folder: Path) -> None:
    """Point the link to the folder, atomically. Raises EnvironmentFailed when something else has its name."""
    target = os.path.relpath(folder, link.parent)
    if link.is_symlink():
        if str(link.readlink()) == target:
            return
    elif link.exists():
        raise EnvironmentFailed(f"{link}: exists where a link to {target} belongs; move it away")
    fresh = link.parent / f".{link.name}.{os.getpid()}.link"
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.replace(link)


def url_responds(url: str, environ: Mapping[str, str], timeout_s: float = PROBE_S) -> bool:
    """Return whether a server answers under this URL in time, with any status; uses the user's proxy and certificates."""
    proxies = {
        scheme: value
        for scheme in ("http", "https")
        if (
            value := environ.get(f"{scheme}_proxy")
            or environ.get(f"{scheme.upper()}_PROXY")
            or environ.get("ALL_PROXY")
        )
    }
    try:
        context = ssl.create_default_context(cafile=environ.get("SSL_CERT_FILE"))
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler(proxies), urllib.request.HTTPSHandler(context=context)
        )
        opener.open(urllib.request.Request(url, method="HEAD"), timeout=timeout_s).close()
    except urllib.error.HTTPError:
        return True
    except (OSError, ValueError):
        return False
    return True


def _reason(error: OSError) -> str:
    """Return why a file operation failed, in one line; copying a tree reports all its failures in one text of its own."""
    text = str(error)
    if error.errno == errno.ENOSPC or "No space left on device" in text:
        return "no space left on the disk"
    return f"{error.strerror}: {error.filename}" if error.strerror else text.splitlines()[0][:200]


def _must_build(dirs: Dirs, spec: VenvSpec, options: InstallOptions) -> bool:
    return options.force or (options.update and not spec.is_pinned) or not is_complete(dirs, spec)


def _mark_complete(folder: Path, spec: VenvSpec, installer: str) -> None:
    """Write the marker last, and to disk before it has its name: its presence claims that everything else exists."""
    marker = {
        "digest": spec.digest,
        "group": spec.group,
        "variant": spec.variant,
        "python": spec.python,
        "platform": spec.platform,
        "locks": {file.name: file.sha256 for file in spec.requirements},
        "constraints": spec.constraints.sha256 if spec.constraints else None,
        "benchmate": spec.benchmate,
        "installer": installer,
        "made": time.time(),
    }
    fresh = folder / f"{COMPLETE}.new"
    with fresh.open("w") as file:
        json.dump(marker, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(folder / COMPLETE)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _one_at_a_time(report: Report) -> Report:
    lock = threading.Lock()

    def reported(progress: InstallProgress) -> None:
        with lock:
            report(progress)

    return reported


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no output"])[-1]
