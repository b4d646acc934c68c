"""Virtual environments: built at their final path, marked complete last, linked atomically."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import http.client
import json
import os
import pkgutil
import re
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TextIO

from milabench.devices.regular_file import open_descriptor
from milabench.errors import EnvironmentFailed
from milabench.events.atomic_write import replace_file
from milabench.execute.activities import Activities
from milabench.execute.import_results import ABSENT, ImportsTried, is_driver_missing
from milabench.execute.installer import InstallCommand, Installer, Pip, Uv, explain_failure, pulls_cuda
from milabench.execute.interrupts import abandonable, thread_map
from milabench.execute.inventory import (
    COMPLETE,
    altered_files,
    is_complete,
    is_linked,
    marker_environment,
    store_folder,
    venv_link,
)
from milabench.execute.needs import Need, PackageFile, files_of, measured, total, uncached
from milabench.execute.package_indexes import indexes, pip_env, pip_settings, uv_env, uv_options
from milabench.execute.sizes import size_text
from milabench.plan.context import Dirs
from milabench.plan.requirements import applies, render_requirements
from milabench.plan.venvs import VenvSpec
from milabench.redaction import mask

PROBE_S = 3.0
# Room that is wanted beyond an estimate: of quickstart's five environments 2.8 GB were announced and 3.3 GB taken.
MARGIN = 1.25
MEASURING_S = 10.0
LISTING_BYTES = 1_000_000
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


Report = Callable[[str], object]
"""What is called with each stage of an installation, as one line without credentials."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallOptions:
    """How to install.

    `benchmate` is the project folder of the instruments; `environ` the user's environment. `force` rebuilds
    complete environments; `update` rebuilds those that are not pinned, with the newest packages. `ignore_space` begins also
    where the disk seems too small. `pip` are pip's settings; None asks pip, once, when something is to be built. `uv` is the
    program; None uses pip. `is_sealed`: nothing is asked but what `pip` and `environ` name, neither a network nor what the
    suite says of indexes. `devices` are the kinds of accelerators that the machine has, as far as anybody knows.
    """

    # No Path: these options are pickled for other machines, and Python 3.13 moved its classes to another module.
    benchmate: str
    environ: Mapping[str, str]
    jobs: int = 4
    force: bool = False
    update: bool = False
    ignore_space: bool = False
    is_sealed: bool = False
    devices: tuple[str, ...] = ()
    pip: Mapping[str, str] | None = None
    uv: str | None = field(default_factory=lambda: find_uv(os.environ))


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """The result for an environment or a program, which can be used unless `why` says in one line why not.

    `log` is the file with all output of a failed installation. `notes` are things that a person should know, one line each.
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
    specs: Sequence[VenvSpec],
    dirs: Dirs,
    options: InstallOptions,
    report: Report,
    activities: Activities | None = None,
) -> tuple[Installed, ...]:
    """Make every environment ready, several at a time; one that fails does not keep the others from being built.

    What is complete already is left alone, at the cost of reading one file. `report` is called from one thread at a
    time; `activities` say meanwhile what is done, to who watches them. Raises EnvironmentFailed when the base folder cannot be
    written, or, before anything is downloaded, where its disk has not the room. On KeyboardInterrupt everything that was
    started is ended first.
    """
    if not any(_must_build(dirs, spec, options) or not is_linked(dirs, spec) for spec in specs):
        return tuple(Installed(name=spec.group) for spec in specs)
    work = _Work(dirs, options, report, activities or Activities())
    work.require_space([spec for spec in specs if _must_build(dirs, spec, options)])
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
    descriptor = open_descriptor(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:  # not waited for in the kernel: a thread in a blocking lock cannot be interrupted
                if not waits():
                    raise EnvironmentFailed("another process is building it") from None
            time.sleep(WAIT_S)
        yield descriptor
    finally:
        os.close(descriptor)


class _Work:
    """One install: its running child processes, and facts shared by all environments."""

    def __init__(self, dirs: Dirs, options: InstallOptions, report: Report, activities: Activities) -> None:
        self.activities = activities
        self.dirs = dirs
        self.options = options
        self.store = make_folder(Path(dirs.venv, ".store"))
        if os.statvfs(self.store).f_flag & os.ST_NOEXEC:
            what = "its file system is mounted noexec, and compiled packages and scripts could not be loaded from it"
            raise EnvironmentFailed(f"{self.store}: {what}; choose another folder with --base")
        # Asked once, before there are threads: it takes half a second.
        self.pip_settings = options.pip if options.pip is not None else pip_settings(options.environ)
        self.packages: dict[str, int] = {}  # how many an environment gets, by its group, where that is known
        self.fetching = threading.Lock()  # several environments may want the same interpreter
        self._report = report
        self._lock = threading.Lock()
        self._once = threading.Lock()
        self._reporting = threading.Lock()
        self._children: set[subprocess.Popen[str]] = set()
        self._is_stopped = False
        self._waited_for: set[str] = set()
        self._reachable: dict[str, bool] = {}

    def stop(self) -> None:
        """End every child, and start no more."""
        with self._lock:
            self._is_stopped = True
            for child in self._children:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)

    def require_space(self, specs: Sequence[VenvSpec]) -> None:
        """Report what building these environments takes. Raises EnvironmentFailed where a disk has too little room for it."""
        if not specs:
            return
        found = thread_map(self._files, specs, jobs=self.options.jobs, stop=self.stop)
        needs = self._measured([need for need in found if need is not None])
        cache = self._cache()
        is_linked = cache is not None and _is_one_disk(cache, self.store, self.options.environ)
        remaining = iter(needs)
        for spec, need in zip(specs, found, strict=True):
            if need is not None:
                self.packages[spec.group] = len(need.files)
            known = total([next(remaining)], is_linked=is_linked) if need is not None else None
            self.report(f"{spec.group}: needs: {known or 'the size of the download is unknown'}")
        takes = total(needs, is_linked=is_linked)
        if len(specs) > 1 and needs:
            self.report(f"in all: {takes}")
        wanted = {self.store: takes.base}
        if cache is not None:
            there = self.store if _is_one_disk(cache, self.store, {}) else cache
            wanted[there] = wanted.get(there, 0) + takes.cache
        for folder, size in wanted.items():
            free = _free_bytes(folder)
            self.report(f"free: {size_text(free)} for {folder}")
            if MARGIN * size > free and not self.options.ignore_space:
                raise EnvironmentFailed(
                    f"{folder}: too little space: about {size_text(size)} are needed on its disk, and a quarter more for "
                    f"what cannot be foreseen; {size_text(free)} are free; "
                    "make room, choose another folder with --base (UV_CACHE_DIR for the cache of uv), or begin all the same "
                    "with --ignore-space"
                )

    def _files(self, spec: VenvSpec) -> Need | None:
        """Return the files that an environment needs, not measured yet; None where nobody tells."""
        self.activities.now(spec.group, "looking up what is to be downloaded")
        try:
            with Path(os.devnull).open("w", encoding="utf-8") as log:
                return _Build(self, spec, store_folder(self.dirs, spec), log, log.fileno()).need()
        except (EnvironmentFailed, OSError):
            if self._is_stopped:
                raise
            return None  # the installation finds it too, and says it better
        finally:
            self.activities.over(spec.group)

    def _measured(self, needs: Sequence[Need]) -> list[Need]:
        """Return them with the sizes of their files; servers are asked only for what is not in the cache."""
        files = {file.url: file for need in needs for file in need.files}
        missing = {url for need in needs for url in need.fetched}
        opener = None
        try:
            if not self.options.is_sealed:
                opener = opener_of({**self.options.environ, **uv_env(self.pip_settings, self.options.environ)})
        except OSError:  # the certificates cannot be read, which uv will say
            pass

        def measure(file: PackageFile) -> PackageFile:
            if file.url not in missing or opener is None:
                return measured(file, None)
            try:
                return abandonable(partial(measured, file, opener), lambda: self._is_stopped, MEASURING_S)
            except TimeoutError:
                return measured(file, None)

        sizes = dict(zip(files, thread_map(measure, files.values(), jobs=8, stop=self.stop), strict=True))
        return [replace(need, files=tuple(sizes[file.url] for file in need.files)) for need in needs]

    def _cache(self) -> Path | None:
        """Return the nearest existing folder of uv's cache; None without uv."""
        if self.options.uv is None:
            return None
        argv = Uv(path=self.options.uv, is_reachable=self.is_reachable).cache().argv
        try:
            answer = subprocess.run(argv, env=dict(self.options.environ), capture_output=True, text=True, check=False)
        except OSError:
            return None
        folder = Path(answer.stdout.strip() or "/")
        return next(parent for parent in (folder, *folder.parents) if parent.exists())

    def make_ready(self, spec: VenvSpec) -> Installed:
        """Build the environment unless it is complete, and link it."""
        folder, log = store_folder(self.dirs, spec), self.store / f"{spec.folder}.log"
        notes: tuple[str, ...] = ()
        began = time.monotonic()
        try:
            with hold_lock(self.store / f"{spec.folder}.lock", lambda: self._waits(spec)) as lock:
                is_new = _must_build(self.dirs, spec, self.options)
                if is_new:
                    with log.open("w", encoding="utf-8") as output:
                        notes = _Build(self, spec, folder, output, lock).build()
                link_to(venv_link(self.dirs, spec.group), folder)
        except (EnvironmentFailed, OSError) as error:
            why = _reason(error) if isinstance(error, OSError) else str(error)
            # An unfinished environment never counts, but a gigabyte of it would stay on a disk that may be full.
            if not is_complete(self.dirs, spec):
                shutil.rmtree(folder, ignore_errors=True)
            self.report(f"{spec.group}: failed: {why}")
            return Installed(name=spec.group, why=why, log=log if log.is_file() else None)
        finally:
            self.activities.over(spec.group)
        self.report(f"{spec.group}: ready: " + (f"{time.monotonic() - began:.1f} s" if is_new else "already there"))
        return Installed(name=spec.group, is_new=is_new, notes=notes)

    def _waits(self, spec: VenvSpec) -> bool:
        """Return whether to keep waiting for another process that builds this environment; report the wait once."""
        if spec.group not in self._waited_for:
            self._waited_for.add(spec.group)
            self.report(f"{spec.group}: waiting: another process builds or uses it")
            self.activities.now(spec.group, "waiting for another process")
        return not self._is_stopped

    def report(self, line: str) -> None:
        """Report a stage, one thread at a time."""
        with self._reporting:
            self._report(line)

    def is_reachable(self, index: str) -> bool:
        """Return whether an index answers, asked once."""
        if self.options.is_sealed:
            return False
        with self._once:
            if index not in self._reachable:
                environ = {**self.options.environ, **uv_env(self.pip_settings, self.options.environ)}
                self._reachable[index] = url_responds(index, environ)
                if not self._reachable[index]:
                    self.report(f"torch: note: {index} cannot be reached; using the configured indexes")
            return self._reachable[index]

    def start(self, argv: Sequence[str], env: Mapping[str, str], lock: int) -> subprocess.Popen[str]:
        """Start a child that `stop` ends. It inherits the lock: one that outlives us keeps others out of its folder."""
        with self._lock:
            if self._is_stopped:
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


