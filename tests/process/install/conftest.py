"""Places to install into; the builders are in places.py."""

from __future__ import annotations

import hashlib
import http.server
import os
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from milabench.execute.install_session import find_uv
from tests.process.install.places import BACKEND, Index, Place, wheel


@pytest.fixture(scope="session")
def uv() -> str:
    """uv, on which nearly all of this depends."""
    found = find_uv(os.environ)
    assert found, "uv is a dependency of the project"
    return found


@pytest.fixture
def place(tmp_path: Path, uv: str) -> Place:
    """Everything an install needs, in a folder of its own."""
    wheels, project = tmp_path / "wheels", tmp_path / "benchmate"
    wheels.mkdir()
    (project / "src" / "benchmate").mkdir(parents=True)
    (project / "src" / "benchmate" / "__init__.py").write_text("import voir\n")
    (project / "backend.py").write_text(BACKEND)
    (project / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "benchmate"\nversion = "0.1"\ndependencies = ["voir"]\n'
    )
    wheel(wheels, "voir", "1")
    wheel(wheels, "tool", "1")
    wheel(wheels, "tool", "2")
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path / "home"),
        "UV_CACHE_DIR": str(tmp_path / "uv-cache"),
        "UV_HTTP_RETRIES": "0",
        # Whatever would leave the machine ends here at once.
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    return Place(base=tmp_path / "base", wheels=wheels, benchmate=project, environ=environ)


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def index(place: Place, tmp_path: Path) -> Iterator[Index]:
    """The wheels behind the simple repository API."""
    pages = tmp_path / "index"
    for file in place.wheels.iterdir():
        page = pages / "simple" / file.name.partition("-")[0] / "index.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
        with page.open("a") as links:
            links.write(f'<a href="/files/{file.name}#sha256={sha256}">{file.name}</a>\n')
    (pages / "files").symlink_to(place.wheels)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(pages)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()

    def stop() -> None:
        if thread.is_alive():
            server.shutdown()
            server.server_close()
            thread.join()

    yield Index(url=f"http://127.0.0.1:{server.server_address[1]}/simple", stop=stop)
    stop()
