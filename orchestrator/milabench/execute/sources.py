"""Fetching the programs that benchmarks measure: by exact file and hash, unpacked whole or not at all."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import signal
import ssl
import stat
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, TypeVar, cast
from urllib.parse import unquote, urlsplit, urlunsplit

from milabench.bench.api import COPY, Git, PyPI, Source, WorkingCopy
from milabench.bench.load import folder_digest
from milabench.errors import EnvironmentFailed, os_reason
from milabench.events.removal import NOT_OURS, copy_tree, put, replace, scratch_folder
from milabench.execute.activities import Activities
from milabench.execute.install_session import OF_A_REPOSITORY, Installed, InstallOptions, hold_lock, make_folder
from milabench.execute.interrupts import abandonable, thread_map
from milabench.execute.inventory import is_fetched, is_own_program, sha256_of, source_folder, source_marker
from milabench.execute.package_indexes import Indexes, indexes, pip_settings
from milabench.execute.sizes import size_text
from milabench.execute.unpack_release import unpack_release
from milabench.plan.context import Dirs
from milabench.plan.venvs import source_json
from milabench.redaction import mask
from milabench.shown import last_line

if TYPE_CHECKING:
    from unearth import Link, Package, PackageFinder
    from unearth.fetchers import Fetcher, PyPIClient

_T = TypeVar("_T")
_PAUSES_S = (0.3, 1.0, 2.0)
_SILENCE_S = 30.0  # that a server may take to answer, and between two pieces of an answer
_LISTING_S = 300.0  # that the list of a project's files may take
_SLOW = (60.0, 1024)  # seconds after which a file must have come with so many bytes per second
MAX_LISTED = 5  # files of a project in an error message
_STOP_S = 0.1  # after which a stop is noticed


def fetch_sources(
    sources: Sequence[Source], dirs: Dirs, options: InstallOptions, activities: Activities
) -> tuple[Installed, ...]:
    """Make every source ready. A failed source does not keep the others from being fetched.

    With `force`, existing ones are unpacked again, from the archive in the cache when its hash is right. Raises
    EnvironmentFailed when the base folder cannot be written.
    """
    environ, force = options.environ, options.force
    if not force and all(is_fetched(dirs, source) for source in sources):
        return tuple(Installed(name=source.folder) for source in sources)
    make_folder(Path(dirs.code))
    stop = Event()
    where = indexes(options.pip if options.pip is not None else pip_settings(environ), environ)

    def outcome(source: Source) -> Installed:
        is_new = force or not is_fetched(dirs, source)
        if is_new:
            activities.report(f"{source.folder}: fetching")
            arrived = Arrived()
            activities.now(source.folder, "fetching", arrived.text)
            try:
                fetch(source, dirs, options, where, stop, activities, arrived)
            except EnvironmentFailed as error:
                activities.report(f"{source.folder}: failed: {error}")
                return Installed(name=source.folder, why=str(error))
            finally:
                activities.over(source.folder)
            activities.report(f"{source.folder}: ready")
        return Installed(name=source.folder, is_new=is_new)

    return thread_map(outcome, sources, jobs=options.jobs, stop=stop.set)


@dataclass(slots=True)
class Arrived:
    """How much of a file has come, in bytes. `of` is None where the server does not tell."""

    size: int = 0
    of: int | None = None

    def text(self) -> str:
        """Return `1.2 MB of 3.0 MB`. Empty before the first."""
        if not self.size:
            return ""
        return size_text(self.size) + (f" of {size_text(self.of)}" if self.of is not None else "")


def fetch(
    source: Source,
    dirs: Dirs,
    options: InstallOptions,
    where: Indexes,
    stop: Event,
    activities: Activities,
    arrived: Arrived,
) -> None:
    """Fetch the program unless it is there. `arrived` is kept up to date.

    Raises EnvironmentFailed, soon after `stop` is set too.
    """
    code, folder, environ = Path(dirs.code), source_folder(dirs, source), options.environ
    waiting = f"{source.folder}: waiting: another process fetches or uses it"
    with hold_lock(code / f".{source.folder}.lock", lambda: not stop.is_set(), lambda: activities.report(waiting)):
        if is_fetched(dirs, source) and not options.force:  # by another process, while we waited
            return
        try:
            if os.path.lexists(folder) and not is_own_program(folder):
                raise EnvironmentFailed(f"{folder}: {NOT_OURS}")
            with scratch_folder(code / f".{source.folder}.building") as building:
                fresh = Path(building, source.folder)
                match source:
                    case PyPI():
                        unpack_release(cached_archive(source, where, environ, stop, arrived), source.file, fresh)
                    case Git():
                        _clone(source, fresh, environ, stop)
                    case WorkingCopy():
                        _copy_definition(source, fresh, environ, stop)
                # Whatever stops us in between: a folder is never without a marker, which says that it is ours, and only the
                # last of the markers says that it is whole.
                marker, mark = Path(building, "marker"), source_json(source)
                for content in ({"folder": source.folder, "is": "unfinished"}, mark):
                    if content is mark:
                        if folder.exists():
                            put(folder, Path(building, "old"))
                        put(fresh, folder)
                    marker.write_text(json.dumps(content, indent=1))
                    replace(marker, source_marker(dirs, source))
        except OSError as error:
            raise EnvironmentFailed(f"{folder}: {os_reason(error)}") from error


def cached_archive(
    source: PyPI, where: Indexes, environ: Mapping[str, str], stop: Event, arrived: Arrived | None = None
) -> Path:
    """Return the release file in the user's cache, fetched unless it is there and unaltered. Raises EnvironmentFailed."""
    home = Path(environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or Path.home()) / ".cache")
    cache = make_folder(home / "milabench" / "archives")
    kept = cache / source.sha256
    with (
        hold_lock(cache / f"{source.sha256}.lock", lambda: not stop.is_set()),
        scratch_folder(cache / f"{source.sha256}.fetching") as building,
    ):
        if kept.is_file() and sha256_of(kept) == source.sha256:
            return kept
        fresh = Path(building, "archive")
        _download(source, where, fresh, stop, arrived or Arrived())
        digest = sha256_of(fresh)
        if digest != source.sha256:
            raise EnvironmentFailed(
                f"{source.file}: the index served a file with sha256 {digest}, the benchfile expects {source.sha256}. "
                "Nothing was unpacked"
            )
        replace(fresh, kept)
    return kept


