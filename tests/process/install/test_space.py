"""What an installation says it will download and take, and a disk on which that has no room."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from milabench.errors import EnvironmentFailed
from milabench.execute.needs import PackageFile, measured
from milabench.execute.package_indexes import opener_of
from tests.process.cli.test_bad_places import disk
from tests.process.install.places import Place, wheel
from tests.process.install.slow_index import SlowIndex, slow_index

LARGE = "x = 1\n" * 1_100_000


def needs(place: Place, index: SlowIndex, group: str = "g", **changes: object) -> str:
    """Install two packages from an index; what was said of their size."""
    pip = {"index-url": index.url}
    lock = place.lock("tool==1").replace("tool==1", "tool==1 ; sys_platform != 'win32'")
    lock += f"elsewhere==1 ; sys_platform == 'win32' --hash=sha256:{'0' * 64}\n"
    (outcome,) = place.install(place.spec(lock, group=group, pip=pip), pip=pip, **changes)
    assert not outcome.why, outcome
    said = next(line for line in place.said if line.startswith(f"{group}: needs: "))
    # The same number again, where it is known: what is for another platform is no package here.
    count = re.search(r"\d+ packages", said)
    assert count is None or f"{group}: installing: {count[0]}" in place.said
    return said


@pytest.mark.parametrize("tells", [True, False], ids=["the index", "the server"])
def test_sizes_are_those_that_are_told_and_what_is_cached_is_no_download(place: Place, tells: bool) -> None:
    wheel(place.wheels, "tool", "1", content="# a comment\n" * 100_000)
    sizes = [path.stat().st_size for path in place.wheels.glob("*-1-*.whl")]
    with slow_index(place.wheels, tells=tells) as index:
        assert needs(place, index) == f"g: needs: 2 packages, {sum(sizes) / 1e6:.0f} MB to download, about 7 MB of disk"
        again = needs(place, index, "again")
    byte_code = "about 3 MB of disk" if tells else "disk unknown"
    assert again == f"again: needs: 2 packages, nothing to download, {byte_code}"


@pytest.mark.e2e
@pytest.mark.long
def test_what_nobody_tells_is_said_to_be_unknown(place: Place) -> None:
    with slow_index(place.wheels) as index:
        assert needs(place, index, uv=None) == "g: needs: the size of the download is unknown"


@pytest.mark.parametrize("gives_parts", [True, False], ids=["by its contents", "by its length"])
def test_a_large_wheel_is_measured_on_the_server(place: Place, gives_parts: bool) -> None:
    wheel(place.wheels, "large", "1", content=LARGE)
    (path,) = place.wheels.glob("large-*")
    with slow_index(place.wheels, gives_parts=gives_parts) as index:
        url = index.url.replace("simple", f"files/{path.name}")
        file = measured(PackageFile(name="large", version="1", url=url), opener_of({}))
    assert file.size == path.stat().st_size
    if gives_parts:
        assert index.fetched == []
        assert file.python == len(LARGE)
        assert len(LARGE) < (file.unpacked or 0) < len(LARGE) + 1000
    else:
        assert (file.unpacked or 0) > path.stat().st_size


def refused(place: Place, index: SlowIndex, folder: Path) -> tuple[Place, str]:
    """A base on this disk, and the line with which a large package is refused there."""
    small = Place(base=folder / "base", wheels=place.wheels, benchmate=place.benchmate, environ=place.environ)
    pip = {"index-url": index.url}
    with pytest.raises(EnvironmentFailed) as failure:
        small.install(small.spec(small.lock("large==1"), pip=pip), pip=pip)
    (line,) = str(failure.value).splitlines()
    assert index.fetched == []
    assert line.startswith(f"{small.dirs.venv}/.store: too little space: about 17 MB are needed on its disk, ")
    return small, line


def test_a_disk_without_room_is_refused_before_anything_is_downloaded(place: Place, tmp_path: Path) -> None:
    wheel(place.wheels, "large", "1", content=LARGE)
    with disk(tmp_path / "disk", "4m"), slow_index(place.wheels) as index:
        small, line = refused(place, index, tmp_path / "disk")
        assert "--ignore-space" in line
        pip = {"index-url": index.url}
        (outcome,) = small.install(small.spec(small.lock("large==1"), pip=pip), pip=pip, ignore_space=True)
        assert outcome.why == "no space left on the disk"


def test_a_disk_with_room_for_no_more_than_the_estimate_is_refused_too(place: Place, tmp_path: Path) -> None:
    wheel(place.wheels, "large", "1", content=LARGE)
    with disk(tmp_path / "disk", "19m"), slow_index(place.wheels) as index:
        _, line = refused(place, index, tmp_path / "disk")
        assert "a quarter more for unknown needs, and 20 MB are free" in line
