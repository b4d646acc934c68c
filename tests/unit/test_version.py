"""The version has one source; what has to repeat it repeats it rightly."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from milabench.version import __version__

ROOT = Path(__file__).resolve().parents[2]


def test_the_instruments_have_the_version_of_the_control_plane() -> None:
    project = tomllib.loads((ROOT / "benchmate" / "pyproject.toml").read_text())["project"]
    assert project["version"] == __version__


def test_pages_name_the_wheel_of_this_version() -> None:
    named = {
        version
        for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
        for version in re.findall(r"milabench-(\d[0-9.]*)-py3-none-any\.whl", page.read_text())
    }
    assert named == {__version__}