def _download(source: PyPI, where: Indexes, into: Path, stop: Event, arrived: Arrived) -> None:
    import httpx2

    label = f"{source.project} {source.version} ({source.file})"
    silent = []
    with _client(where) as client:
        for index, link in _links(source.project, where, client, stop):
            if isinstance(link, Exception):
                silent.append(f"{mask(index)} cannot be reached: {_reason(link)}")
            elif link.filename == source.file:
                try:
                    _patiently(partial(_copy, link, client, into, arrived), stop)
                except (httpx2.HTTPError, OSError) as error:
                    raise EnvironmentFailed(
                        f"{label}: fetching it from {link.redacted} failed: {_reason(error)}"
                    ) from None
                return
    if where.is_offline:
        raise EnvironmentFailed(f"{label}: not in the cache, and UV_OFFLINE forbids fetching it")
    if silent:
        raise EnvironmentFailed(f"{label}: not in the cache, and {'; '.join(silent)}")
    searched = ", ".join(mask(location) for location in (*where.urls, *where.find_links)) or "no index at all"
    raise EnvironmentFailed(f"{label}: no such file on the configured indexes ({searched})")


def release_files(project: str, where: Indexes, stop: Event) -> tuple[tuple[str, str], ...]:
    """Return the names and sha256 of all files of a project that the indexes list, in their order.

    Files without a hash are left out. Raises EnvironmentFailed when an index cannot be reached.
    """
    files, silent = listed_files(project, where, stop)
    if silent:
        raise EnvironmentFailed("; ".join(silent))
    return files


def listed_files(project: str, where: Indexes, stop: Event) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """Return the `release_files` of the indexes that answer, and a line for each that does not."""
    files, silent = [], []
    with _client(where) as client:
        for index, link in _links(project, where, client, stop):
            if isinstance(link, Exception):
                silent.append(f"{mask(index)} cannot be reached: {_reason(link)}")
            elif sha256 := _sha256(link):
                files.append((link.filename, sha256))
    return tuple(files), tuple(silent)


def find_release(project: str, version: str, file: str | None = None, *, environ: Mapping[str, str]) -> PyPI:
    """Return a release file, with the index's own sha256: the named file, else the sdist, else a wheel for any platform.

    Raises EnvironmentFailed when no index lists such a file.
    """
    files = dict(release_files(project, indexes(pip_settings(environ), environ), Event()))
    stem = f"{project.lower().replace('-', '_')}-{version}"
    for name in (file,) if file else (f"{stem}.tar.gz", f"{project}-{version}.tar.gz", f"{stem}-py3-none-any.whl"):
        if name in files:
            return PyPI(project, version, file=name, sha256=files[name])
    what = f"file {file}" if file else "sdist and no pure wheel"
    raise EnvironmentFailed(f"{project} {version}: no {what} on the configured indexes{_other_versions(files)}")


