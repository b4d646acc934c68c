"""Builds an environment at its final path, and marks it complete last."""

from __future__ import annotations

import json
import pkgutil
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from milabench.errors import EnvironmentFailed, os_reason
from milabench.events.atomic_write import replace_file
from milabench.events.removal import copy_tree, put, remove, scratch_folder
from milabench.events.shims import TORCHVISION, note_of
from milabench.execute.import_results import ABSENT, ImportsTried, is_driver_missing
from milabench.execute.install_session import OF_A_REPOSITORY, InstallSession, hold_lock, make_folder
from milabench.execute.installer import (
    InstallCommand,
    Installer,
    InstallFiles,
    Pip,
    Uv,
    explain_failure,
    pulls_cuda,
    unbuilt_package,
)
from milabench.execute.inventory import (
    COMPLETE,
    altered_files,
    marker_environment,
)
from milabench.execute.needs import Need, files_of, uncached
from milabench.execute.package_indexes import excludes_others, indexes, pip_env, refusal, uv_env, uv_options
from milabench.execute.shims import add_shim, shim_for
from milabench.execute.sizes import size_text
from milabench.plan.requirements import (
    Lock,
    applies,
    merge_locks,
    named_index,
    parse_requirements,
    render_requirements,
)
from milabench.plan.venvs import VenvSpec
from milabench.redaction import mask

# They would change what is installed, or where; what runs in an environment must not depend on who built it.
_DROPPED = (
    "VIRTUAL_ENV",
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONDONTWRITEBYTECODE",
    "UV_PROJECT_ENVIRONMENT",
    "PIP_TARGET",
    *OF_A_REPOSITORY,
)
# What packages that are built without isolation find, as milabench 1.3 lays it ready.
_BUILD_TOOLS = ("setuptools", "wheel", "poetry-core", "flit-core")
_BUILT_AGAINST = ("torch", "numpy")
_ABOUT_A_WHEEL = re.compile(
    r"benchmate-[^/]+\.dist-info/(METADATA|WHEEL|RECORD|entry_points\.txt|licenses/[^/]+|LICENSE)"
)


def benchmate_requirements(project: Path) -> tuple[str, ...]:
    """Return the dependencies of the benchmate distribution, from its pyproject.toml."""
    return tuple(tomllib.loads((project / "pyproject.toml").read_text())["project"].get("dependencies", ()))


