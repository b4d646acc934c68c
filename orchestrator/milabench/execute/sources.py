"""Fetching the programs that benchmarks measure: by exact file and hash, unpacked whole or not at all."""

from __future__ import annotations

import base64
import json
import shutil
import ssl
import stat
import subprocess
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, TypeVar, cast
from urllib.parse import unquote, urlsplit, urlunsplit

from milabench.bench.api import Git, PyPI, Source
from milabench.errors import EnvironmentFailed
from milabench.execute.interrupts import thread_map
from milabench.execute.inventory import is_fetched, sha256_of, source_folder, source_marker
from milabench.execute.package_indexes import Indexes, indexes, pip_settings
from milabench.execute.venv import Installed, InstallOptions, Report, hold_lock, make_folder
from milabench.plan.context import Dirs
from milabench.plan.venvs import source_json
from milabench.redaction import mask

if TYPE_CHECKING:
    from unearth import Link, Package, PackageFinder
    from unearth.fetchers import Fetcher, PyPIClient

_T = TypeVar("_T")
_BLOCK = 1 << 20
_PAUSES_S = (0.3, 1.0, 2.0)


def fetch_sources(
    sources: Sequence[Source], dirs: Dirs, options: InstallOptions, report: Report
) -> tuple[Installed, ...]:
    """Make every source ready; one that fails does not keep the others from being fetched.

    With `force`, existing ones are unpacked again, from the archive in the cache when its hash is right. Raises
    EnvironmentFailed when the base folder cannot be written.
    """
    environ, force = options.environ, options.force
    if not force and all(is_fetched(dirs, source) for source in sources):
        return tuple(Installed(name=source.folder) for source in sources)
    make_folder(Path(dirs.code))
    where = indexes(options.pip if options.pip is not None else pip_settings(environ), environ)

    def outcome(source: Source) -> Installed:
        is_new = force or not is_fetched(dirs, source)
        if is_new:
            report(f"{source.folder}: fetching")
            try:
                fetch(source, dirs, where, environ, force=force)
            except EnvironmentFailed as error:
                report(f"{source.folder}: failed: {error}")
                return Installed(name=source.folder, why=str(error))
            report(f"{source.folder}: ready")
        return Installed(name=source.folder, is_new=is_new)

    return thread_map(outcome, sources, jobs=options.jobs)


def fetch(source: Source, dirs: Dirs, where: Indexes, environ: Mapping[str, str], *, force: bool) -> None:
    """Fetch the program unless it is there. Raises EnvironmentFailed."""
    code, folder = Path(dirs.code), source_folder(dirs, source)
    with hold_lock(code / f".{source.folder}.lock"):
        if is_fetched(dirs, source) and not force:  # by another process, while we waited
            return
        try:
            with tempfile.TemporaryDirectory(
                prefix=f".{source.folder}.", dir=code, ignore_cleanup_errors=True
            ) as building:
                fresh = Path(building, source.folder)
                match source:
                    case PyPI():
                        unpack_release(cached_archive(source, where, environ), source.file, fresh)
                    case Git():
                        _clone(source, fresh, environ)
                # The old marker goes before the old folder, the new one comes after the new folder: whatever stops us in
                # between, no marker ever stands beside another program than its own.
                source_marker(dirs, source).unlink(missing_ok=True)
                if folder.exists():
                    folder.rename(Path(building, "old"))
                fresh.rename(folder)
                marker = Path(building, "marker")
                marker.write_text(json.dumps(source_json(source), indent=1))
                marker.rename(source_marker(dirs, source))
        except OSError as error:
            raise EnvironmentFailed(f"{folder}: {(error.strerror or str(error)).lower()}") from error


def cached_archive(source: PyPI, where: Indexes, environ: Mapping[str, str]) -> Path:
    """Return the release file in the user's cache, fetched unless it is there and unaltered. Raises EnvironmentFailed."""
    home = Path(environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or Path.home()) / ".cache")
    cache = make_folder(home / "milabench" / "archives")
    kept = cache / source.sha256
    if kept.is_file() and sha256_of(kept) == source.sha256:
        return kept
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=cache) as building:
        fresh = Path(building, "archive")
        _download(source, where, environ, fresh)
        digest = sha256_of(fresh)
        if digest != source.sha256:
            raise EnvironmentFailed(
                f"{source.file}: the index served a file with sha256 {digest}, the benchfile expects {source.sha256}; "
                "nothing was unpacked"
            )
        fresh.replace(kept)
    return kept


def unpack_release(archive_file: Path, name: str, into: Path) -> None:
    """Unpack a release file into a new folder: a wheel as it is, an sdist without its one outer folder.

    Raises EnvironmentFailed when the archive is broken, or a member of it would land outside.
    """
    loose = into.parent / f"{into.name}.loose"
    try:
        if name.endswith((".whl", ".zip")):
            _unzip(archive_file, loose)
        else:
            with tarfile.open(archive_file) as tar:
                tar.extractall(loose, filter="data")
    except (tarfile.TarError, zipfile.BadZipFile, EOFError) as error:
        raise EnvironmentFailed(f"{name}: cannot be unpacked: {error}") from None
    inside = list(loose.iterdir())
    is_wrapped = not name.endswith(".whl") and len(inside) == 1 and inside[0].is_dir()
    (inside[0] if is_wrapped else loose).rename(into)
    shutil.rmtree(loose, ignore_errors=True)