def _other_versions(files: Iterable[str]) -> str:
    """Return the newest of the files that the indexes do list, for an error message."""
    from packaging.version import Version

    from milabench.execute.needs import version_of

    newest = sorted(files, key=lambda file: version_of(file) or Version("0"), reverse=True)[:MAX_LISTED]
    return f". The newest that they list: {', '.join(newest)}" if newest else ""


def opened_release(source: PyPI, into: Path, environ: Mapping[str, str]) -> Path:
    """Unpack a release file, fetched unless the cache holds it, into a new folder. Raises EnvironmentFailed."""
    where = indexes(pip_settings(environ), environ)
    unpack_release(cached_archive(source, where, environ, Event()), source.file, into)
    return into


def opened_repository(source: Git, into: Path, environ: Mapping[str, str]) -> str:
    """Clone a revision of a repository into a new folder, and return its commit. Raises EnvironmentFailed."""
    _clone(source, into, environ, Event())
    return (into / ".git" / "HEAD").read_text().strip()  # the commit itself: no branch is checked out


def _client(where: Indexes) -> PyPIClient:
    from unearth.auth import MultiDomainBasicAuth
    from unearth.fetchers import PyPIClient

    try:
        context = ssl.create_default_context(cafile=where.cert)
    except OSError as error:
        raise EnvironmentFailed(f"{where.cert}: the certificates cannot be read: {os_reason(error)}") from None
    client = PyPIClient(
        trusted_hosts=where.trusted_hosts, verify=context, timeout=_SILENCE_S, proxy=where.proxy, follow_redirects=True
    )
    # The library takes an index that fails for one without the file.
    client.event_hooks = {"response": [lambda answer: answer.raise_for_status() if answer.is_server_error else None]}
    client.auth = MultiDomainBasicAuth(prompting=False, index_urls=list(where.urls))
    return client


def _links(project: str, where: Indexes, client: PyPIClient, stop: Event) -> Iterator[tuple[str, Link | Exception]]:
    """Yield the links each index lists for a project, or its error: a failing index does not hide the others."""
    import httpx2
    from unearth import PackageFinder

    for location in (*where.urls, *where.find_links):
        if where.is_offline and "://" in location and not location.startswith("file:"):
            continue
        # mypy: the client is the library's own, but its method takes more than the library's protocol says.
        finder = PackageFinder(
            cast("Fetcher", client),
            index_urls=(location,) if location in where.urls else (),
            find_links=() if location in where.urls else (location,),
            ignore_compatibility=True,
            trusted_hosts=where.trusted_hosts,
        )
        try:
            for package in _patiently(partial(_listed, finder, project), stop, _LISTING_S):
                yield location, package.link
        except (httpx2.HTTPError, OSError, ValueError) as error:
            yield location, error


def _listed(finder: PackageFinder, project: str) -> list[Package]:
    return list(finder.find_all_packages(project, allow_yanked=True))


def _patiently(ask: Callable[[], _T], stop: Event, within_s: float | None = None) -> _T:
    """Return the result of the request. Retry when the network fails for a moment.

    Raises EnvironmentFailed when `stop` is set, TimeoutError when a request has not ended in time.
    """
    import httpx2

    for pause_s in _PAUSES_S:
        try:
            return abandonable(ask, stop.is_set, within_s)
        except httpx2.TransportError:
            stop.wait(pause_s)
    return abandonable(ask, stop.is_set, within_s)