class VenvBuild:
    """The building of an environment, by commands whose output is logged without credentials."""

    def __init__(self, session: InstallSession, spec: VenvSpec, folder: Path, log: TextIO, lock: int) -> None:
        self._session = session
        self._options = session.options
        self._spec = spec
        self._folder = folder
        self._log = log
        self._lock = lock
        self._shims: list[str] = []
        self._left_out: list[str] = []
        self._unbuilt: str | None = None
        self._child: subprocess.Popen[str] | None = None
        user = {name: value for name, value in self._options.environ.items() if name not in _DROPPED}
        # Plain and wide: uv breaks its messages at the width of a terminal, and explain_failure reads them.
        env = {"UV_PYTHON_DOWNLOADS": "never", **user, "UV_NO_PROGRESS": "1", "NO_COLOR": "1", "COLUMNS": "1000"}
        own = {} if self._options.is_sealed else spec.pip
        settings = {**session.pip_settings, **own}
        if self._options.uv:
            ours = uv_env(settings, user)
            if spec.is_hashed:
                # uv refuses constraints that are ranges beside hashes, and a lock leaves nothing to constrain.
                ours.pop("UV_CONSTRAINT", None)
            self._environ = {**env, **ours}
            self._installer: Installer = Uv(
                path=self._options.uv, is_reachable=self._is_reachable, options=uv_options(settings)
            )
        else:
            self._environ = {**env, "PYTHONWARNINGS": "ignore", **pip_env(settings if self._options.is_sealed else own)}
            self._installer = Pip(python=sys.executable, is_reachable=self._is_reachable)
        self._is_closed = self._options.is_sealed or excludes_others(settings, user)

    def _is_reachable(self, index: str) -> bool:
        """Return whether an index answers. Excluded indexes are not asked for packages that we did not lock."""
        return not (self._spec.is_foreign and self._is_closed) and self._session.is_reachable(index)

    def need(self) -> Need | None:
        """Return which files it takes, and which of them the cache does not hold. None where nobody tells."""
        if isinstance(self._installer, Pip):
            return None
        spec, known = self._spec, None
        version = ".".join(spec.python.split(".")[:2])
        python = sys.executable if version == running_python() else self._python(version) or sys.executable
        with tempfile.TemporaryDirectory(prefix="milabench-") as name:
            folder = Path(name)
            files = self._write_requirements(folder)
            pylock, empty = folder / "pylock.toml", folder / "empty"
            for attempt in self._installer.resolve(spec, files, str(pylock)):
                is_newest = self._options.update and not spec.is_pinned  # which only the indexes know
                if (is_newest and not attempt.needs_network) or self._ended(attempt.argv, attempt.env)[0] != 0:
                    continue
                code, output = self._ended(self._installer.rehearse(spec, python, str(empty), files), attempt.env)
                if code != 0:
                    continue
                packages, absent = files_of(pylock.read_text(), spec.python), uncached(output)
                fetched = frozenset(file.url for file in packages if (file.name, file.version) in absent)
                known = Need(files=packages, fetched=fetched)
                if not known.fetched:  # the cache holds everything: no index is asked
                    break
        return known

    def _write_requirements(self, folder: Path) -> InstallFiles:
        """Write the requirements, their constraints, and preferred versions."""
        spec = self._spec
        text = render_requirements(self._lock_with_allowed_indexes())
        if not spec.is_pinned and not spec.overrides:
            # Locks contain the instruments' dependencies; a handwritten file does not.
            text += "".join(f"{need}\n" for need in benchmate_requirements(Path(self._options.benchmate)))
        if spec.overrides and self._options.uv:
            # Also what a package asks for that needs an older one of the instruments' own dependencies.
            overrides = _written(folder / ".overrides.txt", "".join(f"{line}\n" for line in spec.overrides))
            self._environ["UV_OVERRIDE"] = f"{overrides} {self._options.environ.get('UV_OVERRIDE', '')}".strip()
        return InstallFiles(
            requirements=_written(folder / ".requirements.txt", text),
            constraints=_written(folder / ".constraints.txt", spec.constraints.text) if spec.constraints else None,
            preferred=_written(folder / ".preferred.txt", spec.preferred.text) if spec.preferred else None,
        )

    def _lock_with_allowed_indexes(self) -> Lock:
        """Return the lock. A foreign lock comes without indexes that the user's settings exclude, or that do not answer."""
        lock = self._spec.lock
        named = {option: index for option in lock.options if (index := named_index(option)) is not None}
        if not named or not self._spec.is_foreign:
            return lock
        allowed, self._left_out = [], []
        for option in lock.options:
            index = named.get(option)
            is_remote = index is not None and "://" in index and not index.startswith("file:")
            if is_remote and (self._is_closed or not self._session.is_reachable(index or "")):
                self._left_out.append(mask(index or ""))
            else:
                allowed.append(option)
        # As pip does it: all indexes are equal, and the best version wins.
        self._environ.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
        return replace(lock, options=tuple(allowed))

    def build(self) -> tuple[str, ...]:
        """Build it and mark it complete. Return notes for a person. Raises EnvironmentFailed and OSError."""
        spec, folder, installer = self._spec, self._folder, self._installer
        if folder.exists():
            remove(folder / COMPLETE)
            remove(folder, self._session.store)
        python, notes = self._interpreter()
        self._say(f"creating: python {spec.python}")
        self._run([installer.create(spec, python, str(folder))])
        files = self._write_requirements(folder)
        # Not all pins are for this machine; and what is not pinned brings more than it names.
        count = self._session.packages.get(spec.group) or sum(
            not pin.name or applies(pin.line, marker_environment(spec.python)) for pin in spec.lock.pins
        )
        self._say(f"installing: {count} package{'s' * (count != 1)}", self._seen)
        last = self._install(files, self._options.update and not spec.is_pinned)
        if spec.preferred is not None and files.preferred not in last.argv:
            notes += (f"not with the versions of {spec.preferred.name}, which do not fit each other here",)
        # They stay beside the environment, and go into bundles.
        for file in folder.glob(".*s.txt"):
            file.write_text(mask(file.read_text()))
        self._say("adding benchmate")
        self._run([installer.add(str(folder), str(self._benchmate_wheel()))])
        self._say("verifying")
        if self._left_out:
            why = "your settings say where packages come from" if self._is_closed else "they did not answer"
            notes += (
                f"indexes of its requirement files that were not asked, since {why}: {', '.join(self._left_out)}",
            )
        notes += self._overridden()
        notes += self._verify()
        _mark_complete(folder, spec, installer.name, self._shims, self._unchecked_capsule(python))
        return notes

    def _unchecked_capsule(self, python: str) -> str:
        """Return the name of the capsule if no lock's hash has checked some of its files here. Else empty."""
        if not self._options.capsule:
            return ""
        home = Path(self._options.capsule).resolve()
        is_checked = self._spec.is_hashed and not Path(python).resolve().is_relative_to(home)
        # What builds an sdist is in no lock.
        is_checked = is_checked and not any((home / "wheels").glob("*[!l]"))
        return "" if is_checked else home.name

    def _install(self, files: InstallFiles, upgrade: bool) -> InstallCommand:
        """Install the requirement file. Return the command that did it.

        A package of a foreign file that needs torch to be built, and does not say so, is built again with the packages in the
        environment.
        """
        spec, folder, installer = self._spec, str(self._folder), self._installer
        inside: list[str] = []
        while True:
            try:
                attempts = installer.install(spec, folder, files, upgrade, inside)
                return self._run(attempts, self._hear)
            except EnvironmentFailed:
                package = self._unbuilt
                if not spec.is_foreign or isinstance(installer, Pip) or package is None or package in inside:
                    raise
                if not inside:
                    needed = (pin.line for pin in spec.lock.pins if pin.name in _BUILT_AGAINST)
                    lines = (*self._lock_with_allowed_indexes().options, *needed, *_BUILD_TOOLS)
                    tools = _written(self._folder / ".build-tools.txt", "".join(f"{line}\n" for line in lines))
                    self._run(installer.install(spec, folder, replace(files, requirements=tools), upgrade))
                inside.append(package)
                self._say(f"building {package} with the packages of the environment")

    def _overridden(self) -> tuple[str, ...]:
        """Return a note on the versions that requirement files name and that are not installed."""
        files = merge_locks([parse_requirements(file.text) for file in self._spec.requirements])
        replaced = [
            f"{asked.line} by {own.line}"
            for own in parse_requirements("\n".join(self._spec.overrides)).pins
            for asked in files.pins
            if asked.name == own.name and asked.version not in (None, own.version)
        ]
        return (f"the instruments need other versions: {', '.join(replaced)}",) if replaced else ()

    def _benchmate_wheel(self) -> Path:
        """Build the wheel once, so that later environments need neither a build backend nor a network for it."""
        wheels = make_folder(Path(self._session.dirs.cache, "wheels"))
        home = wheels / f"benchmate-{self._spec.benchmate[:16]}"
        with hold_lock(wheels / f"{home.name}.lock"):
            if not _holds_instruments(home, Path(self._options.benchmate)):
                with scratch_folder(wheels / f".{home.name}.building") as building:
                    # A copy: build backends write beside what they build, and the source tree may be read-only.
                    source = building / "source"
                    left_out = shutil.ignore_patterns("__pycache__", "tests", ".*", "dist")
                    copy_tree(Path(self._options.benchmate), source, left_out)
                    self._run(self._installer.build(str(source), str(building / "wheel")))
                    for old in home.glob("*.whl"):
                        remove(old, wheels)
                    home.mkdir(exist_ok=True)
                    for built in (building / "wheel").glob("*.whl"):
                        put(built, home / built.name)
        wheel = next(home.glob("*.whl"), None)
        if wheel is None:
            raise EnvironmentFailed(f"building benchmate produced no wheel. Remove {home} and try again")
        return wheel

    def _verify(self) -> tuple[str, ...]:
        # uv checks what it downloads, not what lies unpacked in its cache, to which its environments are linked.
        if altered := next(altered_files(self._folder), ""):
            package = altered.partition(" ")[0].replace("_", "-")
            clean = f"uv cache clean {package}" if self._installer.name == "uv" else f"pip cache remove {package}"
            raise EnvironmentFailed(
                f"{altered}: is not as it was published. `{clean}` drops it from the cache, then install again"
            )
        notes = self._import_required()
        code, output = self._ended(self._installer.check(str(self._folder)).argv)
        complaints = output.splitlines() if code != 0 else []
        lines = [line.strip() for line in complaints if re.search(r"requires|not installed", line)]
        ours = next((line for line in lines if re.search(r"\bbenchmate\b.*requires", line)), None)
        if ours:
            raise EnvironmentFailed(
                f"the lock lacks packages that benchmate needs ({ours}). Rewrite it with `milabench pin`"
            )
        return (*notes, *lines)

    def _import_required(self) -> tuple[str, ...]:
        """Import benchmate and the benchmarks' requirements. Return notes on packages that could not be tried here.

        Raises EnvironmentFailed for the first that cannot be imported.
        """
        spec, began = self._spec, time.monotonic()
        needed_by: dict[str, list[str]] = {"benchmate": []}
        for bench, packages in spec.required.items():
            for package in packages:
                needed_by.setdefault(package, []).append(bench)
        # Others import it when they find it, some only while they run.
        unasked = {TORCHVISION} & {pin.name for pin in spec.lock.pins} - {*needed_by}
        needed_by |= {package: [] for package in unasked}
        probe = pkgutil.get_data("milabench.execute", "import_probe.py")
        assert probe is not None
        argv = (f"{self._folder}/bin/python", "-I", "-c", probe.decode(), json.dumps(list(needed_by)))
        tried = ImportsTried()

        def heard(line: str) -> None:
            tried.hear(line)
            self._session.activities.now(spec.group, f"importing {tried.module}" if tried.module else "importing")

        self._say(f"importing: {', '.join(needed_by)}")
        code, _ = self._ended(argv, heard=heard, shown="import_probe.py")
        problems = tried.problems(code)
        if added := self._add_shims(problems.values()):
            tried = ImportsTried()
            code, _ = self._ended(argv, heard=heard, shown="import_probe.py")
            problems = tried.problems(code)
        notes = [*added]
        notes += [f"{package} was not imported: {why}" for package, why in tried.untried.items()]
        if unsaid := [bench for bench in spec.benches if bench not in spec.required]:
            notes.append(
                f"nothing was imported for {', '.join(unsaid)}: they have no requirements.in, which lists the packages to import"
            )
        for package, why in problems.items():
            users = ", ".join(needed_by[package])
            if package in unasked:
                notes.append(f"{package}, which the lock brings, cannot be imported: {why}")
            elif why == ABSENT:
                notes.append(
                    f"{package} is required by {users} and not in the lock. Write it again with `milabench pin`"
                )
            elif not spec.is_for_cpu and is_driver_missing(why, self._options.devices):
                notes.append(f"{package} could not be tried without an accelerator's driver: {why}")
            elif package == "benchmate":
                raise EnvironmentFailed(f"benchmate cannot be imported: {why}")
            elif spec.is_foreign:
                notes.append(f"{package}, which {users} requires, cannot be imported: {why}")
            else:
                pin = f"`milabench pin --select {','.join(needed_by[package])}`"
                raise EnvironmentFailed(
                    f"{package}, which {users} requires, cannot be imported: {why}. "
                    f"Let the versions in requirements.in fit each other, and lock them with {pin}"
                )
        self._session.activities.report(f"{spec.group}: imported in {time.monotonic() - began:.1f} s")
        return tuple(notes)

    def _add_shims(self, problems: Iterable[str]) -> list[str]:
        """Put in the shims that help against these import failures. Return a note on each."""
        # Beside a build of torch for an accelerator whatever does not fit is an error of the lock.
        wanted = {shim for why in problems if self._spec.is_for_cpu and (shim := shim_for(why))} - {*self._shims}
        for shim in sorted(wanted):
            self._say(f"adding a shim: {shim}")
            add_shim(self._folder, shim)
            self._shims.append(shim)
        return [note_of(shim) for shim in sorted(wanted)]

    def _interpreter(self) -> tuple[str, tuple[str, ...]]:
        """Return the interpreter that the locks were made for, else the running interpreter with a note."""
        running = running_python()
        version = ".".join(self._spec.python.split(".")[:2])
        if version == running:
            return sys.executable, ()
        interpreter = self._python(version)
        if interpreter is None and self._options.is_sealed:
            raise EnvironmentFailed(f"python {version} is neither in the capsule nor on this machine. Install it first")
        if interpreter is None and self._options.uv:
            self._say(f"fetching: python {version}, which its locks are made for")
            with self._session.fetching:
                self._ended((self._options.uv, "python", "install", version, "--no-bin"))
            interpreter = self._python(version)
        if interpreter is not None:
            return interpreter, ()
        group = self._spec.group
        note = f"the locks of {group} are made for python {version}, which was not found. Python {running} is used"
        self._say(f"note: {note}")
        return sys.executable, (note,)

    def _python(self, version: str) -> str | None:
        """Return an interpreter of this version: on PATH, or where uv finds it."""
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
        """Report a stage, and make it the current activity."""
        self._session.activities.report(f"{self._spec.group}: {stage}")
        self._session.activities.now(self._spec.group, stage, observe)

    def _hear(self, line: str) -> None:
        """Notice uv's work once the packages are there: it takes longer than fetching them where they are cached."""
        if line.startswith("Installed "):
            self._session.activities.now(self._spec.group, "compiling byte code", self._seen)

    def _seen(self) -> str:
        """Return the visible progress of an installer: packages in the environment, bytes written."""
        there = sum(1 for _ in self._folder.glob("lib/python*/site-packages/*.dist-info"))
        child = self._child
        written = bytes_written(child.pid) if child is not None else 0
        return ", ".join(
            ([f"{there} installed"] if there else []) + ([f"{size_text(written)} written"] if written else [])
        )

    def _run(self, attempts: Iterable[InstallCommand], heard: Callable[[str], object] = str) -> InstallCommand:
        """Return the first command that succeeds. Else raise EnvironmentFailed, with the most informative error.

        `attempts` may be an iterator that asks the network only once those before have failed.
        """
        failures: list[tuple[bool, str]] = []
        for attempt in attempts:
            if attempt.rehearse and (cuda := pulls_cuda(self._ended((*attempt.argv, "--dry-run"), attempt.env)[1])):
                raise EnvironmentFailed(
                    f"would pull CUDA packages ({cuda}) into a cpu environment. Name an index with a cpu build of "
                    "torch by `pip config`, or lock it with `milabench pin`"
                )
            code, output = self._ended(attempt.argv, attempt.env, heard=heard)
            if code == 0:
                return attempt
            failures.append((attempt.needs_network, output))
        # Without a cache, attempts that avoid the network fail only for that reason.
        telling = [output for used_network, output in failures if used_network] or [output for _, output in failures]
        self._unbuilt = unbuilt_package(telling[-1])
        raise EnvironmentFailed(self._explained(telling[-1]))

    def _explained(self, output: str) -> str:
        """Return why installing failed, in a line. For a package that no index lists, ask the index for its answer."""
        why = explain_failure(output)
        missing = re.match(r"requirement ([A-Za-z0-9._-]+)\S* does not exist", why)
        if missing is None or self._options.is_sealed:
            return why
        places = indexes({**self._session.pip_settings, **self._spec.pip}, self._options.environ)
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
        """Run a command. Return its exit code and its output. `heard` gets each line, the log `shown` in place of `argv`."""
        self._log.write(f"$ {shown or mask(' '.join(argv))}\n")
        self._log.flush()
        try:
            child = self._session.start(argv, {**self._environ, **(env or {})}, self._lock)
        except OSError as error:
            return 127, f"error: {argv[0]}: {os_reason(error)}"
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
                self._session.forget(child)


