"""`make docs`: the site is built without a warning, and shows and searches its pages in a browser that has no network."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import chromium
from tests.pages import ROOT
from tests.processes import until

pytestmark = pytest.mark.e2e
pytest.importorskip("zensical", reason="`make docs` installs what builds the site")


@pytest.fixture(scope="module")
def site() -> Path:
    done = subprocess.run(
        [sys.executable, "-m", "docs.build_site"], cwd=ROOT, check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "No issues found\n"), done.stdout + done.stderr
    return ROOT / "build" / "docs" / "site"


@pytest.mark.skipif(chromium.program() is None, reason="there is no Chromium")
def test_a_page_opened_as_a_file_is_whole_and_can_be_searched(site: Path, tmp_path: Path) -> None:
    with chromium.page(tmp_path) as page:
        page.open(site / "index.html")
        assert page.run("document.querySelector('img[alt=diagram]').naturalWidth") > 100
        page.open(site / "docs" / "glossary.html")
        page.run("document.querySelector('.md-search__button').click()")
        until(lambda: page.run("Boolean(document.activeElement.shadowRoot)"))
        page.call("Input.insertText", text="barrier")
        until(lambda: "start barrier" in page.run("document.activeElement.shadowRoot.textContent"))
        assert [address for address in page.requests if not address.startswith(("file:", "data:"))] == []
        assert page.errors == []