def _unzip(archive_file: Path, into: Path) -> None:
    with zipfile.ZipFile(archive_file) as zipped:
        for member in zipped.infolist():
            path = PurePosixPath(member.filename)
            if path.is_absolute() or ".." in path.parts or stat.S_ISLNK(member.external_attr >> 16):
                raise EnvironmentFailed(f"{archive_file.name}: the member {member.filename!r} would land outside")
        zipped.extractall(into)


def _download(source: PyPI, where: Indexes, environ: Mapping[str, str], into: Path) -> None:
    import httpx2

    label = f"{source.project} {source.version} ({source.file})"
    silent = []
    with _client(where) as client:
        for index, link in _links(source.project, where, client):
            if isinstance(link, Exception):
                silent.append(mask(index))
            elif link.filename == source.file:
                try:
                    _patiently(partial(_copy, link, client, into))
                except (httpx2.HTTPError, OSError) as error:
                    raise EnvironmentFailed(f"{label}: fetching it from {link.redacted} failed: {error}") from None
                return
    if where.is_offline:
        raise EnvironmentFailed(f"{label}: not in the cache, and UV_OFFLINE forbids fetching it")
    if silent:
        raise EnvironmentFailed(f"{label}: not in the cache, and {', '.join(silent)} cannot be reached")
    searched = ", ".join(mask(location) for location in (*where.urls, *where.find_links)) or "no index at all"
    raise EnvironmentFailed(f"{label}: no such file on the configured indexes ({searched})")


def release_files(project: str, where: Indexes) -> tuple[tuple[str, str], ...]:
    """Return the names and sha256 of all files of a project that the indexes list, in their order.

    Files without a hash are left out. Raises EnvironmentFailed when an index cannot be reached.
    """
    files = []
    with _client(where) as client:
        for index, link in _links(project, where, client):
            if isinstance(link, Exception):
                raise EnvironmentFailed(f"{mask(index)}: cannot be reached: {link}")
            if sha256 := _sha256(link):
                files.append((link.filename, sha256))
    return tuple(files)


def release(project: str, version: str, *, environ: Mapping[str, str], pip: Mapping[str, str] | None = None) -> PyPI:
    """Return the source file of a release: the sdist, else a wheel for any platform, with the index's own sha256.

    Raises EnvironmentFailed when no index lists such a file.
    """
    where = indexes(pip if pip is not None else pip_settings(environ), environ)
    files = dict(release_files(project, where))
    stem = f"{project.lower().replace('-', '_')}-{version}"
    for name in (f"{stem}.tar.gz", f"{project}-{version}.tar.gz", f"{stem}-py3-none-any.whl"):
        if name in files:
            return PyPI(project, version, file=name, sha256=files[name])
    raise EnvironmentFailed(f"{project} {version}: no sdist and no pure wheel on the configured indexes")


def _client(where: Indexes) -> PyPIClient:
    from unearth.auth import MultiDomainBasicAuth
    from unearth.fetchers import PyPIClient

    try:
        context = ssl.create_default_context(cafile=where.cert)
    except OSError as error:
        raise EnvironmentFailed(f"{where.cert}: the certificates cannot be read: {error.strerror}") from None
    client = PyPIClient(
        trusted_hosts=where.trusted_hosts, verify=context, timeout=30.0, proxy=where.proxy, follow_redirects=True
    )
    client.auth = MultiDomainBasicAuth(prompting=False, index_urls=list(where.urls))
    return client


def _links(project: str, where: Indexes, client: PyPIClient) -> Iterator[tuple[str, Link | Exception]]:
    """Yield the links each index lists for a project, or its error: one failing index does not hide the others."""
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
            for package in _patiently(partial(_listed, finder, project)):
                yield location, package.link
        except (httpx2.HTTPError, OSError, ValueError) as error:
            yield location, error


def _listed(finder: PackageFinder, project: str) -> list[Package]:
    return list(finder.find_all_packages(project, allow_yanked=True))


def _patiently(ask: Callable[[], _T]) -> _T:
    """Retry the request when the network fails for a moment."""
    import httpx2

    for pause_s in _PAUSES_S:
        try:
            return ask()
        except httpx2.TransportError:
            time.sleep(pause_s)
    return ask()


def _sha256(link: Link) -> str | None:
    hashes = link.hashes or {}
    if "sha256" in hashes:
        return str(hashes["sha256"])
    if link.hash_name == "sha256" and link.hash:
        return str(link.hash)
    return sha256_of(link.file_path) if link.is_file and link.file_path.is_file() else None


def _copy(link: Link, client: PyPIClient, into: Path) -> None:
    if link.is_file:
        shutil.copyfile(link.file_path, into)
        return
    with client.stream("GET", link.url_without_fragment, follow_redirects=True) as answer, into.open("wb") as file:
        answer.raise_for_status()
        for block in answer.iter_bytes(_BLOCK):
            file.write(block)


def _clone(source: Git, into: Path, environ: Mapping[str, str]) -> None:
    git = shutil.which("git", path=environ.get("PATH"))
    if git is None:
        raise EnvironmentFailed(f"{mask(source.url)} is a git repository, and git is not installed; install it")
    # GIT_DIR, which git sets for its hooks, would point every command at another repository; a prompt would hang.
    env = {**{name: v for name, v in environ.items() if not name.startswith("GIT_DIR")}, "GIT_TERMINAL_PROMPT": "0"}
    url = _without_credentials(source.url, env)

    def run(*argv: str) -> str | None:
        process = subprocess.run(
            [git, *argv], env=env, cwd=into, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        return (
            None if process.returncode == 0 else (process.stderr.strip().splitlines() or ["git printed no error"])[-1]
        )

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


def _without_credentials(url: str, env: dict[str, str]) -> str:
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