def _written(path: Path, text: str) -> str:
    """Write a file, and return its path."""
    path.write_text(text)
    return str(path)


def bytes_written(pid: int) -> int:
    """Return how many bytes a process has written so far. 0 where it has ended, or nothing tells."""
    try:
        match = re.search(r"^wchar: (\d+)$", Path(f"/proc/{pid}/io").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(match[1]) if match else 0


def _holds_instruments(home: Path, project: Path) -> bool:
    """Return whether the wheel in a folder has exactly the files of the project, as they are there."""
    source = project / "src"
    files = {file.relative_to(source).as_posix(): file for file in source.rglob("*") if _is_packed(file)}
    try:
        with zipfile.ZipFile(next(home.glob("*.whl"))) as wheel:
            names = {name for name in wheel.namelist() if not _ABOUT_A_WHEEL.fullmatch(name)}
            return names == set(files) and all(wheel.read(name) == files[name].read_bytes() for name in names)
    except (StopIteration, OSError, zipfile.BadZipFile, zlib.error):
        return False


def foreign_member(wheel: Path) -> str:
    """Return a file in a wheel of the instruments that is not theirs by its name. Empty for none."""
    try:
        with zipfile.ZipFile(wheel) as packed:
            names = packed.namelist()
    except (OSError, zipfile.BadZipFile):
        return wheel.name
    is_source = re.compile(r"benchmate/(?!.*\.(?:pyc|pth|so)$).+")
    return next((name for name in names if not is_source.fullmatch(name) and not _ABOUT_A_WHEEL.fullmatch(name)), "")


def _is_packed(file: Path) -> bool:
    return file.is_file() and "__pycache__" not in file.parts and file.suffix != ".pyc"


def running_python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _mark_complete(folder: Path, spec: VenvSpec, installer: str, shims: Sequence[str], capsule: str) -> None:
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
        "shims": list(shims),
        **({"capsule": capsule} if capsule else {}),
        **({"commits": dict(spec.commits)} if spec.commits else {}),
        "made": time.time(),
    }
    replace_file(folder / COMPLETE, json.dumps(marker, indent=1).encode())