def _reason(error: Exception) -> str:
    """Return why a request failed, on a line without credentials."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return mask((text.splitlines() or [type(error).__name__])[0])


def _sha256(link: Link) -> str | None:
    if listed := (link.hash_option or {}).get("sha256"):
        return str(listed[0])
    return sha256_of(link.file_path) if link.is_file and link.file_path.is_file() else None


def _copy(link: Link, client: PyPIClient, into: Path, arrived: Arrived) -> None:
    if link.is_file:
        shutil.copyfile(link.file_path, into)
        return
    seconds, rate = _SLOW
    began, arrived.size = time.monotonic(), 0
    with client.stream("GET", link.url_without_fragment, follow_redirects=True) as answer, into.open("wb") as file:
        answer.raise_for_status()
        length = answer.headers.get("Content-Length", "")
        arrived.of = int(length) if length.isdecimal() and "Content-Encoding" not in answer.headers else None
        for block in answer.iter_bytes():  # not in larger blocks: one that comes in drops would never be full
            file.write(block)
            arrived.size += len(block)
            if (spent := time.monotonic() - began) > seconds and arrived.size < rate * spent:
                raise TimeoutError(f"it came with less than {rate} bytes per second")


def _clone(source: Git, into: Path, environ: Mapping[str, str], stop: Event) -> None:
    git = shutil.which("git", path=environ.get("PATH"))
    if git is None:
        raise EnvironmentFailed(f"{mask(source.url)} is a git repository, and git is not installed. Install it")
    env = git_environment(environ)
    url = without_credentials(source.url, env)

    def run(*argv: str) -> str | None:
        code, _, errors = _ended((git, *argv), into, env, stop)
        return None if code == 0 else last_line(errors, "git printed no error")

    into.mkdir()
    run("init", "--quiet")
    # Most servers give a single commit by its hash; for one that does not, everything is fetched.
    revision = "FETCH_HEAD"
    if run("fetch", "--quiet", "--depth", "1", url, source.rev):
        revision = source.rev
        problem = run("fetch", "--quiet", "--tags", url, "+refs/heads/*:refs/remotes/origin/*")
        if problem:
            raise EnvironmentFailed(f"{mask(source.url)}: cannot be fetched: {mask(problem)}")
    problem = run("checkout", "--quiet", "--detach", revision)
    if problem:
        raise EnvironmentFailed(f"{mask(source.url)}: has no revision {source.rev}: {mask(problem)}")


def git_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which git asks nobody anything, and gives up where next to nothing arrives."""
    seconds, rate = _SLOW
    patience = {"GIT_HTTP_LOW_SPEED_TIME": f"{seconds:g}", "GIT_HTTP_LOW_SPEED_LIMIT": str(rate)}
    # Which git sets for its hooks, and which would point every command at another repository; a prompt would hang.
    own = {name: value for name, value in environ.items() if name not in OF_A_REPOSITORY}
    return {**patience, **own, "GIT_TERMINAL_PROMPT": "0"}


def _copy_definition(source: WorkingCopy, into: Path, environ: Mapping[str, str], stop: Event) -> None:
    """Copy a benchmark's folder as `folder_digest` sees it, and let its command complete the copy."""
    copy_tree(Path(source.definition), into, shutil.ignore_patterns("__pycache__", ".*"))
    if (found := folder_digest(into)) != source.digest:
        raise EnvironmentFailed(f"{source.definition}: changed while it was copied (sha256 {found}). Try again")
    for path in (into, *into.rglob("*")):  # a copy of what nobody may write to would be another
        path.chmod(path.stat().st_mode | stat.S_IWUSR)
    request = into.parent / "request.json"
    with os.fdopen(os.open(request, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(source.request.replace(COPY, json.dumps(str(into))[1:-1]))
    code, output, errors = _ended((*source.command, str(request)), into, git_environment(environ), stop)
    if code != 0:
        raise EnvironmentFailed(f"{source.name}: its own install failed: {mask(_explanation(output, errors, code))}")


def _explanation(output: str, errors: str, code: int) -> str:
    """Return why a command failed: from the JSON that it answered, else the last line that it wrote."""
    try:
        error = json.loads(output)["error"]
        return f"{error['where']}: {error['what']}"
    except (ValueError, LookupError, TypeError):
        return last_line(errors or output, f"exit code {code}, with an empty stderr").removeprefix("error: ")


def _ended(argv: Sequence[str], cwd: Path, env: Mapping[str, str], stop: Event) -> tuple[int, str, str]:
    """Run a command. Return its exit code, stdout and stderr. Raises EnvironmentFailed when `stop` is set."""
    # A group of its own: git starts programs that connect, and they end with it.
    with subprocess.Popen(
        argv,
        env=dict(env),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        process_group=0,
    ) as process:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                output, errors = process.communicate(timeout=_STOP_S)
                break
            if stop.is_set():
                os.killpg(process.pid, signal.SIGKILL)
    if stop.is_set():
        raise EnvironmentFailed("interrupted")
    return process.returncode, output, errors


def without_credentials(url: str, env: dict[str, str]) -> str:
    """Return an http URL without user and password, which git finds in `env`: others see its arguments, by `ps`."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or parts.username is None:
        return url
    host = parts.netloc.rpartition("@")[2]
    user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    count = int(env.get("GIT_CONFIG_COUNT") or 0)
    env |= {
        "GIT_CONFIG_COUNT": str(count + 1),
        f"GIT_CONFIG_KEY_{count}": f"http.{parts.scheme}://{host}/.extraHeader",
        f"GIT_CONFIG_VALUE_{count}": f"Authorization: Basic {base64.b64encode(user.encode()).decode()}",
    }
    return urlunsplit(parts._replace(netloc=host))