class _Build:
    """The building of one environment, by commands whose output is logged without credentials."""

    def __init__(self, work: _Work, spec: VenvSpec, folder: Path, log: TextIO, lock: int) -> None:
        self._work = work
        self._options = work.options
        self._spec = spec
        self._folder = folder
        self._log = log
        self._lock = lock
        self._child: subprocess.Popen[str] | None = None
        user = {name: value for name, value in self._options.environ.items() if name not in _DROPPED}
        # Plain and wide: uv breaks its messages at the width of a terminal, and explain_failure reads them.
        env = {"UV_PYTHON_DOWNLOADS": "never", **user, "UV_NO_PROGRESS": "1", "NO_COLOR": "1", "COLUMNS": "1000"}
        own = {} if self._options.is_sealed else spec.pip
        settings = {**work.pip_settings, **own}
        if self._options.uv:
            ours = uv_env(settings, user)
            if spec.is_hashed:
                # uv refuses constraints that are ranges beside hashes, and a lock leaves nothing to constrain.
                ours.pop("UV_CONSTRAINT", None)
            self._environ = {**env, **ours}
            self._installer: Installer = Uv(
                path=self._options.uv, is_reachable=work.is_reachable, options=uv_options(settings)
            )
        else:
            self._environ = {**env, "PYTHONWARNINGS": "ignore", **pip_env(settings if self._options.is_sealed else own)}
            self._installer = Pip(python=sys.executable, is_reachable=work.is_reachable)

    def need(self) -> Need | None:
        """Return which files it takes, and which of them the cache does not hold; None where nobody tells."""
        if isinstance(self._installer, Pip):
            return None
        spec, known = self._spec, None
        version = ".".join(spec.python.split(".")[:2])
        python = sys.executable if version == _running() else self._python(version) or sys.executable
        with tempfile.TemporaryDirectory(prefix="milabench-") as name:
            folder = Path(name)
            requirements, limits = self._write_requirements(folder)
            pylock, empty = folder / "pylock.toml", folder / "empty"
            for attempt in self._installer.resolve(spec, requirements, limits, str(pylock)):
                is_newest = self._options.update and not spec.is_pinned  # which only the indexes know
                if (is_newest and not attempt.needs_network) or self._ended(attempt.argv, attempt.env)[0] != 0:
                    continue
                look = self._installer.rehearse(spec, python, str(empty), requirements, limits)
                code, output = self._ended(look.argv, attempt.env)
                if code != 0:
                    continue
                files, absent = files_of(pylock.read_text(), spec.python), uncached(output)
                known = Need(
                    files=files,
                    fetched=frozenset(file.url for file in files if (file.name, file.version) in absent),
                )
                if not known.fetched:  # the cache holds everything: no index is asked
                    break
        return known

    def _write_requirements(self, folder: Path) -> tuple[str, str | None]:
        """Write what is to be installed, and its constraints; return the paths, None where nothing constrains it."""
        spec = self._spec
        requirements = folder / ".requirements.txt"
        text = render_requirements(spec.lock)
        if not spec.is_pinned:
            # Locks contain the instruments' dependencies; a handwritten file does not.
            text += "".join(f"{need}\n" for need in benchmate_requirements(Path(self._options.benchmate)))
        requirements.write_text(text)
        constraints = folder / ".constraints.txt"
        constraints.write_text(spec.constraints.text if spec.constraints else "")
        return str(requirements), str(constraints) if spec.constraints else None

    def build(self) -> tuple[str, ...]:
        """Build it and mark it complete; return notes for a person. Raises EnvironmentFailed and OSError."""
        spec, folder, installer = self._spec, self._folder, self._installer
        if folder.exists():
            (folder / COMPLETE).unlink(missing_ok=True)
            shutil.rmtree(folder)
        python, notes = self._interpreter()
        self._say(f"creating: python {spec.python}")
        self._run([installer.create(spec, python, str(folder))])
        requirements, limits = self._write_requirements(folder)
        # Not all pins are for this machine; and what is not pinned brings more than it names.
        count = self._work.packages.get(spec.group) or sum(
            not pin.name or applies(pin.line, marker_environment(spec.python)) for pin in spec.lock.pins
        )
        self._say(f"installing: {count} package{'s' * (count != 1)}", self._seen)
        upgrade = self._options.update and not spec.is_pinned
        self._run(installer.install(spec, str(folder), requirements, limits, upgrade), self._hear)
        # They stay beside the environment, and go into bundles.
        for file in (folder / ".requirements.txt", folder / ".constraints.txt"):
            file.write_text(mask(file.read_text()))
        self._say("adding benchmate")
        self._run([installer.add(str(folder), str(self._benchmate_wheel()))])
        self._say("verifying")
        notes += self._verify()
        _mark_complete(folder, spec, installer.name)
        return notes

    def _benchmate_wheel(self) -> Path:
        """Build the wheel once, so that later environments need neither a build backend nor a network for it."""
        wheels = make_folder(Path(self._work.dirs.cache, "wheels"))
        home = wheels / f"benchmate-{self._spec.benchmate[:16]}"
        with hold_lock(wheels / f"{home.name}.lock"):
            if not _holds_instruments(home, Path(self._options.benchmate)):
                building = wheels / f".{home.name}.building"
                shutil.rmtree(building, ignore_errors=True)
                # A copy: build backends write beside what they build, and the source tree may be read-only.
                source = building / "source"
                left_out = shutil.ignore_patterns("__pycache__", "tests", ".*", "dist")
                shutil.copytree(self._options.benchmate, source, ignore=left_out)
                self._run(self._installer.build(str(source), str(building / "wheel")))
                shutil.rmtree(home, ignore_errors=True)
                (building / "wheel").rename(home)
                shutil.rmtree(building)
        wheel = next(home.glob("*.whl"), None)
        if wheel is None:
            raise EnvironmentFailed(f"building benchmate produced no wheel; remove {home} and try again")
        return wheel

    def _verify(self) -> tuple[str, ...]:
        # uv checks what it downloads, not what lies unpacked in its cache, to which its environments are linked.
        if altered := next(altered_files(self._folder), ""):
            package = altered.partition(" ")[0].replace("_", "-")
            clean = f"uv cache clean {package}" if self._installer.name == "uv" else f"pip cache remove {package}"
            raise EnvironmentFailed(
                f"{altered}: is not as it was published; `{clean}` drops it from the cache, install again"
            )
        notes = self._import_required()
        code, output = self._ended(self._installer.check(str(self._folder)).argv)
        complaints = output.splitlines() if code != 0 else []
        lines = [line.strip() for line in complaints if re.search(r"requires|not installed", line)]
        ours = next((line for line in lines if re.search(r"\bbenchmate\b.*requires", line)), None)
        if ours:
            raise EnvironmentFailed(
                f"the lock does not hold what benchmate needs ({ours}); rewrite it with `milabench pin`"
            )
        return (*notes, *lines)

    def _import_required(self) -> tuple[str, ...]:
        """Import benchmate and what the benchmarks require; return notes on what could not be tried here.

        Raises EnvironmentFailed for the first that cannot be imported.
        """
        spec, began = self._spec, time.monotonic()
        needed_by: dict[str, list[str]] = {"benchmate": []}
        for bench, packages in spec.required.items():
            for package in packages:
                needed_by.setdefault(package, []).append(bench)
        probe = pkgutil.get_data("milabench.execute", "import_probe.py")
        assert probe is not None
        argv = (f"{self._folder}/bin/python", "-I", "-c", probe.decode(), json.dumps(list(needed_by)))
        tried = ImportsTried()

        def heard(line: str) -> None:
            tried.hear(line)
            self._work.activities.now(spec.group, f"importing {tried.module}" if tried.module else "importing")

        self._say(f"importing: {', '.join(needed_by)}")
        code, _ = self._ended(argv, heard=heard, shown="import_probe.py")
        notes = [f"{package} was not imported: {why}" for package, why in tried.untried.items()]
        if unsaid := [bench for bench in spec.benches if bench not in spec.required]:
            notes.append(
                f"nothing was imported for {', '.join(unsaid)}: without a requirements.in nobody says what to try"
            )
        for package, why in tried.problems(code).items():
            users = ", ".join(needed_by[package])
            if why == ABSENT:
                notes.append(
                    f"{package} is required by {users} and not in the lock; write it again with `milabench pin`"
                )
            elif not spec.is_for_cpu and is_driver_missing(why, self._options.devices):
                notes.append(f"{package} could not be tried without an accelerator's driver: {why}")
            elif package == "benchmate":
                raise EnvironmentFailed(f"benchmate cannot be imported: {why}")
            else:
                pin = f"`milabench pin --select {','.join(needed_by[package])}`"
                raise EnvironmentFailed(
                    f"{package}, which {users} requires, cannot be imported: {why}; "
                    f"let the versions in requirements.in fit each other, and lock them with {pin}"
                )
        self._work.report(f"{spec.group}: imported in {time.monotonic() - began:.1f} s")
        return tuple(notes)

    def _interpreter(self) -> tuple[str, tuple[str, ...]]:
        """Return the interpreter that the locks were made for, else the running one with a note."""
        running = _running()
        version = ".".join(self._spec.python.split(".")[:2])
        if version == running:
            return sys.executable, ()
        interpreter = self._python(version)
        if interpreter is None and self._options.is_sealed:
            raise EnvironmentFailed(f"python {version} is neither in the capsule nor on this machine; install it first")
        if interpreter is None and self._options.uv:
            self._say(f"fetching: python {version}, which its locks are made for")
            with self._work.fetching:
                self._ended((self._options.uv, "python", "install", version, "--no-bin"))
            interpreter = self._python(version)
        if interpreter is not None:
            return interpreter, ()
        group = self._spec.group
        note = f"the locks of {group} are made for python {version}, which was not found; python {running} is used"
        self._say(f"note: {note}")
        return sys.executable, (note,)

    def _python(self, version: str) -> str | None:
        """Return an interpreter of this version: on PATH, or where uv finds one."""
        candidates = [shutil.which(f"python{version}", path=self._environ.get("PATH"))]
        if self._options.uv:
            find = (self._options.uv, "python", "find", version, "--no-project", "--no-python-downloads")
            code, output = self._ended(find)
            candidates.append(output.strip() if code == 0 else None)
        ask = "import sys; print('%d.%d' % sys.version_info[:2])"
        for candidate in filter(None, candidates):
            code, output = self._ended((candidate, "-I", "-c", ask))
            if (code, output.strip()) == (0, version):
                return candidate
        return None

    def _say(self, stage: str, observe: Callable[[], str] = str) -> None:
        """Report a stage, and that it is what is done now."""
        self._work.report(f"{self._spec.group}: {stage}")
        self._work.activities.now(self._spec.group, stage, observe)

    def _hear(self, line: str) -> None:
        """Notice what uv does once the packages are there: it takes longer than fetching them where they are cached."""
        if line.startswith("Installed "):
            self._work.activities.now(self._spec.group, "compiling byte code", self._seen)

    def _seen(self) -> str:
        """Return what can be seen of an installer's work: packages that stand in the environment, bytes that it wrote."""
        there = sum(1 for _ in self._folder.glob("lib/python*/site-packages/*.dist-info"))
        child = self._child
        written = bytes_written(child.pid) if child is not None else 0
        return ", ".join(([f"{there} there"] if there else []) + ([f"{size_text(written)} written"] if written else []))

    def _run(self, attempts: Iterable[InstallCommand], heard: Callable[[str], object] = str) -> None:
        """Try one command after the other until one succeeds; else raise EnvironmentFailed, with the most informative error.

        `attempts` may be an iterator that asks the network only once those before have failed.
        """
        failures: list[tuple[bool, str]] = []
        for attempt in attempts:
            if attempt.rehearse and (cuda := pulls_cuda(self._ended((*attempt.argv, "--dry-run"), attempt.env)[1])):
                raise EnvironmentFailed(
                    f"would pull CUDA packages ({cuda}) into a cpu environment; name an index with a cpu build of "
                    "torch by `pip config`, or lock it with `milabench pin`"
                )
            code, output = self._ended(attempt.argv, attempt.env, heard=heard)
            if code == 0:
                return
            failures.append((attempt.needs_network, output))
        # Without a cache, attempts that avoid the network fail only for that reason.
        telling = [output for used_network, output in failures if used_network] or [output for _, output in failures]
        raise EnvironmentFailed(self._explained(telling[-1]))

    def _explained(self, output: str) -> str:
        """Return why installing failed, in one line; of a package that no index lists, ask what the index answers."""
        why = explain_failure(output)
        missing = re.match(r"requirement ([A-Za-z0-9._-]+)\S* does not exist", why)
        if missing is None or self._options.is_sealed:
            return why
        places = indexes({**self._work.pip_settings, **self._spec.pip}, self._options.environ)
        name = re.sub(r"[-_.]+", "-", missing[1]).lower()
        urls = () if places.is_offline else places.urls
        answers = (refusal(f"{url.rstrip('/')}/{name}/", self._environ) for url in urls)
        return next(filter(None, answers), why)

    def _ended(
        self,
        argv: Sequence[str],
        env: Mapping[str, str] | None = None,
        *,
        heard: Callable[[str], object] = str,
        shown: str = "",
    ) -> tuple[int, str]:
        """Run a command; return its exit code and its output. `heard` gets each line, the log `shown` in place of `argv`."""
        self._log.write(f"$ {shown or mask(' '.join(argv))}\n")
        self._log.flush()
        try:
            child = self._work.start(argv, {**self._environ, **(env or {})}, self._lock)
        except OSError as error:
            return 127, f"error: {argv[0]}: {error.strerror}"
        output = []
        self._child = child
        try:
            assert child.stdout is not None
            for line in child.stdout:
                output.append(mask(line))
                self._log.write(output[-1])
                self._log.flush()
                heard(output[-1])
            return child.wait(), "".join(output)
        finally:
            # Reached with the child alive only when the log cannot be written.
            if child.poll() is None:
                child.kill()
            self._child = None
            with child:  # closes its pipe, waits for it
                self._work.forget(child)


