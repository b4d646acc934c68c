"""A download that goes wrong, in every way that a server can make it: one line, no half file, and the next one repairs it."""

from __future__ import annotations

import hashlib
import http.server
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from milabench.bench.api import Git, PyPI, Source
from milabench.execute import sources
from milabench.execute.activities import Activities
from milabench.execute.install_session import Installed, InstallOptions
from milabench.execute.inventory import is_fetched
from milabench.execute.sources import fetch_sources
from tests.commands import ROOT
from tests.process.cli.test_bad_places import disk
from tests.process.install.places import Place, wheel
from tests.processes import end_of, is_gone, started, until

FILE = "tool-1-py3-none-any.whl"
LOGIN = b"<html><body><h1>Please log in to this network</h1></body></html>"


class Server(http.server.ThreadingHTTPServer):
    """An index with one file, which answers for its page or for the file as `ways` say; what is asked is kept."""

    daemon_threads = True

    def __init__(self, content: bytes) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.content = content
        self.ways: dict[str, str] = {}
        self.asked: list[str] = []
        self.over = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_address[1]}/simple"

    def handle_error(self, *_: object) -> None:
        """Say nothing: clients leave."""


class Answer(http.server.BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        what = "page" if self.path.startswith("/simple/") else "file"
        self.server.asked.append(self.path)
        page = f'<a href="/files/{FILE}#sha256={hashlib.sha256(self.server.content).hexdigest()}">{FILE}</a>\n'
        content = page.encode() if what == "page" else self.server.content
        match self.server.ways.get(what, ""):
            case "":
                self.answer(content)
            case "cut off":
                self.answer(content[: len(content) // 2], length=len(content))
            case "cut off without a length":
                self.answer(content[: len(content) // 2], length=None)
            case "another page":
                self.answer(LOGIN, kind="text/html")
            case "an error page":
                self.answer(LOGIN, status=503, kind="text/html")
            case "a loop":
                self.answer(b"", status=302, location=self.path)
            case "silence":
                self.server.over.wait()
            case "silence in the middle":
                self.answer(content[: len(content) // 2], length=len(content))
                self.server.over.wait()
            case "drops":
                self.answer(b"", length=len(content))
                for byte in content:
                    self.wfile.write(bytes([byte]))
                    if self.server.over.wait(0.2):
                        return

    def answer(
        self, content: bytes, *, length: int | None = -1, status: int = 200, kind: str = "", location: str = ""
    ) -> None:
        self.send_response(status)
        self.send_header(
            "Content-Type", kind or ("text/html" if self.path.startswith("/simple") else "application/zip")
        )
        if length is not None:
            self.send_header("Content-Length", str(len(content) if length < 0 else length))
        if location:
            self.send_header("Location", location)
        self.end_headers()
        self.wfile.write(content)
        self.wfile.flush()


@pytest.fixture
def server(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server that fetches are made from, with little patience on the other side."""
    monkeypatch.setattr(sources, "_PAUSES_S", (0.01,))
    monkeypatch.setattr(sources, "_SILENCE_S", 0.5)
    monkeypatch.setattr(sources, "_SLOW", (0.5, 1024))
    server = Server((place.wheels / FILE).read_bytes())
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server
    server.over.set()
    server.shutdown()
    server.server_close()
    thread.join()


def program(server: Server) -> PyPI:
    return PyPI("tool", "1", file=FILE, sha256=hashlib.sha256(server.content).hexdigest())


def options(place: Place, server: Server) -> InstallOptions:
    return InstallOptions(benchmate="/none", environ=place.environ, pip={"index-url": server.url})


def fetched(place: Place, server: Server, source: Source | None = None) -> Installed:
    (outcome,) = fetch_sources(
        [source or program(server)], place.dirs, options(place, server), Activities(place.said.append)
    )
    return outcome


def nothing_is_left(place: Place) -> bool:
    """Whether there is no file but locks, neither half nor whole."""
    cache = Path(place.environ["HOME"], ".cache", "milabench", "archives")
    return not [
        path for folder in (Path(place.dirs.code), cache) for path in folder.rglob("*") if path.suffix != ".lock"
    ]


@pytest.mark.parametrize(
    ("way", "told"),
    [
        ("cut off", "fetching it from http://127.0.0.1"),
        ("cut off without a length", "the benchfile expects"),
        ("another page", "the benchfile expects"),
        ("an error page", "503"),
        ("a loop", "redirect"),
        ("silence", "timed out"),
        ("silence in the middle", "timed out"),
        ("drops", "less than 1024 bytes per second"),
    ],
)
def test_a_file_that_does_not_come_as_it_should_is_one_line_and_the_next_fetch_repairs_it(
    place: Place, server: Server, way: str, told: str
) -> None:
    server.ways["file"] = way
    outcome = fetched(place, server)
    assert told in outcome.why, outcome.why
    assert FILE in outcome.why
    assert "\n" not in outcome.why
    assert not is_fetched(place.dirs, program(server))
    assert nothing_is_left(place)
    server.ways.clear()
    assert fetched(place, server).is_new
    assert is_fetched(place.dirs, program(server))


@pytest.mark.parametrize(
    ("way", "told"),
    [
        ("cut off", "peer closed connection"),
        ("another page", "no such file on the configured indexes"),
        ("an error page", "503"),
        ("a loop", "redirect"),
        ("silence", "timed out"),
        ("drops", "no end within"),
    ],
)
def test_an_index_that_does_not_answer_as_it_should_is_one_line_with_the_reason(
    place: Place, server: Server, monkeypatch: pytest.MonkeyPatch, way: str, told: str
) -> None:
    monkeypatch.setattr(sources, "_LISTING_S", 2.0)
    server.ways["page"] = way
    outcome = fetched(place, server)
    assert told in outcome.why, outcome.why
    assert server.url in outcome.why
    assert "\n" not in outcome.why
    assert nothing_is_left(place)
    server.ways.clear()
    assert fetched(place, server).is_new


INTERRUPTED = """
import sys
from milabench.bench.api import Git, PyPI
from milabench.execute.activities import Activities
from milabench.execute.interrupts import Interrupts
from milabench.execute.sources import fetch_sources
from milabench.execute.install_session import InstallOptions
from milabench.plan.context import dirs_under
source = {source!r}
options = InstallOptions(benchmate="/none", environ={environ!r}, pip={{"index-url": {url!r}}})
Interrupts().take_over()
try:
    fetch_sources([source], dirs_under({base!r}, {{}}), options, Activities())
except KeyboardInterrupt:
    sys.exit(130)
"""


def fetching(place: Place, server: Server, source: Source) -> list[str]:
    code = INTERRUPTED.format(source=source, environ=dict(place.environ), url=server.url, base=str(place.base))
    return [sys.executable, "-c", code]


@pytest.mark.parametrize("way", ["silence", "silence in the middle"])
def test_an_interrupt_does_not_wait_for_a_server_that_is_silent(place: Place, server: Server, way: str) -> None:
    server.ways["file"] = way
    with started(fetching(place, server, program(server))) as process:
        until(lambda: f"/files/{FILE}" in server.asked, "the request")
        process.send_signal(signal.SIGTERM)
        assert end_of(process, 20) == 130  # before its own patience with the server, 30 s, has an end
    assert nothing_is_left(place)
    assert server.asked.count(f"/files/{FILE}") == 1


def test_a_fetch_that_was_killed_in_the_middle_leaves_nothing_that_counts_and_the_next_one_sweeps_it(
    place: Place, server: Server
) -> None:
    server.ways["file"] = "silence in the middle"
    with started(fetching(place, server, program(server))) as process:
        until(lambda: f"/files/{FILE}" in server.asked, "the request")
        process.kill()
    server.ways.clear()
    assert not is_fetched(place.dirs, program(server))
    assert fetched(place, server).is_new
    code = [path.name for path in Path(place.dirs.code).iterdir() if path.suffix != ".lock"]
    assert sorted(code) == [".tool-1.complete", "tool-1"]
    cache = Path(place.environ["HOME"], ".cache", "milabench", "archives")
    assert [path.name for path in cache.iterdir() if path.suffix != ".lock"] == [program(server).sha256]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
@pytest.mark.parametrize("full", ["cache", "code"])
def test_a_disk_that_fills_up_is_one_line_and_nothing_is_left_on_it(place: Place, server: Server, full: str) -> None:
    wheel(place.wheels, "tool", "1", content="x" * (256 << 10))
    server.content = (place.wheels / FILE).read_bytes()
    cache = Path(place.environ["HOME"], ".cache", "milabench", "archives")
    with disk(cache if full == "cache" else Path(place.dirs.code), "64k"):
        outcome = fetched(place, server)
        assert "no space left on" in outcome.why.lower()
        assert "\n" not in outcome.why
        assert not is_fetched(place.dirs, program(server))
    assert fetched(place, server).is_new


def test_an_interrupt_ends_a_git_that_waits_for_a_silent_server(place: Place, server: Server) -> None:
    server.ways["file"] = "silence"
    source = Git(server.url.replace("/simple", "/files/program.git"), "0" * 40)
    with started(fetching(place, server, source)) as process:
        until(lambda: any("program.git" in path for path in server.asked), "the request of git")
        children = descendants(process.pid)
        assert children
        process.send_signal(signal.SIGTERM)
        assert end_of(process) == 130
    assert all(is_gone(pid) for pid in children)
    assert nothing_is_left(place)


def test_a_machine_without_git_is_told_so(place: Place, server: Server) -> None:
    environ = {**place.environ, "PATH": str(place.wheels)}
    how = InstallOptions(benchmate="/none", environ=environ, pip={})
    (outcome,) = fetch_sources([Git(f"{server.url}/a.git", "0" * 40)], place.dirs, how, Activities(place.said.append))
    assert outcome.why.endswith("is a git repository, and git is not installed. Install it")


def descendants(pid: int) -> list[int]:
    """The children of a process, their children, and so on."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout.split()
    children: dict[int, list[int]] = {}
    for child, parent in zip(listed[::2], listed[1::2], strict=True):
        children.setdefault(int(parent), []).append(int(child))
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found[1:]


PYKEEN = """
import os, pathlib, signal, types
home = pathlib.Path(os.environ["PYSTOW_HOME"], "pykeen", "datasets", "wn18")
def get_dataset(dataset):
    home.mkdir(parents=True, exist_ok=True)
    file = home / "train.txt"
    if not file.is_file():  # as the library decides
        with file.open("w") as half:
            half.write("a r b\\n")
            half.flush()
            if "KILL" in os.environ:
                os.kill(os.getpid(), signal.SIGKILL)
            half.write("b r c\\n")
    triples = len(file.read_text().splitlines())
    return types.SimpleNamespace(training=types.SimpleNamespace(num_triples=triples), num_entities=3)
"""


def test_a_data_set_whose_download_was_killed_is_downloaded_again(tmp_path: Path) -> None:
    (tmp_path / "pykeen").mkdir()
    (tmp_path / "pykeen" / "datasets.py").write_text(PYKEEN)
    home = tmp_path / "data" / "pystow"
    words = [sys.executable, ROOT / "benchmarks" / "pykeen" / "prepare.py", "--dataset", "wn18"]
    environ = {**os.environ, "PYTHONPATH": str(tmp_path), "PYSTOW_HOME": str(home)}
    killed = subprocess.run(words, env={**environ, "KILL": "1"}, check=False)
    assert killed.returncode == -signal.SIGKILL
    for _ in range(2):
        done = subprocess.run(words, env=environ, capture_output=True, text=True, check=True)
        assert done.stdout.startswith("wn18: 2 training triples")
    assert (home / "pykeen" / "datasets" / "wn18" / "train.txt").read_text() == "a r b\nb r c\n"
    assert sorted(path.name for path in home.parent.iterdir()) == [".pystow.lock", "pystow"]