def bytes_written(pid: int) -> int:
    """Return how many bytes a process has written so far; 0 where it has ended, or nothing tells."""
    try:
        match = re.search(r"^wchar: (\d+)$", Path(f"/proc/{pid}/io").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(match[1]) if match else 0


def _holds_instruments(home: Path, project: Path) -> bool:
    """Return whether the wheel in a folder has exactly the files of the project, as they are there."""
    source = project / "src"
    files = {file.relative_to(source).as_posix(): file for file in source.rglob("*.py")}
    try:
        with zipfile.ZipFile(next(home.glob("*.whl"))) as wheel:
            code = {name for name in wheel.namelist() if name.endswith((".py", ".pth", ".so"))}
            return code == set(files) and all(wheel.read(name) == files[name].read_bytes() for name in code)
    except (StopIteration, OSError, zipfile.BadZipFile, zlib.error):
        return False


def link_to(link: Path, folder: Path) -> None:
    """Point the link to the folder, atomically. Raises EnvironmentFailed when something else has its name."""
    target = os.path.relpath(folder, link.parent)
    if link.is_symlink():
        if str(link.readlink()) == target:
            return
    elif link.exists():
        raise EnvironmentFailed(f"{link}: exists where a link to {target} belongs; move it away")
    # A link cannot be replaced by a link, but by a rename: whoever looks finds the old one or the new one.
    fresh = link.parent / f".{link.name}.{os.getpid()}.link"
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.replace(link)


def url_responds(url: str, environ: Mapping[str, str]) -> bool:
    """Return whether a server answers under this URL in time, with any status; uses the user's proxy and certificates."""
    try:
        opener_of(environ).open(urllib.request.Request(url, method="HEAD"), timeout=PROBE_S).close()
    except urllib.error.HTTPError:
        return True
    except (OSError, ValueError):
        return False
    return True


def opener_of(environ: Mapping[str, str]) -> urllib.request.OpenerDirector:
    """Return what opens URLs with the user's proxy and certificates. Raises OSError when the latter cannot be read."""
    proxies = {
        scheme: value
        for scheme in ("http", "https")
        if (
            value := environ.get(f"{scheme}_proxy")
            or environ.get(f"{scheme.upper()}_PROXY")
            or environ.get("ALL_PROXY")
        )
    }
    # urllib, not the client of sources: this file also runs on other machines, where only `packaging` comes with it.
    context = ssl.create_default_context(cafile=environ.get("SSL_CERT_FILE"))
    return urllib.request.build_opener(
        urllib.request.ProxyHandler(proxies), urllib.request.HTTPSHandler(context=context)
    )


def refusal(url: str, environ: Mapping[str, str]) -> str:
    """Return what is wrong with the answer of an index to the question for a package; empty where nothing is seen."""
    kinds = "application/vnd.pypi.simple.v1+json, text/html;q=0.1"
    try:
        request = urllib.request.Request(url, headers={"Accept": kinds})
        with opener_of(environ).open(request, timeout=PROBE_S) as answer:
            is_page, text = answer.headers.get_content_type() == "text/html", answer.read(LISTING_BYTES)
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.NOT_FOUND:
            return ""
        return (
            f"{mask(url)}: the server answers {error.code} {error.reason}; check the proxy or the index of `pip config`"
        )
    except (OSError, ValueError, http.client.HTTPException):
        return ""
    if is_page and not re.search(rb"<a\b[^>]*>[^<]*\.(?:whl|zip|tar\.\w+|tgz)\s*<", text):
        return f"{mask(url)}: the answer is a web page that lists no files, perhaps of a proxy that wants a login"
    return ""


def _running() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _is_one_disk(cache: Path, store: Path, environ: Mapping[str, str]) -> bool:
    """Return whether both are on one file system, and what is in the cache is linked from the environments."""
    is_copied = environ.get("UV_LINK_MODE") in ("copy", "symlink")
    return cache.stat().st_dev == store.stat().st_dev and not is_copied


def _free_bytes(folder: Path) -> int:
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


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
    replace_file(folder / COMPLETE, json.dumps(marker, indent=1).encode())
